"""Bounds for all processes of a shell together, without a sandbox around them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.shell import bounds
from harness.shell.bounds import Bounds, ControlGroups, descendants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists processes")

HOLD = "import sys; x = bytearray(b'x' * (60 << 20)); print('up', flush=True); sys.stdin.read()"


@pytest.mark.parametrize("lists", [True, False])
def test_processes_are_counted_with_what_they_started(
    lists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Those of others in this process, such as a test runner's, with their threads.
    others = descendants(os.getpid())
    before = sum(len(os.listdir(f"/proc/{one}/task")) for one in others)
    command = ["sh", "-c", "sleep 1000 & sleep 1000 & echo up; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            few, enough = Bounds(before + 2, 0), Bounds(before + 3, 0)
            for one in (few, enough):
                monkeypatch.setattr(one, "_lists", lists and one._lists)
            assert (few.passed() or "").startswith(f"more than {before + 2} processes")
            assert enough.passed() is None
        finally:
            os.killpg(child.pid, 9)


def test_memory_is_that_of_all_processes() -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    try:
        for one in children:
            assert one.stdout is not None
            assert one.stdout.readline() == b"up\n"
        assert Bounds(0, 100 << 20).passed() == "more than 100 MiB of memory"
        assert Bounds(0, 4 << 30).passed() is None
        assert Bounds(0, 0).passed() is None
    finally:
        for one in children:
            one.kill()
            one.communicate()


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


def test_groups_of_guardians_that_were_killed_are_swept(tmp_path: Path) -> None:
    for name in ("deep-agent-4194999-a", f"deep-agent-{os.getpid()}-b", "other"):
        (tmp_path / name).mkdir()
    bounds._sweep(str(tmp_path))
    left = sorted(one.name for one in tmp_path.iterdir())
    assert left == [f"deep-agent-{os.getpid()}-b", "other"]
