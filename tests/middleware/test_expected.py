"""What people expect of approvals, long threads, redaction and todo lists."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import CheckpointError, InvalidAnswer
from deep_agent_mcp.harness.loop.run.interrupts import InterruptOnConfig
from deep_agent_mcp.harness.messages.message import HumanMessage, ToolMessage
from deep_agent_mcp.harness.middleware.context.summarization import SummarizationMiddleware
from deep_agent_mcp.harness.middleware.pii import PIIMiddleware
from deep_agent_mcp.harness.middleware.tools.tool_calls import HumanInTheLoopMiddleware
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says
from tests.middleware.support import loops
from tests.middleware.test_long_runs import REQUEST, Main, look, looks
from tests.middleware.test_summarization import Summariser, assert_paired, updates
from tests.middleware.test_summarization import call as ask

pytestmark = pytest.mark.anyio


async def test_a_tool_that_may_only_be_rejected_is_not_run_by_way_of_an_edit() -> None:
    ran: list[str] = []

    @tool
    async def read(path: str) -> str:
        """Read."""
        ran.append(f"read {path}")
        return "text"

    @tool
    async def delete(path: str) -> str:
        """Delete."""
        ran.append(f"delete {path}")
        return "gone"

    gate = HumanInTheLoopMiddleware({"read": True, "delete": InterruptOnConfig(("reject",))})
    model = Turns(says("", call("1", "read", path="/a")), says("done"))
    agent = create_agent(model, [read, delete], middleware=[gate])
    first = await agent.ainvoke("go")
    (question,) = first.interrupts
    edit: Any = {"decision": "edit", "tool": "delete", "args": {"path": "/a"}}
    second = await agent.aresume(first.run.id, {question.id: edit})
    (again,) = second.interrupts
    assert (again.payload["tool"], ran) == ("delete", [])
    for decision in ({"decision": "approve"}, edit, {"decision": "respond", "message": "ok"}):
        with pytest.raises(InvalidAnswer, match="Nothing was stored"):
            await agent.aresume(first.run.id, {again.id: decision})
    result = await agent.aresume(first.run.id, {again.id: {"decision": "reject"}})
    assert (result.run.status, ran) == ("done", [])


async def test_beside_a_summary_no_result_is_shown_whose_call_is_gone() -> None:
    """The summary's own work: no other middleware repairs the transcript here."""
    lost = ToolMessage("lost", "whose call is gone", "look")
    owned = [says("", call("owned", "look")), lost, ToolMessage("owned", "here it is", "look")]
    messages = [HumanMessage("go"), *loops(28), *owned]
    sent, response = await ask(SummarizationMiddleware(), messages, model=Summariser())
    chunks = updates(response)["summaries"]
    again, _ = await ask(SummarizationMiddleware(), messages, chunks, model=Summariser())
    for request in (sent, again):
        assert_paired(request.messages)
        told = [one.text for one in request.messages if isinstance(one, ToolMessage)]
        assert told[-1] == "here it is"


async def test_results_of_earlier_turns_are_redacted_as_well_as_the_newest() -> None:
    journal = MemoryCheckpointer()

    @tool
    async def lookup(name: str) -> str:
        """Look up."""
        return f"{name}@example.com"

    turns = [
        says("", call("1", "lookup", name="old")),
        says("", call("2", "lookup", name="older")),
        says("ok"),
    ]
    await create_agent(Turns(*turns), [lookup], checkpointer=journal).ainvoke("go", thread_id="t")
    model = Turns(*turns, says("", call("3", "lookup", name="new")), says("ok"))
    middleware = [PIIMiddleware("email", apply_to_tool_results=True)]
    agent = create_agent(model, [lookup], middleware=middleware, checkpointer=journal)
    await agent.ainvoke("again", thread_id="t")
    told = [one.text for one in model.requests[-1].messages if isinstance(one, ToolMessage)]
    assert told == ["[REDACTED_EMAIL]"] * 3
    assert "@example.com" not in repr(model.requests)


async def test_a_todo_list_outlives_the_summary_of_the_call_that_wrote_it() -> None:
    wrote = says("", call("t", "write_todos", todos=[{"content": "Feed the cat"}]))
    model = Main(wrote, *looks(12), says("done"))
    result = await create_deep_agent(model, [look(9_000)]).ainvoke(REQUEST)
    assert result.run.status == "done", result.error
    assert model.summarised
    *_, last = model.asked
    calls = [one for message in last.messages for one in getattr(message, "tool_calls", ())]
    assert not any(one.name == "write_todos" for one in calls), "the summary took it"
    shown = [one for one in last.messages if "[ ] Feed the cat" in one.text]
    assert len(shown) == 1


async def test_the_history_of_a_long_thread_is_listed_without_reading_a_state(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    async with SqliteCheckpointer(path) as journal:
        model = Turns(*looks(30), says("done"))
        agent = create_agent(model, [look(2_000)], checkpointer=journal)
        await agent.ainvoke("go", thread_id="t")
        listed = await agent.get_state_history("t", limit=50)
    with closing(sqlite3.connect(path)) as file, file:
        for table in ("checkpoints", "blobs", "pages", "snapshots"):
            file.execute(f"UPDATE {table} SET body = zeroblob(0)")
    async with SqliteCheckpointer(path) as journal:
        agent = create_agent(Turns(), checkpointer=journal)
        again = await agent.get_state_history("t", limit=50)
        assert [one.id for one in again] == [one.id for one in listed]
        assert len(again) == 50
        with pytest.raises(CheckpointError):
            await agent.get_state("t")
