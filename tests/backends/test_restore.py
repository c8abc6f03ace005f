"""Putting a directory back as it was."""

import os
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from deep_agent_mcp.harness.backends.base import FileError
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from tests.backends.workbench import Bench

pytestmark = pytest.mark.anyio


async def restore(disk: Bench, since: int = 0, *, force: bool = False) -> list[str]:
    assert isinstance(disk.backend, DirectoryBackend)
    changes = [one for one in await disk.checkpointer.file_changes("thr_1", 0) if one.seq > since]
    return await disk.backend.restore(
        changes,
        thread_id="thr_1",
        run_id="run_2",
        checkpointer=disk.checkpointer,
        force=force,
    )


def tree(disk: Bench) -> dict[str, bytes]:
    return {
        str(path.relative_to(disk.root)): path.read_bytes()
        for path in disk.root.rglob("*")
        if path.is_file()
    }


async def test_every_kind_of_change_is_undone_and_redone(disk: Bench):
    await disk.seed("/changed", b"1")
    await disk.seed("/deleted", b"2")
    await disk.seed("/d/e/inner", bytes(range(256)))
    before = tree(disk)
    files = disk.files()
    await files.write("/changed", b"1.5")
    await files.write("/changed", b"1.7")
    await files.write("/new/file", b"3")
    await files.delete("/deleted")
    await files.delete("/d")
    after = tree(disk)
    assert after != before
    newest = (await disk.checkpointer.file_changes("thr_1", 0))[0].seq

    restored = await restore(disk)
    assert sorted(restored) == ["/changed", "/d/e/inner", "/deleted", "/new/file"]
    assert tree(disk) == before

    await restore(disk, since=newest)
    assert tree(disk) == after


async def test_nothing_is_done_when_somebody_else_changed_a_file(disk: Bench):
    await disk.seed("/a", b"a")
    await disk.seed("/b", b"b")
    await disk.files().write("/a", b"A")
    await disk.files().write("/b", b"B")
    (disk.root / "a").write_bytes(b"theirs")
    with pytest.raises(FileError, match="/a") as caught:
        await restore(disk)
    assert caught.value.code == "changed"
    assert tree(disk) == {"a": b"theirs", "b": b"B"}
    assert len(await disk.checkpointer.file_changes("thr_1", 0)) == 2

    assert sorted(await restore(disk, force=True)) == ["/a", "/b"]
    assert tree(disk) == {"a": b"a", "b": b"b"}
    records = await disk.checkpointer.file_changes("thr_1", 0)
    assert b"theirs" in [one.before for one in records]


async def test_changes_of_others_in_between_are_noticed_too(disk: Bench):
    await disk.files().write("/a", b"1")
    (disk.root / "a").write_bytes(b"theirs")
    await disk.files().write("/a", b"2")
    with pytest.raises(FileError):
        await restore(disk)
    assert tree(disk) == {"a": b"2"}
    first = (await disk.checkpointer.file_changes("thr_1", 0))[-1].seq
    await restore(disk, since=first)
    assert tree(disk) == {"a": b"theirs"}


async def test_a_file_that_somebody_deleted_is_noticed(disk: Bench):
    await disk.seed("/d/a", b"1")
    await disk.files().write("/d/a", b"2")
    (disk.root / "d/a").unlink()
    (disk.root / "d").rmdir()
    with pytest.raises(FileError):
        await restore(disk)
    assert await restore(disk, force=True) == ["/d/a"]
    assert tree(disk) == {"d/a": b"1"}


async def test_a_recorded_change_that_never_happened_does_no_harm(
    disk: Bench, monkeypatch: pytest.MonkeyPatch
):
    await disk.seed("/a", b"1")
    await disk.files().write("/a", b"2")

    class Crash(Exception):
        pass

    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(disk.backend.tree, "replace", crash)  # type: ignore[union-attr]
        with pytest.raises(Crash):
            await disk.files().write("/a", b"3")
    assert len(await disk.checkpointer.file_changes("thr_1", 0)) == 2
    assert await restore(disk) == ["/a"]
    assert tree(disk) == {"a": b"1"}


async def test_restoring_what_is_as_it_was_does_nothing(disk: Bench):
    assert await restore(disk) == []
    await disk.files().write("/a", b"1")
    await disk.files().delete("/a")
    assert await restore(disk) == []


async def test_a_link_in_the_files_place_is_somebody_elses_change(disk: Bench):
    await disk.seed("/other", b"2")
    await disk.files().write("/a", b"2")
    (disk.root / "a").unlink()
    (disk.root / "a").symlink_to("other")
    with pytest.raises(FileError):
        await restore(disk)
    assert os.readlink(disk.root / "a") == "other"


async def test_a_file_changed_while_it_is_restored_is_left_alone(
    disk: Bench, monkeypatch: pytest.MonkeyPatch
):
    await disk.seed("/a", b"1")
    await disk.files().write("/a", b"2")
    commit = disk.checkpointer.commit

    async def meanwhile(batch) -> None:
        await commit(batch)
        await anyio.Path(disk.root / "a").write_bytes(b"theirs")

    monkeypatch.setattr(disk.checkpointer, "commit", meanwhile)
    with pytest.raises(Exception, match="changed by someone else"):
        await restore(disk)
    assert tree(disk) == {"a": b"theirs"}


def a_directory(place: Path) -> None:
    place.unlink()
    place.mkdir()


def a_link(place: Path) -> None:
    place.unlink()
    place.symlink_to("b")


def a_dangling_link(place: Path) -> None:
    place.unlink()
    place.symlink_to("nowhere")


def a_large_file(place: Path) -> None:
    with place.open("wb") as file:
        file.truncate(9 << 20)


@pytest.mark.parametrize("become", [a_directory, a_link, a_dangling_link, a_large_file])
async def test_what_is_in_the_way_stays_and_the_rest_is_put_back_by_force(
    become: Callable[[Path], None], disk: Bench
):
    assert isinstance(disk.backend, DirectoryBackend)
    for name in "abc":
        await disk.seed(f"/{name}", b"old")
    since = (await disk.checkpointer.file_changes("thr_1", 0))[:1]
    for name in "abc":
        await disk.files().write(f"/{name}", b"new")
    become(disk.root / "a")
    with pytest.raises(FileError, match=r"/a cannot be put back.*repeat with force"):
        await restore(disk, since[0].seq if since else 0)
    assert (disk.root / "c").read_bytes() == b"new"
    recorded = len(await disk.checkpointer.file_changes("thr_1", 0))
    changes = [one for one in await disk.checkpointer.file_changes("thr_1", 0) if one.after_digest]
    assert await disk.backend.require_restorable(changes, force=True) == ["/a"]
    restored = await restore(disk, since[0].seq if since else 0, force=True)
    assert sorted(restored) == ["/b", "/c"]
    assert (disk.root / "c").read_bytes() == b"old"
    assert len(await disk.checkpointer.file_changes("thr_1", 0)) == recorded + 2


async def test_a_file_whose_directory_became_a_file_stays_too(disk: Bench):
    await disk.files().write("/d/a", b"1")
    await disk.files().write("/b", b"1")
    (disk.root / "d" / "a").unlink()
    (disk.root / "d").rmdir()
    (disk.root / "d").write_bytes(b"theirs")
    assert await restore(disk, force=True) == ["/b"]
    assert tree(disk) == {"d": b"theirs"}
