"""A shell over the directories of a backend begins only with what the policy judged."""

import os
from pathlib import Path

import pytest

from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.mounts import with_workspace
from deep_agent_mcp.harness.shell.bubblewrap import BubblewrapExecutionPolicy
from deep_agent_mcp.harness.shell.policies import Layout, Mount
from deep_agent_mcp.harness.shell.sandbox import Sandbox, sandbox_of
from deep_agent_mcp.harness.shell.session import ShellError
from tests.shell.support import need_bubblewrap, text_of

pytestmark = pytest.mark.anyio


def sandbox_over(root: Path) -> Sandbox:
    need_bubblewrap()
    backend = with_workspace(DirectoryBackend(root), confined=True)
    return sandbox_of(backend, BubblewrapExecutionPolicy())


def layout_with(root: Path, identity: str) -> Layout:
    """Return a layout in which `fixed` was judged when it was another file, or this one."""
    fixed = Mount(str(root / "fixed"), "read", "/workspace/fixed", identity)
    return Layout("/workspace", [Mount(str(root), "write", "/workspace"), fixed])


async def test_startup_commands_run_where_the_files_are_those_that_were_judged(
    tmp_path: Path,
) -> None:
    (tmp_path / "fixed").touch()
    found = (tmp_path / "fixed").stat()
    layout = layout_with(tmp_path, f"{found.st_dev}:{found.st_ino}")
    session = await sandbox_over(tmp_path).open(layout, ["NAME=value"])
    try:
        assert text_of(await session.run("echo $NAME", 60)) == "value\n"
    finally:
        await session.close()


async def test_where_a_file_was_replaced_nothing_runs_and_nothing_stays_open(
    tmp_path: Path,
) -> None:
    (tmp_path / "fixed").touch()
    sandbox = sandbox_over(tmp_path)
    still_open: list[int] = []
    for _ in range(2):  # the first one opens what the loop and its threads keep
        with pytest.raises(ShellError, match="were replaced by others"):
            await sandbox.open(layout_with(tmp_path, "0:0"), ["touch ran"])
        still_open.append(len(os.listdir("/dev/fd")))
    assert still_open[0] == still_open[1]
    assert not (tmp_path / "ran").exists()
