"""Files in a long-term store: whose they are, what is loaded, and two writers of one file."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.backends import store_entries
from deep_agent_mcp.harness.backends.base import FileError
from deep_agent_mcp.harness.backends.store import StoreBackend
from deep_agent_mcp.harness.backends.store_entries import turn_of
from deep_agent_mcp.harness.errors import AgentBuildError, ToolError
from deep_agent_mcp.harness.store.base import Get, Item, Operation, Result, Search
from deep_agent_mcp.harness.store.memory import MemoryStore
from deep_agent_mcp.harness.store.sqlite import SqliteStore
from tests.backends.workbench import Bench

pytestmark = pytest.mark.anyio


class Watched(MemoryStore):
    """Notes the contents that are loaded."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.loaded: list[str] = []

    async def batch(self, operations: Sequence[Operation]) -> Sequence[Result]:
        self.loaded += [
            operation.key
            for operation in operations
            if isinstance(operation, Get) and operation.namespace[-1] == "file_contents"
        ]
        assert not any(
            isinstance(one, Search) and one.prefix[-1] == "file_contents" for one in operations
        )
        return await super().batch(operations)


def bench(store: MemoryStore | SqliteStore, namespace: Any = ("ann",), **options: Any) -> Bench:
    return Bench(StoreBackend(store, namespace, **options), Path("/"))


async def test_files_outlive_the_process_and_belong_to_no_thread(tmp_path: Path):
    async with SqliteStore(tmp_path / "store.db") as store:
        await bench(store).files().write("/notes/a.md", b"one\r\ntwo\r\n")
    async with SqliteStore(tmp_path / "store.db") as store:
        assert await bench(store).files().read("/notes/a.md") == b"one\r\ntwo\r\n"


async def test_an_edit_finds_text_across_crlf_and_keeps_every_other_byte():
    made = bench(MemoryStore())
    await made.seed("/f", b"\xef\xbb\xbfone\r\ntwo\r\nthree\n\0"[:-1])
    await made.call("read_file", path="/f")
    await made.call("edit_file", path="/f", old_string="one\ntwo", new_string="1\n2")
    assert await made.data("/f") == b"\xef\xbb\xbf1\r\n2\r\nthree\n"


async def test_listings_load_no_contents_and_searches_only_those_that_fit():
    store = Watched()
    made = bench(store)
    for path in ("/a.md", "/d/b.md", "/d/c.txt"):
        await made.seed(path, b"needle")
    files = made.files()
    assert len(await files.ls("/")) == 2
    assert len(await files.glob("*.md")) == 2
    assert store.loaded == []
    await files.grep("needle", glob="*.txt")
    assert store.loaded == ["/d/c.txt"]


async def test_large_trees_are_searched_in_portions(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store_entries, "_AT_ONCE", 10)
    made = bench(MemoryStore())
    for number in range(7):
        await made.seed(f"/{number}", b"needle\n" * number)
    page = await made.files().grep("needle", limit=15)
    assert len(page.matches) == 15 and page.truncated
    page = await made.files().grep("needle", limit=21)
    assert len(page.matches) == 21 and not page.truncated


async def test_each_caller_has_files_of_its_own():
    store = MemoryStore()
    made = bench(store, lambda runtime: ("users", runtime.context))
    ann, bob = (made.backend.open(replace(made.runtime, context=name)) for name in ("ann", "bob"))
    await ann.write("/f", b"ann's")
    with pytest.raises(FileError):
        await bob.read("/f")
    assert await ann.read("/f") == b"ann's"
    for name in ("", "a.b", "*", None):
        with pytest.raises(ToolError, match="not known whose"):
            made.backend.open(replace(made.runtime, context=name))


async def test_the_agents_own_store_is_used_when_none_is_given():
    made = bench(MemoryStore())
    backend = StoreBackend(None, ("ann",))
    with pytest.raises(ToolError, match="made without one"):
        backend.open(made.runtime)
    store = MemoryStore()
    await backend.open(replace(made.runtime, store=store)).write("/f", b"x")
    assert await bench(store).data("/f") == b"x"


def test_a_namespace_that_no_store_takes_is_refused_when_the_agent_is_made():
    for namespace in ((), ("a.b",), "ann", ("x" * 1_020,)):
        with pytest.raises(AgentBuildError, match="files cannot live there"):
            StoreBackend(MemoryStore(), namespace)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_writers_in_different_processes_lose_no_change(kind: str, tmp_path: Path):
    memory = MemoryStore()
    stores = [memory if kind == "memory" else SqliteStore(tmp_path / "store.db") for _ in range(3)]
    await bench(stores[0]).files().write("/n", b"0")
    outcomes: list[str] = []

    async def count(store: MemoryStore | SqliteStore) -> None:
        files = bench(store).files()
        for _ in range(8):
            data = await files.read("/n")
            try:
                await files.write("/n", b"%d" % (int(data) + 1), expected=data)
                outcomes.append("won")
            except FileError as error:
                outcomes.append(error.code)

    async with anyio.create_task_group() as group:
        for store in stores:
            group.start_soon(count, store)
    assert set(outcomes) == {"won", "changed"}
    assert int(await bench(stores[0]).data("/n")) == outcomes.count("won")
    assert await stores[0].search(("ann", "file_writers")) == []
    for store in stores:
        await store.close()


async def test_a_writer_that_died_does_not_hold_others_up_for_ever():
    now = [100.0]
    store = MemoryStore(clock=lambda: now[0], refresh_on_read=True)
    with anyio.CancelScope() as died:
        async with turn_of(store, ("ann", "file_writers"), "/f") as turn:
            turn.ended = True  # so it leaves its note behind
            died.cancel()
            await anyio.sleep(1)
    now[0] += 29
    with anyio.move_on_after(0.1) as waiting:
        await bench(store).files().write("/f", b"x")
    assert waiting.cancelled_caught
    now[0] += 2
    with anyio.fail_after(60):
        assert await bench(store).files().write("/f", b"x")


async def test_the_stale_check_sees_what_another_thread_wrote():
    store = MemoryStore()
    one, other = bench(store), bench(store)
    await one.seed("/f", b"a\n")
    await one.call("read_file", path="/f")
    await other.call("read_file", path="/f")
    await other.call("edit_file", path="/f", old_string="a", new_string="b")
    with pytest.raises(FileError, match="somebody else changed it"):
        await one.call("edit_file", path="/f", old_string="a", new_string="c")
    assert await one.data("/f") == b"b\n"


async def test_times_are_those_of_the_store_and_files_do_not_expire():
    now = [100.0]
    store = MemoryStore(clock=lambda: now[0], default_ttl=10)
    files = bench(store).files()
    await files.write("/f", b"1")
    now[0] = 200.0
    await files.write("/f", b"2")
    (entry,) = await files.ls("/")
    assert entry.modified == 200.0
    item = await store.get(("ann", "file_entries"), "/f")
    assert isinstance(item, Item) and (item.created_at, item.expires_at) == (100.0, None)


async def test_text_is_found_by_a_query_only_where_that_was_asked_for():
    store = MemoryStore()
    await bench(store).files().write("/f", b"albatross")
    assert await store.search(query="albatross") == []
    await bench(store, ("bob",), index=["content"]).files().write("/f", b"albatross")
    (item,) = await store.search(query="albatross")
    assert item.namespace == ("bob", "file_contents")


async def test_names_that_are_no_keys_work_too():
    files = bench(MemoryStore()).files()
    paths = ("/a\nb", "/" + "ä" * 900)
    for path in paths:
        await files.write(path, path.encode())
    assert {one.path for one in await files.ls("/")} == set(paths)
    for path in paths:
        assert await files.read(path) == path.encode()


async def test_a_store_that_fails_is_a_tool_error_not_a_crash(tmp_path: Path):
    store = SqliteStore(tmp_path / "store.db")
    await store.close()
    with pytest.raises(ToolError, match="closed"):
        await bench(store).files().read("/f")


async def test_a_cancelled_writer_leaves_the_file_whole(tmp_path: Path):
    async with SqliteStore(tmp_path / "store.db") as store:
        files = bench(store).files()
        await files.write("/f", b"0")
        for _ in range(5):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await files.write("/f", b"1" * 100_000, expected=b"0")
        data = await files.read("/f")
        (entry,) = await files.ls("/")
        assert entry.size == len(data)
