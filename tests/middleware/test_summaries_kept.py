"""A summary is paid for once: it stays when the model call that it was made for fails."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from deep_agent_mcp.harness.agent import Agent, create_agent
from deep_agent_mcp.harness.checkpoint.base import Checkpointer
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.hooks.requests import (
    ModelHandler,
    ModelRequest,
    ModelResponse,
)
from deep_agent_mcp.harness.memory import MemoryFiles
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage
from deep_agent_mcp.harness.middleware.context.summarization import SummarizationMiddleware
from deep_agent_mcp.harness.middleware.memory import MemoryMiddleware
from deep_agent_mcp.harness.middleware.models.model_retry import ModelRetryMiddleware
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says
from tests.skills.folders import save

pytestmark = pytest.mark.anyio

ROUNDS = 10
"""After so many the transcript is too large for the window."""


@tool
def look(number: int) -> str:
    """Look."""
    return f"fact {number} " + "x" * 1_200


class Main(Turns):
    """Looks until its window is full, then fails as often as told once a summary is in view."""

    context_window = 4_000  # type: ignore[assignment]

    def __init__(self, *failures: Exception) -> None:
        super().__init__()
        self._failures = list(failures)

    def turn(self, request: ChatRequest) -> AIMessage:
        if request.agent == "summarization":
            return says(f"SUMMARY {len(self.summaries)}")
        if any("SUMMARY" in one.text for one in request.messages):
            if self._failures:
                raise self._failures.pop(0)
            return says("done")
        number = sum(isinstance(one, AIMessage) for one in request.messages)
        return says("", call(f"c{number}", "look", number=number))

    @property
    def turns(self) -> Sequence[object]:  # type: ignore[override]
        return [self.turn] * 60

    @turns.setter
    def turns(self, value: object) -> None: ...

    @property
    def summaries(self) -> list[ChatRequest]:
        return [one for one in self.requests if one.agent == "summarization"]


def agent_of(model: Main, journal: Checkpointer, *outer: AgentMiddleware) -> Agent:
    middleware = [*outer, SummarizationMiddleware()]
    return create_agent(model, [look], middleware=middleware, checkpointer=journal)


def down() -> ModelError:
    return ModelError("the provider is down", kind="server", retryable=True)


async def test_a_resumed_run_shows_the_summary_that_was_paid_for(tmp_path: Path) -> None:
    model = Main(down(), down(), down())
    async with SqliteCheckpointer(tmp_path / "journal.db") as journal:
        failed = await agent_of(model, journal).ainvoke("go", thread_id="t")
        assert failed.run.status == "failed"
    for status in ("failed", "failed", "done"):
        async with SqliteCheckpointer(tmp_path / "journal.db") as journal:  # another process
            resumed = await agent_of(model, journal).aresume(failed.run.id)
            assert resumed.run.status == status
    assert len(model.summaries) == 1
    assert "SUMMARY 1" in model.requests[-1].messages[1].text


async def test_it_is_there_for_a_new_message_too_and_in_later_turns() -> None:
    model, journal = Main(down()), MemoryCheckpointer()
    agent = agent_of(model, journal)
    assert (await agent.ainvoke("go", thread_id="t")).run.status == "failed"
    assert (await agent.ainvoke("then?", thread_id="t")).run.answer == "done"
    result = await agent_of(model, journal).ainvoke("and now?", thread_id="t")
    assert result.run.answer == "done"
    assert len(model.summaries) == 1
    assert "SUMMARY 1" in model.requests[-1].messages[1].text


async def test_retries_of_one_call_share_it() -> None:
    model = Main(down(), down())
    retry = ModelRetryMiddleware(max_retries=2, initial_delay=0.001, jitter=False)
    result = await agent_of(model, MemoryCheckpointer(), retry).ainvoke("go")
    assert result.run.answer == "done"
    assert len(model.summaries) == 1


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_it_is_stored_whatever_the_durability(durability: str) -> None:
    from deep_agent_mcp.harness.agent import RunOptions

    model, journal = Main(down()), MemoryCheckpointer()
    options = RunOptions(durability=durability)  # type: ignore[arg-type]
    failed = await agent_of(model, journal).ainvoke("go", options=options)
    assert (await agent_of(model, journal).aresume(failed.run.id)).run.answer == "done"
    assert len(model.summaries) == 1


async def test_a_write_from_outside_begins_a_branch_without_it() -> None:
    model, journal = Main(down()), MemoryCheckpointer()
    agent = agent_of(model, journal)
    await agent.ainvoke("go", thread_id="t")
    await agent.update_state("t", {"messages": [HumanMessage("note")]})
    assert (await agent.ainvoke(None, thread_id="t")).run.answer == "done"
    again = await agent_of(model, journal).ainvoke("more", thread_id="t")
    assert again.run.answer == "done"
    assert len(model.summaries) == 2


class Keeper(AgentMiddleware):
    """Keeps what it may not."""

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Keep a message."""
        await request.runtime.keep({"messages": [HumanMessage("hello")]})
        return await handler(request)


async def test_messages_are_not_kept() -> None:
    result = await create_agent(Turns(says("hi")), middleware=[Keeper()]).ainvoke("go")
    assert "cannot keep messages" in str(result.error)


async def test_a_change_of_memory_that_is_summarised_away_is_in_that_call_too(
    tmp_path: Path,
) -> None:
    path = tmp_path / "AGENTS.md"
    path.write_text("Use tabs.")

    class Changing(Main):
        def turn(self, request: ChatRequest) -> AIMessage:
            if request.agent is not None and len(self.requests) == 2:
                save(path, "Use spaces.")
            return super().turn(request)

    model = Changing()
    memory = MemoryMiddleware(MemoryFiles([path]))
    result = await agent_of(model, MemoryCheckpointer(), memory).ainvoke("go")
    assert result.run.answer == "done"
    asked = [one for one in model.requests if one.agent != "summarization"]
    for request in asked[3:]:
        told = [section.text for section in request.system]
        told += [one.text for one in request.messages if "SUMMARY" not in one.text]
        assert "Use spaces." in "\n".join(told)
    assert len(model.summaries) == 1
