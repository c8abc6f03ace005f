"""Whatever we write that is ours, nobody else on the machine can read: not even meanwhile."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner
from mcp import Client

from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.cli import threads as commands
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.settings.sources import load_settings
from tests.e2e.servers import call

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="modes of files are POSIX"),
]


@pytest.fixture(autouse=True)
def anybody_may_read_by_default() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def others_may(path: Path) -> list[str]:
    """Return what below a directory others may read, write or enter."""
    return [
        f"{one} {stat.S_IMODE(one.lstat().st_mode):o}"
        for one in (path, *path.rglob("*"))
        if one.lstat().st_mode & 0o077
    ]


async def test_files_of_the_state_directory_are_private(tmp_path: Path) -> None:
    state = tmp_path / "state"
    settings = load_settings({"state_dir": str(state)}, {})
    with anyio.fail_after(60):
        async with create_app(settings) as app, Client(app.server) as client:
            wrote = await call(client, "write_file", path="/a.txt", content="one")
            assert len([*state.rglob("*.lock")]) >= 1
            assert others_may(state) == []
            where = {"thread_id": wrote["thread_id"]}
            first = (await call(client, "threads", **where))["checkpoints"][-1]
            await call(client, "rewind", checkpoint_id=first["checkpoint_id"], **where)
    flags = ["--state-dir", str(state)]
    for command in (
        ["token", *flags, "create", "me"],
        ["threads", *flags, "prune", "--keep-latest", "1", "--yes"],
    ):
        done = await anyio.to_thread.run_sync(CliRunner().invoke, cli, command)
        assert done.exit_code == 0, done.output
    assert others_may(state) == []


async def test_an_export_is_private_from_its_first_byte_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, file = tmp_path / "state", tmp_path / "export.jsonl"
    settings = load_settings({"state_dir": str(state)}, {})
    with anyio.fail_after(60):
        async with create_app(settings) as app, Client(app.server) as client:
            wrote = await call(client, "write_file", path="/a.txt", content="one")
    modes: list[int] = []
    work = commands._within

    def looked(*args: object, **more: object) -> object:
        modes.append(stat.S_IMODE(file.stat().st_mode))
        return work(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(commands, "_within", looked)
    command = ["threads", "--state-dir", str(state), "export", wrote["thread_id"], str(file)]
    done = await anyio.to_thread.run_sync(CliRunner().invoke, cli, command)
    assert done.exit_code == 0, done.output
    assert modes == [0o600] and stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "plain text" not in done.stderr  # so is the journal
