"""Bounds for all processes of a shell together, without a sandbox around them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deep_agent_mcp.harness.shell import resource_limits as bounds
from deep_agent_mcp.harness.shell.resource_limits import ControlGroups

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists processes")

# Bounds count what is below their process: they are looked at where there is nothing else.
COUNTED = """
import os, subprocess, sys
from deep_agent_mcp.harness.shell.resource_limits import Bounds

command = ["sh", "-c", "sleep 1000 & sleep 1000 & echo up; wait"]
child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()
for most in (2, 3):
    bounds = Bounds(most, 0)
    bounds._lists = bounds._lists and sys.argv[1] == "lists"
    print(bounds.passed())
os.killpg(child.pid, 9)
"""
WEIGHED = """
import subprocess, sys
from deep_agent_mcp.harness.shell.resource_limits import Bounds

hold = "import sys; x = bytearray(b'x' * (60 << 20)); print('up', flush=True); sys.stdin.read()"
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
children = [subprocess.Popen([sys.executable, "-c", hold], **pipes) for _ in range(2)]
for one in children:
    assert one.stdout.readline() == b"up\\n"
for most in (100 << 20, 4 << 30, 0):
    print(Bounds(0, most).passed())
for one in children:
    one.communicate()
"""


def lines_of(code: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("looked", ["lists", "all"])
def test_processes_are_counted_with_what_they_started(looked: str) -> None:
    few, enough = lines_of(COUNTED, looked)
    assert few.startswith("more than 2 processes")
    assert enough == "None"


def test_memory_is_that_of_all_processes() -> None:
    assert lines_of(WEIGHED) == ["more than 100 MiB of memory", "None", "None"]


def test_control_groups_hold_what_enters_them_and_are_removed() -> None:
    groups = ControlGroups(50, 1 << 30)
    made = [Path(one) for one in groups._made]
    if not made:
        pytest.skip("control groups cannot be written here")
    pid = os.fork()
    if not pid:
        groups.enter()
        here = [Path(one, "cgroup.procs").read_text().split() for one in made]
        os._exit(0 if all(str(os.getpid()) in one for one in here) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    groups.remove()
    assert not any(one.exists() for one in made)


def test_groups_of_supervisors_that_were_killed_are_swept(tmp_path: Path) -> None:
    for name in ("deep-agent-4194999-a", f"deep-agent-{os.getpid()}-b", "other"):
        (tmp_path / name).mkdir()
    bounds._sweep(str(tmp_path))
    left = sorted(one.name for one in tmp_path.iterdir())
    assert left == [f"deep-agent-{os.getpid()}-b", "other"]
