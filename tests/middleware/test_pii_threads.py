"""Threads that were stored before anything was redacted, and files that tools change."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.backends.base import FileError
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.backends.transfer import upload_files
from deep_agent_mcp.harness.checkpoint.base import Batch, Checkpointer, Interrupt
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.loop.agent import Agent
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, TextBlock, ToolMessage
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from deep_agent_mcp.harness.middleware.pii import PIIMiddleware, redact_thread
from deep_agent_mcp.harness.redaction.rules import Strategy
from deep_agent_mcp.harness.store.memory import MemoryStore
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from deep_agent_mcp.server.threads.rewinding import rewind
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

MAIL = "ann.secret@example.com"
CARD = "4111111111111111"


@tool
async def show(runtime: ToolRuntime) -> ToolResult:
    """Show a customer."""
    runtime.stream_writer({"customer": MAIL})
    return ToolResult(f"{'x' * 490} {MAIL}", artifact={MAIL: {"card": int(CARD)}})


@tool
async def ask(runtime: ToolRuntime) -> str:
    """Ask."""
    return str(runtime.interrupt(f"Is it {MAIL}?", payload={"mail": MAIL}))


@tool
async def fail() -> str:
    """Fail."""
    raise ValueError(MAIL)


def careless(journal: Checkpointer) -> Agent:
    """An agent that stores whatever it is told."""
    turns = (
        AIMessage((TextBlock(f"for {MAIL}"), call("1", "show"), call("2", "fail"))),
        says("", call("3", "write_file", path="/a.md", content=f"{MAIL} pays with {CARD}" * 300)),
        says("", call("4", "ask")),
        says(f"It was {MAIL}"),
    )
    files = FilesystemMiddleware(StateBackend())
    return create_agent(Turns(*turns), [show, ask, fail], middleware=[files], checkpointer=journal)


async def stored(journal: Checkpointer) -> Agent:
    agent = careless(journal)
    goal = f"{'Please look up the customer, and tell me how they are. ' * 2}{MAIL} is the one"
    options = RunOptions(log_events=True)
    paused = await agent.ainvoke(goal[20:], thread_id="t", options=options)
    (question,) = paused.interrupts
    done = await agent.aresume(paused.run.id, {question.id: f"yes, {MAIL}"}, options=options)
    assert done.run.status == "done"
    return agent


def rules(strategy: Strategy = "redact") -> list[Any]:
    flags: dict[str, Any] = {"apply_to_output": True, "apply_to_tool_results": True}
    kinds = ("email", "credit_card")
    return [PIIMiddleware(one, strategy=strategy, **flags) for one in kinds]


def raw(folder: Path) -> bytes:
    return b"".join(one.read_bytes() for one in sorted(folder.iterdir()) if one.is_file())


async def told(journal: Checkpointer) -> str:
    """Everything a journal tells about the thread."""
    parts: list[object] = []
    for run in await journal.find_runs(thread_id="t"):
        parts += [run, await journal.interrupts(run.id), await journal.events(run.id, limit=1_000)]
    for one in await journal.history("t"):
        parts += [one, await journal.load("t", "", one.id)]
    return repr(parts)


@pytest.mark.parametrize("strategy", get_args(Strategy))
async def test_a_redacted_thread_holds_its_secrets_no_more(
    strategy: Strategy, tmp_path: Path
) -> None:
    store = MemoryStore()
    async with SqliteCheckpointer(tmp_path / "journal.db") as journal:
        await stored(journal)
        before = await told(journal)
        assert "ann.secret" in before
        assert CARD in before
        await redact_thread(journal, "t", rules(strategy), store=store)
        await journal.vacuum()
        after = await told(journal)
        if strategy == "mask":
            assert MAIL not in after
        else:
            assert "ann." not in after  # not even a part that was cut from it
        assert CARD not in after
    assert MAIL.encode() not in raw(tmp_path)
    assert CARD.encode() not in raw(tmp_path)
    async with SqliteCheckpointer(tmp_path / "journal.db") as journal:
        state = (await careless(journal).get_state("t")).values
        messages = state["messages"]
        assert [one.type for one in messages] == [
            "human", "ai", "tool", "tool", "ai", "tool", "ai", "tool", "ai",
        ]  # fmt: skip
        assert messages[1].tool_calls[0].id == messages[2].tool_call_id
        assert len(state["files"]["/a.md"].content) > 300
        result = await careless(journal).ainvoke([HumanMessage("more")], thread_id="t")
        assert result.run.status in ("failed", "done")  # the thread goes on as before
    assert bool(await store.search()) == (strategy == "tokenize")


async def test_the_raw_file_holds_the_secret_until_then(tmp_path: Path) -> None:
    async with SqliteCheckpointer(tmp_path / "journal.db") as journal:
        await stored(journal)
    assert MAIL.encode() in raw(tmp_path)


async def test_who_speaks_decides_about_a_message_and_whole_texts_name_what_went() -> None:
    journal = MemoryCheckpointer()
    agent = create_agent(Turns(says(f"It was {MAIL}")), checkpointer=journal)
    result = await agent.ainvoke(f"Find {MAIL}", thread_id="t")
    await redact_thread(journal, "t", [PIIMiddleware("email")])
    fresh = create_agent(Turns(), checkpointer=journal)
    asked, said = (await fresh.get_state("t")).values["messages"]
    assert asked.text == "Find [REDACTED_EMAIL]"
    assert said.text == f"It was {MAIL}"
    (run,) = await journal.find_runs(thread_id="t")
    assert run.id == result.run.id
    assert (run.goal, run.answer) == ("Find [REDACTED_EMAIL]", "It was [REDACTED_EMAIL]")


async def test_what_an_event_cut_off_a_secret_goes_too() -> None:
    @tool
    async def note(runtime: ToolRuntime) -> str:
        """Note."""
        mail = "ann.secret@example.company.com"
        # Values and names in events end at 2,000 characters, here in the middle of the address.
        runtime.stream_writer(
            {"key": {f"{'k' * 1_985} {mail}": 1}, "text": f"{'t' * 1_985} {mail}"}
        )
        return "noted"

    journal = MemoryCheckpointer()
    agent = create_agent(
        Turns(says("", call("1", "note")), says("ok")), [note], checkpointer=journal
    )
    await agent.ainvoke("go", thread_id="t", options=RunOptions(log_events=True))
    before = await told(journal)
    assert "ann.secret" in before
    await redact_thread(journal, "t", rules())
    after = await told(journal)
    assert "ann." not in after
    assert "kkk" in after
    assert "ttt" in after


async def test_a_thread_that_cannot_be_redacted_stays_as_it_was() -> None:
    journal = MemoryCheckpointer()
    await stored(journal)
    before = await told(journal)

    def broken(text: str) -> list[tuple[int, int]]:
        raise ValueError(text)

    with pytest.raises(Exception, match="detector of x raised"):
        await redact_thread(journal, "t", [PIIMiddleware("x", detector=broken)])
    with pytest.raises(AgentBuildError, match="nothing was changed"):
        await redact_thread(journal, "t", [])
    await redact_thread(journal, "unknown", rules())
    assert await told(journal) == before


async def test_hashes_of_a_rewritten_thread_are_those_of_its_runs() -> None:
    journal = MemoryCheckpointer()
    await stored(journal)
    middleware = rules("hash")
    model = Turns(*[says("")] * 4, says("ok"), says("ok"))
    agent = create_agent(model, middleware=middleware, checkpointer=journal)
    shown = (await agent.ainvoke(MAIL, thread_id="t")).state["messages"]
    await redact_thread(journal, "t", middleware)
    fresh = create_agent(Turns(), middleware=middleware, checkpointer=journal)
    after = (await fresh.get_state("t")).values["messages"]
    assert [one.text for one in after] == [one.text for one in shown]


async def test_a_file_with_a_secret_is_changed_and_not_kept_in_the_journal(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "journal"
    home.mkdir()
    folder.mkdir()
    (home / "a.txt").write_text(f"mail {MAIL}\n")
    (home / "b.txt").write_text("plain\n")
    backend = DirectoryBackend(home)
    turns = (
        says("", call("1", "read_file", path="/a.txt"), call("2", "read_file", path="/b.txt")),
        says("", call("3", "edit_file", path="/a.txt", old_string="mail", new_string="Mail")),
        says("", call("4", "edit_file", path="/b.txt", old_string="plain", new_string="Plain")),
        says("ok"),
    )
    async with SqliteCheckpointer(folder / "journal.db") as journal:
        agent = create_agent(Turns(*turns), checkpointer=journal,
                             middleware=[*rules(), FilesystemMiddleware(backend)])  # fmt: skip
        result = await agent.ainvoke("go", thread_id="t")
        read = next(one for one in result.state["messages"] if isinstance(one, ToolMessage))
        assert "[REDACTED_EMAIL]" in read.text
        assert (home / "a.txt").read_text() == f"Mail {MAIL}\n"
        first, second = await journal.file_changes("t", 0)  # newest first
        assert (first.path, first.before) == ("/b.txt", b"plain\n")
        assert second.before == b"mail [REDACTED_EMAIL]\n"
        undo: dict[str, Any] = {"thread_id": "t", "run_id": result.run.id, "checkpointer": journal}
        # Its redacted content is never put back; the other file's is.
        with pytest.raises(FileError, match=r"a\.txt"):
            await backend.restore([first, second], **undo)
        await backend.restore([first], **undo)
        assert (home / "b.txt").read_text() == "plain\n"
    assert MAIL.encode() not in raw(folder)


@pytest.mark.parametrize("own", [True, False], ids=["with rules of its own", "without"])
async def test_old_contents_of_a_subagents_files_are_redacted_by_its_rules(
    own: bool, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "a.txt").write_text(f"mail {MAIL} host 203.0.113.77\n")
    (home / "b.txt").write_text("plain host 203.0.113.77\n")
    files = FilesystemMiddleware(DirectoryBackend(home))
    journal = MemoryCheckpointer()
    read = says("", call("1", "read_file", path="/a.txt"))
    edit = says("", call("2", "edit_file", path="/a.txt", old_string="mail", new_string="Mail"))
    child = create_agent(
        Turns(read, edit, says("ok")),
        middleware=[PIIMiddleware("ip", apply_to_tool_results=True), files],
        checkpointer=journal,
    )

    @tool
    async def delegate(runtime: ToolRuntime) -> str:
        """Delegate."""
        return (await runtime.run_subagent(child, "edit it")).text

    change = call("5", "edit_file", path="/b.txt", old_string="plain", new_string="Plain")
    turns = (
        says("", call("3", "delegate")),
        says("", call("4", "read_file", path="/b.txt")),
        says("", change),
        says("ok"),
    )
    rules_of_main = rules() if own else []
    agent = create_agent(
        Turns(*turns), [delegate], middleware=[*rules_of_main, files], checkpointer=journal
    )
    await agent.ainvoke("go", thread_id="t")
    main, below = await journal.file_changes("t", 0)  # newest first
    assert main.before == b"plain host 203.0.113.77\n"  # the rules of a subagent are its own
    mail = "[REDACTED_EMAIL]" if own else MAIL
    assert below.before == f"mail {mail} host [REDACTED_IP]\n".encode()


async def test_a_rewind_blames_nobody_for_a_content_in_between_that_is_stored_redacted(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    backend = DirectoryBackend(home)
    write = [call(f"{n}", "write_file", path="/a.txt", content=f"{n}, {MAIL}") for n in range(2)]
    agent = create_agent(
        Turns(*(says("", one) for one in write), says("ok")),
        middleware=[
            PIIMiddleware("email", apply_to_tool_results=True),
            FilesystemMiddleware(backend),
        ],
    )
    await agent.ainvoke("go", thread_id="t")
    start = (await agent.get_state_history("t"))[-1]
    where: Any = {"run_id": "run_2", "advice": ""}
    with pytest.raises(FileError, match=r"unknown whether .* changed /a\.txt") as error:
        await rewind(agent, backend, "t", start.id, force=False, **where)
    assert "stored redacted" in str(error.value) and "Nothing was put back" in str(error.value)
    assert (await rewind(agent, backend, "t", start.id, force=True, **where)).files == ["/a.txt"]
    assert not (home / "a.txt").exists()


async def test_old_contents_are_redacted_when_files_change_between_runs_too(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in "ab":
        (home / f"{name}.txt").write_text(f"mail {MAIL}\n")
    backend, journal = DirectoryBackend(home), MemoryCheckpointer()
    turns = (
        says("", call("1", "write_file", path="/new.txt", content="plain")),
        says("ok"),
    )
    agent = create_agent(
        Turns(*turns),
        middleware=[*rules("hash"), FilesystemMiddleware(backend)],
        checkpointer=journal,
    )
    await agent.ainvoke("go", thread_id="t")
    start = (await agent.get_state_history("t"))[-1]
    (home / "new.txt").write_text(f"theirs, {MAIL}")
    (done,) = await upload_files(agent, "t", {"/a.txt": b"new"})
    assert done.ok
    where = {"run_id": "run_2", "force": True, "advice": ""}
    done = await rewind(agent, backend, "t", start.id, **where)
    assert done.files == ["/new.txt"] and done.left == ["/a.txt"]
    assert (home / "a.txt").read_text() == "new"  # what is stored redacted is never put back
    kept = {one.path: one.before for one in await journal.file_changes("t", 0) if one.before}
    assert kept["/a.txt"] == b"mail [REDACTED_EMAIL]\n"
    assert kept["/new.txt"] == b"theirs, [REDACTED_EMAIL]"


TEN_DIGITS = r"\b\d{10}\b"  # as phones have, and times


@pytest.mark.parametrize("everywhere", [False, True], ids=["input only", "everywhere"])
async def test_a_pattern_of_ten_digits_leaves_the_times_of_files(everywhere: bool) -> None:
    own = PIIMiddleware(
        "phone", detector=TEN_DIGITS, apply_to_output=everywhere, apply_to_tool_results=everywhere
    )
    turns = (
        says("", call("1", "write_file", path="/a.txt", content="call 0123456789")),
        says("", call("2", "task", description="read it")),
        says("ok"),
        says("done"),
    )
    model = Turns(*turns)
    agent = create_deep_agent(model, middleware=[own], checkpointer=MemoryCheckpointer())
    result = await agent.ainvoke("go", thread_id="t")
    texts = [one.text for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert len(texts) == 2 and not any("did not finish" in one for one in texts), texts
    content = result.state["files"]["/a.txt"].content
    assert content == ("call [REDACTED_PHONE]" if everywhere else "call 0123456789")


async def test_the_times_of_decisions_stay_when_a_thread_is_redacted_later() -> None:
    journal = MemoryCheckpointer()
    note = Interrupt(
        "dec_1", "t", "decisions", "", "run_1", "decision", ("main",), "was approved",
        {"at": 1795895500.03, "by": "0123456789"}, {}, answered=True,
    )  # fmt: skip
    await create_agent(Turns(says("ok")), checkpointer=journal).ainvoke("go", thread_id="t")
    await journal.commit(Batch("t", interrupts=[note]))
    own = PIIMiddleware("phone", detector=TEN_DIGITS, apply_to_tool_results=True)
    await redact_thread(journal, "t", [own])
    (kept,) = await journal.interrupts("run_1")
    assert kept.payload == {"at": 1795895500.03, "by": "[REDACTED_PHONE]"}
