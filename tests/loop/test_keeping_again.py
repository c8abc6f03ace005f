"""What hooks kept is there exactly once: after a pause, a reload, and when several keep at once."""

import operator
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import anyio
import anyio.lowlevel
import pytest

from deep_agent_mcp.harness.agent import Agent, RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.base import Batch, Checkpointer
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.hooks.requests import (
    ModelHandler,
    ModelRequest,
    ModelResponse,
    Runtime,
)
from deep_agent_mcp.harness.messages.message import Usage
from deep_agent_mcp.harness.state.channels import Reducer, State
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


class Paid(TypedDict):
    paid: Annotated[NotRequired[list[str]], Reducer(operator.add, default=list[str])]


class PayingInTheWrap(AgentMiddleware):
    """Pays once, and asks before the model is called."""

    state_schema = Paid

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Pay, ask a person, then the model."""
        if not request.state.get("paid"):
            await request.runtime.keep({"paid": ["one"]})
        request.runtime.interrupt("go on?")
        return await handler(request)


class PayingInAHook(AgentMiddleware):
    """Pays once, after the model's answer."""

    state_schema = Paid

    async def after_model(self, state: State, runtime: Runtime) -> None:
        """Pay."""
        if not state.get("paid"):
            await runtime.keep({"paid": ["one"]})


class Asking(AgentMiddleware):
    """Asks after the model's answer."""

    async def after_model(self, state: State, runtime: Runtime) -> None:
        """Ask."""
        runtime.interrupt("go on?")


@tool
async def ask(runtime: ToolRuntime) -> str:
    """Ask a person."""
    return str(runtime.interrupt("go on?"))


@asynccontextmanager
async def journal_of(kind: str, path: Path) -> AsyncGenerator[Checkpointer]:
    if kind == "memory":
        yield MemoryCheckpointer()
    else:
        async with SqliteCheckpointer(path / "journal.db") as journal:
            yield journal


def paying(where: str, journal: Checkpointer) -> Agent:
    match where:
        case "wrap":
            return create_agent(
                Turns(says("hi")), middleware=[PayingInTheWrap()], checkpointer=journal
            )
        case "hook":
            users = [Asking(), PayingInAHook()]
            return create_agent(Turns(says("hi")), middleware=users, checkpointer=journal)
        case _:
            turns = Turns(says("", call("1", "ask")), says("hi"))
            return create_agent(turns, [ask], middleware=[PayingInAHook()], checkpointer=journal)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("where", ["wrap", "hook", "tool"])
async def test_the_agent_that_goes_on_after_a_pause_has_what_it_kept_once(
    kind: str, durability: Literal["sync", "async", "exit"], where: str, tmp_path: Path
) -> None:
    options = RunOptions(durability=durability)
    async with journal_of(kind, tmp_path) as journal:
        agent = paying(where, journal)
        paused = await agent.ainvoke("go", thread_id="t", options=options)
        answers = {paused.interrupts[0].id: "yes"}
        result = await agent.aresume(paused.run.id, answers, options=options)
        assert result.run.status == "done"
        assert result.state["paid"] == ["one"]
        read = await paying(where, journal).get_state("t")
        assert read.values["paid"] == ["one"]


class Slow(MemoryCheckpointer):
    """A journal that lets others run before it stores."""

    async def commit(self, batch: Batch) -> None:
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        await super().commit(batch)


async def test_what_several_tasks_keep_at_once_is_all_there() -> None:
    class Together(AgentMiddleware):
        state_schema = Paid

        async def wrap_model_call(
            self, request: ModelRequest, handler: ModelHandler
        ) -> ModelResponse:
            """Pay four times at once."""

            async def keep(number: int) -> None:
                await request.runtime.keep({"paid": [str(number)]})

            async with anyio.create_task_group() as group:
                for number in range(4):
                    group.start_soon(keep, number)
            return await handler(request)

    journal = Slow()
    agent = create_agent(Turns(says("hi")), middleware=[Together()], checkpointer=journal)
    result = await agent.ainvoke("go", thread_id="t")
    assert sorted(result.state["paid"]) == ["0", "1", "2", "3"]
    read = await create_agent(
        Turns(says("hi")), middleware=[Together()], checkpointer=journal
    ).get_state("t")
    assert sorted(read.values["paid"]) == ["0", "1", "2", "3"]


async def test_what_is_kept_after_a_resume_does_not_replace_what_was_kept_before() -> None:
    class PayingMore(AgentMiddleware):
        state_schema = Paid

        async def wrap_model_call(
            self, request: ModelRequest, handler: ModelHandler
        ) -> ModelResponse:
            """Keep two writes; in the next attempts one more each."""
            paid: list[str] = request.state.get("paid") or []
            await request.runtime.keep({"paid": [f"{len(paid)}"]})
            if not paid:
                await request.runtime.keep({"paid": ["1"]})
            return await handler(request)

    journal = MemoryCheckpointer()

    def agent() -> Agent:
        down = ModelError("down", kind="server")
        return create_agent(
            Turns(down, down, down), middleware=[PayingMore()], checkpointer=journal
        )

    failed = await agent().ainvoke("go", thread_id="t")
    await agent().aresume(failed.run.id)
    await agent().aresume(failed.run.id)
    seen: list[Any] = []

    class Seeing(AgentMiddleware):
        state_schema = Paid

        async def wrap_model_call(
            self, request: ModelRequest, handler: ModelHandler
        ) -> ModelResponse:
            """Note what is there."""
            seen.append(request.state.get("paid"))
            return await handler(request)

    last = create_agent(Turns(says("hi")), middleware=[Seeing()], checkpointer=journal)
    assert (await last.aresume(failed.run.id)).run.status == "done"
    assert seen == [["0", "1", "2", "3"]]


async def test_the_tokens_behind_what_is_kept_are_stored_with_it() -> None:
    class Summarising(AgentMiddleware):
        state_schema = Paid

        async def wrap_model_call(
            self, request: ModelRequest, handler: ModelHandler
        ) -> ModelResponse:
            """Pay a model for a summary, and keep that."""
            request.runtime.meter.before_model_call("small", 0)
            request.runtime.meter.add(Usage(input_tokens=70, output_tokens=7), "small", "small")
            await request.runtime.keep({"paid": ["a summary"]})
            stored = await journal.run(request.runtime.run_id)
            used.append(stored.used if stored else None)
            return await handler(request)

    used: list[Any] = []
    journal = MemoryCheckpointer()
    agent = create_agent(Turns(says("hi")), middleware=[Summarising()], checkpointer=journal)
    await agent.ainvoke("go")
    assert '"input_tokens":70' in str(used[0])
