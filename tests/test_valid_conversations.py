"""Whatever happens in a thread, the provider is only asked what it takes.

Calls that fail, are unknown, unreadable, rejected, edited or left open; results cleared and
messages summarised; calls of a client in between, forks and new models: no request is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_agent_mcp.harness.agent import RunResult, create_agent
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import UnfinishedAnswer
from deep_agent_mcp.harness.loop.agent import Agent
from deep_agent_mcp.harness.middleware.context.context_editing import (
    ClearToolUsesEdit,
    ContextEditingMiddleware,
)
from deep_agent_mcp.harness.middleware.context.summarization import SummarizationMiddleware
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from deep_agent_mcp.harness.middleware.models.provider_features import PromptCachingMiddleware
from deep_agent_mcp.harness.middleware.todo_list import TodoListMiddleware
from deep_agent_mcp.harness.middleware.tools.tool_calls import (
    HumanInTheLoopMiddleware,
    PatchToolCallsMiddleware,
)
from deep_agent_mcp.harness.models.base import ChatModel
from deep_agent_mcp.harness.tools.tool import tool
from tests.fake_anthropic import Answer, FakeAnthropic
from tests.loop.models import call
from tests.models.calls import claude

SUMMARY = "You write summaries, and nothing else."


@tool(read_only=True)
async def look(number: int = 0) -> str:
    """Look."""
    return f"fact {number} " + "words and more words " * 60


@tool
async def fails() -> str:
    """Fail."""
    raise RuntimeError("out of order")


@tool
async def send(to: str = "nobody") -> str:
    """Send."""
    return f"sent to {to}"


CALLS: dict[str, dict[str, Any]] = {
    "look": {"name": "look", "input": {"number": 1}},
    "fails": {"name": "fails"},
    "send": {"name": "send", "input": {"to": "ann"}},
    "unknown": {"name": "no_such_tool", "input": {"x": 1}},
    "unreadable": {"name": "look", "raw": '{"number": '},
    "wrong": {"name": "look", "input": {"number": "many"}},
    "repeated": {"name": "look", "id": "toolu_same"},
    "todos": {"name": "write_todos", "input": {"todos": [{"content": "one"}]}},
    "write": {"name": "write_file", "input": {"path": "/a", "content": "text " * 200}},
    "edit": {"name": "edit_file", "input": {"path": "/a", "old_string": "", "new_string": "x"}},
}
answers = st.builds(
    lambda thinking, text, calls: Answer(thinking=thinking, text=text, tool_calls=calls),
    st.sampled_from([None, "hm", "let me see"]),
    st.sampled_from(["", "", "I look."]),
    st.lists(st.sampled_from(sorted(CALLS)).map(CALLS.__getitem__), max_size=4),
)
decisions = st.sampled_from(
    [
        {"decision": "approve"},
        {"decision": "reject", "message": "no"},
        {"decision": "respond", "message": "Ask Ann."},
        {"decision": "edit", "args": {"to": "bob"}},
        None,
    ]
)
between = st.sampled_from(["nothing", "drive", "fork", "other model", "restart"])


@st.composite
def threads(draw: st.DrawFn) -> list[tuple[str, list[Answer], list[Any]]]:
    return [
        (
            draw(between),
            draw(st.lists(answers, min_size=1, max_size=5)),
            draw(st.lists(decisions, max_size=4)),
        )
        for _ in range(draw(st.integers(2, 4)))
    ]


def agent_of(model: ChatModel, journal: MemoryCheckpointer) -> Agent:
    return create_agent(
        model,
        [look, fails, send],
        system_prompt="Work.",
        middleware=[
            FilesystemMiddleware(StateBackend()),
            PatchToolCallsMiddleware(),
            ContextEditingMiddleware([ClearToolUsesEdit(trigger=1_500, keep=2)]),
            SummarizationMiddleware(
                trigger=("tokens", 2_500), keep=("messages", 4), summary_prompt=SUMMARY
            ),
            TodoListMiddleware(),
            HumanInTheLoopMiddleware({"send": True}),
            PromptCachingMiddleware(),
        ],
        checkpointer=journal,
    )


async def answered(agent: Agent, result: RunResult, decided: list[Any]) -> RunResult:
    """Answer questions one by one; leave them open at the first None, or when nothing is left."""
    for decision in decided:
        if not result.interrupts or decision is None:
            break
        result = await agent.aresume(result.run.id, {result.interrupts[0].id: decision})
    return result


@dataclass
class Provider:
    """A fake of the API, two of its models, and the event loop that they live on."""

    api: FakeAnthropic
    models: tuple[ChatModel, ChatModel]
    portal: BlockingPortal


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with start_blocking_portal() as portal, ExitStack() as stack:
        enter = stack.enter_context
        api = enter(portal.wrap_async_context_manager(FakeAnthropic()))
        names = ("claude-sonnet-5-5", "claude-opus-4-1")
        first, second = (
            enter(portal.wrap_async_context_manager(claude(api.url, name))) for name in names
        )
        yield Provider(api, (first, second), portal)


async def lived(provider: Provider, plan: list[tuple[str, list[Answer], list[Any]]]) -> None:
    api, (first, second) = provider.api, provider.models
    summary = Answer(match=SUMMARY, text="What was: much.", repeat=True)
    journal = MemoryCheckpointer()
    agent = agent_of(first, journal)
    for number, (before, turns, decided) in enumerate(plan):
        match before:
            case "drive" if number:
                await agent.adrive([call(f"d{number}", "look")], thread_id="t")
            case "fork" if number:
                history = await agent.get_state_history("t")
                await agent.fork("t", history[len(history) // 2].id)
            case "other model":
                agent = agent_of(second, journal)
            case "restart":
                agent = agent_of(first, journal)
            case _:
                pass
        api.answers[:] = [summary, *turns, Answer(text="Done.", repeat=True)]
        result = await agent.ainvoke(f"Message {number}.", thread_id="t")
        result = await answered(agent, result, decided)
        assert [one.refused for one in api.recorded if one.refused] == []
        silent = isinstance(result.error, UnfinishedAnswer)  # it stayed so when it was asked again
        assert silent or result.run.status in ("done", "needs_approval"), result.error
    api.recorded.clear()


@settings(max_examples=10)
@given(threads())
def test_no_request_of_a_thread_is_refused(
    provider: Provider, plan: list[tuple[str, list[Answer], list[Any]]]
) -> None:
    async def bounded() -> None:
        provider.api.recorded.clear()
        with anyio.fail_after(60):
            await lived(provider, plan)

    provider.portal.call(bounded)
