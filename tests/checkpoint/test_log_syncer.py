"""Commits that do not wait for the disk reach it a moment later."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from anyio import fail_after, to_thread

from deep_agent_mcp.harness.checkpoint.base import step_id
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite.committer import LogSyncer
from tests.checkpoint.records import THREAD, loaded, step_batch, values

pytestmark = pytest.mark.anyio


class Syncs:
    """Lets `os.fsync` through and notes it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inodes: set[int] = set()
        self.happened = threading.Event()
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, descriptor: int) -> None:
        self._fsync(descriptor)
        self.inodes.add(os.fstat(descriptor).st_ino)
        self.happened.set()


async def test_a_commit_that_does_not_wait_is_synced_soon_after(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    syncs = Syncs(monkeypatch)
    async with SqliteCheckpointer(path) as journal:
        await journal.commit(replace(step_batch(None, "a"), synced=False))
        with fail_after(5):
            await to_thread.run_sync(syncs.happened.wait)
        assert syncs.inodes == {Path(f"{path}-wal").stat().st_ino}
        assert await journal.load(THREAD) is not None


async def test_a_commit_that_waits_needs_no_syncer(path: Path, monkeypatch: pytest.MonkeyPatch):
    async with SqliteCheckpointer(path) as journal:
        await journal.commit(step_batch(None, "a"))
        names = {thread.name for thread in threading.enumerate()}
    assert "journal-sync" not in names


async def test_closing_right_after_a_commit_keeps_it_and_leaves_no_thread(path: Path):
    async with SqliteCheckpointer(path) as journal:
        await journal.commit(replace(step_batch(None, "a"), synced=False))
    assert "journal-sync" not in {thread.name for thread in threading.enumerate()}
    async with SqliteCheckpointer(path) as journal:
        found = await journal.load(THREAD)
        assert found is not None
        assert found.checkpoint.id == step_id(None)


def test_a_close_that_falls_between_two_looks_ends_the_thread(tmp_path: Path):
    (tmp_path / "journal-wal").write_bytes(b"")
    syncer = LogSyncer(tmp_path / "journal")
    between, go_on = threading.Event(), threading.Event()
    clear = syncer._dirty.clear

    def late() -> None:  # close() sets both events just before the thread forgets what was noted
        between.set()
        go_on.wait(5)
        clear()

    syncer._dirty.clear = late  # type: ignore[method-assign]
    syncer.note()
    assert between.wait(5)
    closing = threading.Thread(target=syncer.close, daemon=True)
    closing.start()
    assert syncer._closing.wait(5)
    while not syncer._dirty.is_set():
        closing.join(0.001)
    go_on.set()
    closing.join(5)
    assert not closing.is_alive()


async def test_a_commit_that_nobody_could_sync_later_is_not_stored(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(_: Path) -> None:
        raise RuntimeError("can't start new thread")

    async with SqliteCheckpointer(path) as journal:
        batch = replace(step_batch(None, "a"), synced=False)
        with monkeypatch.context() as patched:
            patched.setattr("deep_agent_mcp.harness.checkpoint.sqlite.committer.LogSyncer", refuse)
            with pytest.raises(RuntimeError, match="new thread"):
                await journal.commit(batch)
        assert await journal.load(THREAD) is None
        await journal.commit(batch)
        assert values((await loaded(journal)).writes) == ["a"]
