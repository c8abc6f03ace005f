"""A full disk: tools that only read answer all the same, and everything else says what failed."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.base import Batch
from deep_agent_mcp.harness.errors import CheckpointError, StaleThread
from deep_agent_mcp.harness.tools.tool import ToolResult, tool
from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.settings.sources import load_settings
from tests.checkpoint.test_bad_days import small_disk
from tests.e2e.servers import call, refused, text_of
from tests.loop.models import Turns
from tests.loop.models import call as calls

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="disks are filled as POSIX systems do it"),
]

READS: dict[str, dict[str, Any]] = {
    "read_file": {"path": "/kept.txt"},
    "ls": {"path": "/"},
    "glob": {"pattern": "**/*.txt"},
    "grep": {"pattern": "precious"},
    "skill": {"name": "careful"},
}
WRITES: dict[str, dict[str, Any]] = {
    "write_file": {"path": "/new.txt", "content": "new"},
    "edit_file": {"path": "/kept.txt", "old_string": "precious", "new_string": "gone"},
    "write_todos": {"todos": [{"content": "Make room", "status": "pending"}]},
}
NOTE = "this call was answered, but it is not in the thread's history"

Full = Callable[[], Any]


@contextmanager
def mounted(_: Path) -> Generator[tuple[Path, Full]]:
    """Give a directory on a small disk, and what fills it for a while."""
    with small_disk(6_000_000) as disk:

        @contextmanager
        def full() -> Generator[None]:
            filler = disk / "filler"
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while file.write(bytes(4096)):
                    pass
            with pytest.raises(OSError, match="No space") as refusal:
                (disk / "more").write_bytes(bytes(4096))
            assert refusal.value.errno == errno.ENOSPC
            yield
            filler.unlink()
            (disk / "more").unlink()

        yield disk / "state", full


@contextmanager
def limited(folder: Path) -> Generator[tuple[Path, Full]]:
    """Give a directory, and what keeps this process from making files larger for a while."""
    import resource

    @contextmanager
    def full() -> Generator[None]:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    yield folder / "state", full


@pytest.mark.parametrize("rooted", [False, True], ids=["in the thread", "on disk"])
@pytest.mark.parametrize("disk", [mounted, limited], ids=["mounted", "limited"])
async def test_reads_answer_and_writes_are_refused_until_there_is_room(
    disk: Any, rooted: bool, tmp_path: Path
) -> None:
    skill = tmp_path / "skills" / "careful"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: careful\ndescription: Care.\n---\nTake care.\n")
    flags: dict[str, Any] = {"skills": (str(skill.parent),)}
    if rooted:
        flags["root"] = str(tmp_path / "root")
        (tmp_path / "root").mkdir()
    with disk(tmp_path) as (state, full), anyio.fail_after(60):
        settings = load_settings({"state_dir": str(state), **flags}, {})
        async with create_app(settings) as app, Client(app.server) as client:
            wrote = await call(client, "write_file", path="/kept.txt", content="precious")
            where = {"thread_id": wrote["thread_id"]}
            sound = {
                name: text_of(await client.call_tool(name, {**args, **where}))
                for name, args in READS.items()
            }
            before = await call(client, "threads", **where)
            listed = await call(client, "threads")
            with full():
                for name, args in READS.items():
                    read = await client.call_tool(name, {**args, **where})
                    text = text_of(read)
                    assert not read.is_error, text
                    shown = f"{text} {read.structured_content}"
                    assert NOTE in shown and "journal.sqlite3 could not be written" in shown
                    assert "was not begun" not in shown
                    assert text.splitlines()[:2] == sound[name].splitlines()[:2]
                    new = await client.call_tool(name, {**args, "thread_id": "new"})
                    shown = f"{text_of(new)} {new.structured_content}"
                    expected = rooted or name != "read_file"  # a new thread has no such file
                    assert new.is_error is not expected
                    assert NOTE in shown and "leave thread_id out in the next call" in shown
                for name, args in WRITES.items():
                    text = await refused(client, name, **args, **where)
                    assert "could not be written" in text and "check the disk" in text, text
                    if rooted:
                        assert [one.name for one in (tmp_path / "root").iterdir()] == ["kept.txt"]
                        assert (tmp_path / "root" / "kept.txt").read_text() == "precious"
                assert await call(client, "threads", **where) == before
                assert await call(client, "threads") == listed
            read = await client.call_tool("read_file", {**READS["read_file"], **where})
            assert "precious" in text_of(read) and NOTE not in text_of(read)
            for name, args in WRITES.items():
                await call(client, name, **args, **where)
            after = await call(client, "threads", **where)
            assert [one["goal"] for one in after["runs"]][:4] == [*[*WRITES][::-1], "read_file"]
    if rooted:
        assert (tmp_path / "root" / "kept.txt").read_text() == "gone"


class Refusing(MemoryCheckpointer):
    """Refuses every commit with an error, if there is one."""

    error: Exception | None = None

    async def commit(self, batch: Batch) -> None:
        if self.error is not None:
            raise self.error
        await super().commit(batch)


@tool(read_only=True, open_world=False)
async def look() -> str:
    """Look."""
    return "seen"


@tool(read_only=True, open_world=False)
async def shelve() -> ToolResult:
    """Look, and keep what was seen where the caller sees it."""
    return ToolResult("shelved", update={"shelf": "seen"})


@tool(read_only=True, open_world=False, once=True)
async def look_once() -> str:
    """Look at most once."""
    return "seen"


@tool(open_world=False)
async def change() -> str:
    """Change something."""
    return "changed"


def an_agent(journal: MemoryCheckpointer) -> Any:
    from typing import TypedDict

    class Shelf(TypedDict, total=False):
        shelf: str

    tools = [look, shelve, look_once, change]
    return create_agent(Turns(), tools, state_schema=Shelf, checkpointer=journal)


async def test_a_library_learns_that_what_was_read_is_not_recorded() -> None:
    journal = Refusing()
    agent = an_agent(journal)
    journal.error = CheckpointError("the disk is full. Nothing was stored.")
    result = await agent.adrive([calls("1", "look")], thread_id="t")
    assert [one.text for one in result.results] == ["seen"]
    assert result.unrecorded is journal.error and result.checkpoint is None
    assert (result.run.status, result.error) == ("done", None)
    assert await journal.threads() == [] and await journal.find_runs() == []
    journal.error = None
    result = await agent.adrive([calls("2", "look")], thread_id="t")
    assert result.unrecorded is None and result.checkpoint is not None
    assert len(result.state["messages"]) == 2


@pytest.mark.parametrize(
    ("used", "error"),
    [
        (["change"], CheckpointError("full")),
        (["look", "change"], CheckpointError("full")),
        (["shelve"], CheckpointError("full")),
        (["look_once"], CheckpointError("full")),
        (["no_such_tool"], CheckpointError("full")),
        (["look"], StaleThread("somebody was faster")),
    ],
    ids=lambda one: ", ".join(one) if isinstance(one, list) else type(one).__name__,
)
async def test_whatever_is_more_than_a_read_is_refused(used: list[str], error: Exception) -> None:
    journal = Refusing()
    agent = an_agent(journal)
    journal.error = error
    with pytest.raises(type(error)):
        await agent.adrive([calls(str(at), name) for at, name in enumerate(used)], thread_id="t")
