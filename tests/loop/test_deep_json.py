"""What is nested too deeply to be read again becomes an error, never a part of a thread."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import pytest
from pydantic import JsonValue

from deep_agent_mcp.harness._internal.json_bounds import MAX_DEPTH, can_be_read, is_too_deep
from deep_agent_mcp.harness.agent import Agent, RunResult, create_agent
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import InvalidUpdate
from deep_agent_mcp.harness.loop.hooks.requests import Command
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

TOO_DEEP = (MAX_DEPTH + 1, 240, 900, 5_000)


class Blob(TypedDict):
    blob: NotRequired[JsonValue]


def nested(levels: int, inmost: Any = 1) -> Any:
    for number in range(levels):
        inmost = [inmost] if number % 2 else {"in": inmost}
    return inmost


@tool
async def echo(value: JsonValue) -> str:
    """Say that it was called."""
    return "called"


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncGenerator[SqliteCheckpointer]:
    async with SqliteCheckpointer(tmp_path / "journal.db") as journal:
        yield journal


def agent_with(journal: SqliteCheckpointer, one: Any, **args: Any) -> Agent:
    model = Turns(says("", call("1", one.name, **args)), says("done"))
    return create_agent(model, [one], checkpointer=journal, state_schema=Blob)


async def results_read_again(journal: SqliteCheckpointer, result: RunResult) -> list[str]:
    """Return the texts of tool results as another process finds them in the journal."""
    assert (result.run.status, result.run.reason) == ("done", None)
    fresh = create_agent(Turns(says("")), [], checkpointer=journal, state_schema=Blob)
    found = await fresh.get_state(result.run.thread_id)
    assert found is not None
    return [one.text for one in found.values["messages"] if isinstance(one, ToolMessage)]


@pytest.mark.parametrize("levels", TOO_DEEP)
async def test_a_model_is_told_that_its_arguments_are_nested_too_deeply(
    journal: SqliteCheckpointer, levels: int
) -> None:
    result = await agent_with(journal, echo, value=nested(levels - 1)).ainvoke("go")
    (text,) = await results_read_again(journal, result)
    assert "echo was not run" in text and f"more than {MAX_DEPTH} levels" in text


@pytest.mark.parametrize("inmost", [1, [], {}])
async def test_arguments_of_as_many_levels_as_there_may_be_are_read_again(
    journal: SqliteCheckpointer, inmost: Any
) -> None:
    levels = MAX_DEPTH - 1 - (inmost != 1)
    result = await agent_with(journal, echo, value=nested(levels, inmost)).ainvoke("go")
    assert await results_read_again(journal, result) == ["called"]


async def test_a_client_is_told_too(journal: SqliteCheckpointer) -> None:
    agent = create_agent(Turns(says("")), [echo], checkpointer=journal, state_schema=Blob)
    result = await agent.adrive([call("1", "echo", value=nested(MAX_DEPTH))])
    (text,) = await results_read_again(journal, result)
    assert "echo was not run" in text


@pytest.mark.parametrize("levels", TOO_DEEP)
async def test_a_result_whose_artifact_is_too_deep_is_an_error(
    journal: SqliteCheckpointer, levels: int
) -> None:
    @tool
    async def give() -> ToolResult:
        """Give."""
        return ToolResult("here", artifact=nested(levels))

    result = await agent_with(journal, give).ainvoke("go")
    (text,) = await results_read_again(journal, result)
    assert "its result cannot be shown" in text


@pytest.mark.parametrize("levels", [240, 900, 5_000])
async def test_an_update_that_is_too_deep_makes_the_calls_result_an_error(
    journal: SqliteCheckpointer, levels: int
) -> None:
    @tool
    async def write(runtime: ToolRuntime) -> Command:
        """Write."""
        said = ToolMessage(runtime.tool_call_id, "what it did")
        return Command({"blob": nested(levels), "messages": [said]})

    result = await agent_with(journal, write).ainvoke("go")
    (text,) = await results_read_again(journal, result)
    assert "'blob'" in text and "what it did" in text
    assert "blob" not in result.state


@pytest.mark.parametrize("levels", [240, 900, 5_000])
async def test_state_that_is_too_deep_is_refused(journal: SqliteCheckpointer, levels: int) -> None:
    agent = agent_with(journal, echo, value=1)
    result = await agent.ainvoke("go", thread_id="t")
    with pytest.raises(InvalidUpdate, match="'blob'"):
        await agent.update_state("t", {"blob": nested(levels)})
    assert await results_read_again(journal, result) == ["called"]


async def test_a_question_about_something_too_deep_is_an_error(journal: SqliteCheckpointer) -> None:
    @tool
    async def ask(runtime: ToolRuntime) -> str:
        """Ask."""
        return str(runtime.interrupt("This?", payload={"it": nested(MAX_DEPTH)}))

    result = await agent_with(journal, ask).ainvoke("go")
    (text,) = await results_read_again(journal, result)
    assert f"more than {MAX_DEPTH} levels" in text


async def test_a_question_that_is_no_text_is_an_error(journal: SqliteCheckpointer) -> None:
    @tool
    async def ask(runtime: ToolRuntime) -> str:
        """Ask as peers do."""
        return str(runtime.interrupt({"question": "This?"}))  # type: ignore[arg-type]

    result = await agent_with(journal, ask).ainvoke("go")
    (text,) = await results_read_again(journal, result)
    assert "a question is text, not dict; data goes into its payload" in text


def test_brackets_in_texts_are_no_levels() -> None:
    assert can_be_read(b'["' + b"[" * 5_000 + b'"]')
    assert can_be_read(b"[" + b"[]," * 5_000 + b"[]]")
    assert not can_be_read(b"[" * 1_000 + b"]" * 1_000)
    assert not is_too_deep("[" * 5_000) and not is_too_deep([[]] * 5_000)
    assert not is_too_deep(nested(MAX_DEPTH)) and is_too_deep(nested(MAX_DEPTH + 1))
    assert is_too_deep(nested(MAX_DEPTH, [])) and is_too_deep(nested(MAX_DEPTH, {}))
