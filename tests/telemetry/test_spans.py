"""What a person sees of a run in a tracing tool."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from opentelemetry.trace import StatusCode

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.base import Checkpointer
from deep_agent_mcp.harness.checkpoint.conformance import verify
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import CheckpointError, ModelError, ToolError
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.hooks.decorators import before_model
from deep_agent_mcp.harness.loop.run.context import RunControl
from deep_agent_mcp.harness.messages.message import AIMessage, TextBlock, Usage
from deep_agent_mcp.harness.middleware import (
    HumanInTheLoopMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    PIIMiddleware,
)
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.subagents.background.launcher import BackgroundSubAgents
from deep_agent_mcp.harness.subagents.definitions import SubAgent
from deep_agent_mcp.harness.telemetry import TracedCheckpointer
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.loop.models import Turns, call, says
from tests.telemetry.support import Recorded, attributes_of

pytestmark = pytest.mark.anyio

SECRET = "the launch code is 0000"


@tool
def look(place: str) -> str:
    """Look at a place."""
    if place == "nowhere":
        raise ValueError(f"no such place: {place}")
    return f"seen {place}"


def agent_of(recorded: Recorded, model: Any, *tools: Any, middleware: Any = (), **options: Any):
    return create_agent(
        model, tools or [look], middleware=[*middleware, recorded.middleware], **options
    )


async def test_a_run_is_a_tree_of_model_calls_and_tool_calls():
    recorded = Recorded()
    usage = Usage(10, 20, cache_read_tokens=5, cache_write_tokens=3)
    answer = AIMessage(
        (TextBlock("done"),), model="turns:test-2", stop_reason="end_turn", usage=usage
    )
    model = Turns(says("", call("c1", "look", place="here")), answer)
    result = await agent_of(recorded, model, name="scout").ainvoke("go", thread_id="thr_1")
    assert result.run.status == "done"
    assert recorded.tree() == [
        "invoke_agent scout",
        "  chat test",
        "  execute_tool look",
        "  chat test",
    ]
    run = attributes_of(recorded.one("invoke_agent scout"))
    assert run == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "scout",
        "gen_ai.conversation.id": "thr_1",
        "deep_agent.agent.path": ("scout",),
        "deep_agent.run.id": result.run.id,
        "deep_agent.run.kind": "delegate",
        "deep_agent.run.status": "done",
        "deep_agent.run.attempt": 1,
    }
    chat = recorded.named("chat test")[1]
    assert chat.kind.name == "CLIENT"
    told = attributes_of(chat)
    assert told.pop("gen_ai.response.time_to_first_chunk") > 0
    assert told == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "turns",
        "gen_ai.request.model": "test",
        "gen_ai.response.model": "test-2",
        "gen_ai.response.finish_reasons": ("end_turn",),
        "gen_ai.usage.input_tokens": 18,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 5,
        "gen_ai.usage.cache_creation.input_tokens": 3,
        "gen_ai.agent.name": "scout",
        "gen_ai.conversation.id": "thr_1",
        "deep_agent.run.id": result.run.id,
    }
    assert attributes_of(recorded.one("execute_tool look")) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.agent.name": "scout",
        "gen_ai.conversation.id": "thr_1",
        "deep_agent.run.id": result.run.id,
        "deep_agent.tool.outcome": "ok",
    }
    assert all(one.status.status_code is StatusCode.UNSET for one in recorded.spans)


async def test_a_run_stands_below_the_span_it_is_started_in_and_outlives_it():
    recorded = Recorded()
    agent = agent_of(recorded, Turns(says("done")))
    tracer = recorded.tracers.get_tracer("test")
    done = anyio.Event()

    async def run() -> None:
        await agent.ainvoke("go")
        done.set()

    async with anyio.create_task_group() as group:
        with tracer.start_as_current_span("request"):
            group.start_soon(run)
        await done.wait()
    assert recorded.tree() == ["request", "  invoke_agent agent", "    chat test"]
    request, run_span = recorded.one("request"), recorded.one("invoke_agent agent")
    assert request.end_time is not None
    assert run_span.end_time is not None
    assert request.end_time < run_span.end_time


async def test_parallel_subagents_each_nest_below_their_call():
    recorded = Recorded()

    def main(request: Any) -> AIMessage:
        if request.agent == "main":
            if len(request.messages) > 2:
                return says("both are back")
            return says(
                "",
                call("c1", "task", description="go east", subagent_type="scout"),
                call("c2", "task", description="go west", subagent_type="scout"),
            )
        if request.messages[-1].type == "human":
            return says("", call(f"in_{request.messages[-1].text[-4:]}", "look", place="there"))
        return says("back")

    agent = create_deep_agent(
        Turns(main, main, main),
        [look],
        subagents=[SubAgent(name="scout", description="Looks.", system_prompt="Look.")],
        middleware=[recorded.middleware],
    )
    result = await agent.ainvoke("look around")
    assert result.run.answer == "both are back"
    below = [
        "  execute_tool task",
        "    invoke_agent scout",
        "      chat test",
        "      execute_tool look",
        "      chat test",
    ]
    assert recorded.tree() == [
        "invoke_agent main",
        "  chat test",
        *below,
        *below,
        "  chat test",
    ]
    for way, task in (("east", "c1"), ("west", "c2")):
        (inner,) = [
            one
            for one in recorded.named("execute_tool look")
            if attributes_of(one)["gen_ai.tool.call.id"] == f"in_{way}"
        ]
        scout = recorded.parent_of(inner)
        assert scout is not None
        assert attributes_of(scout)["deep_agent.agent.path"] == ("main", task, "scout")
        assert attributes_of(scout)["deep_agent.namespace"].startswith(f"task:{task}@")
        above = recorded.parent_of(scout)
        assert above is not None
        assert scout.end_time is not None
        assert above.end_time is not None
        assert scout.end_time <= above.end_time


async def test_each_attempt_of_a_retried_model_call_and_each_fallback_has_a_span():
    recorded = Recorded(capture_content=True)
    busy = ModelError("try later", kind="overloaded", retryable=True)

    class Named(Turns):
        def __init__(self, name: str, *turns: Any) -> None:
            super().__init__(*turns)
            self.name = name

    model = Named("acme:small", busy)
    other = Named("umbrella:big", says("done"))
    retry = ModelRetryMiddleware(1, initial_delay=0, on_failure="error")
    agent = agent_of(recorded, model, middleware=[ModelFallbackMiddleware(other), retry])
    result = await agent.ainvoke("go")
    assert result.run.status == "done"
    assert recorded.tree() == [
        "invoke_agent agent", "  chat small", "  chat small", "  chat big"
    ]  # fmt: skip
    failed = recorded.named("chat small")
    assert [attributes_of(one)["error.type"] for one in failed] == ["overloaded", "overloaded"]
    assert [one.status.description for one in failed] == ["try later", "try later"]
    (event,) = failed[0].events
    assert event.name == "exception"
    assert event.attributes is not None
    assert event.attributes["exception.type"] == "ModelError"
    assert event.attributes["exception.message"] == "try later"
    assert "models.py" in str(event.attributes["exception.stacktrace"])
    assert recorded.one("invoke_agent agent").status.status_code is StatusCode.UNSET


async def test_a_run_that_fails_says_why():
    recorded = Recorded(capture_content=True)
    agent = agent_of(recorded, Turns(ModelError("no key", kind="auth")))
    result = await agent.ainvoke("go")
    assert result.run.status == "failed"
    run = recorded.one("invoke_agent agent")
    assert run.status.status_code is StatusCode.ERROR
    assert run.status.description == "no key"
    assert attributes_of(run)["deep_agent.run.status"] == "failed"
    assert attributes_of(recorded.one("chat test"))["error.type"] == "auth"


async def test_a_subagent_that_fails_is_marked_and_its_run_goes_on():
    recorded = Recorded()

    def turn(request: Any) -> AIMessage:
        if request.agent != "main":
            raise ModelError("too much", kind="overflow")
        if request.messages[-1].type == "human":
            return says("", call("c1", "task", description="x", subagent_type="general-purpose"))
        return says("done without it")

    agent = create_deep_agent(Turns(turn, turn), middleware=[recorded.middleware])
    result = await agent.ainvoke("go")
    assert result.run.answer == "done without it"
    helper = recorded.one("invoke_agent general-purpose")
    assert helper.status.status_code is StatusCode.ERROR
    assert attributes_of(recorded.one("execute_tool task"))["deep_agent.tool.outcome"] == "error"
    assert recorded.one("invoke_agent main").status.status_code is StatusCode.UNSET
    durations = [one for one, _ in recorded.points("gen_ai.invoke_agent.duration")]
    assert [(one["gen_ai.agent.name"], "error.type" in one) for one in durations] == [
        ("general-purpose", True), ("main", False)
    ]  # fmt: skip


async def test_a_background_task_is_accepted_below_its_call_and_linked_to_that():
    recorded = Recorded()
    asked = anyio.Event()

    def turn(request: Any) -> AIMessage:
        if request.agent != "main":
            asked.set()
            return says("found it")
        if request.messages[-1].type == "human":
            start = call("c1", "start_task", description="x", subagent_type="general-purpose")
            return says("", start)
        return says("started")

    journal = TracedCheckpointer(MemoryCheckpointer(), recorded.middleware)
    async with BackgroundSubAgents(journal) as background:
        agent = create_deep_agent(
            Turns(turn, turn), middleware=[recorded.middleware], background=background
        )
        await agent.ainvoke("go")
        with anyio.fail_after(60):
            await asked.wait()
    accepted, worked = recorded.named("invoke_agent general-purpose")
    above = recorded.parent_of(accepted)
    assert above is not None
    assert above.name == "execute_tool start_task"
    assert worked.parent is None
    assert [one.context for one in worked.links] == [accepted.context]
    assert "chat test" in [one.name for one in recorded.spans if recorded.parent_of(one) is worked]


async def test_a_background_task_that_is_left_has_no_open_span_and_goes_on_linked_to_it():
    recorded = Recorded()
    asked, left = anyio.Event(), anyio.Event()

    async def stream(request: Any) -> AsyncGenerator[AIMessage]:
        if request.agent != "main":
            asked.set()
            if not left.is_set():
                await anyio.sleep_forever()
            yield says("found it")
        elif request.messages[-1].type == "human":
            start = call("c1", "start_task", description="x", subagent_type="general-purpose")
            yield says("", start)
        else:
            yield says("started")

    model = Turns()
    model.stream = stream
    journal = TracedCheckpointer(MemoryCheckpointer(), recorded.middleware)
    with anyio.fail_after(60):
        for _ in range(2):
            async with BackgroundSubAgents(journal) as background:
                agent = create_deep_agent(
                    model, middleware=[recorded.middleware], background=background
                )
                if not left.is_set():
                    await agent.ainvoke("go", thread_id="t")
                    await asked.wait()
                ((task_id, _),) = (await agent.get_state("t")).values["background_tasks"].items()
                await background.wait([f"t.{task_id}"], 15 if left.is_set() else 0)
            assert not recorded.middleware.spans._legs
            left.set()
    assert {value for _, value in recorded.points("deep_agent.runs.active")} == {0}
    _, first, second = recorded.named("invoke_agent general-purpose")
    assert [one.context for one in second.links] == [first.context]


async def test_tool_calls_say_how_they_ended():
    recorded = Recorded()

    @tool
    def strict() -> str:
        """Refuse."""
        raise ToolError("not today")

    calls = [
        call("c1", "look", place="here"),
        call("c2", "look", place="nowhere"),
        call("c3", "strict"),
        call("c4", "secret"),
        call("c5", "made_up_by_a_model"),
        call("c6", "look"),
    ]

    @tool
    def secret() -> str:
        """Tell."""
        return SECRET

    policy = Policy([Rule(tool="secret", action="deny", reason="secret")])
    model = Turns(says("", *calls), says("done"))
    agent = agent_of(recorded, model, look, strict, secret, policy=policy)
    assert (await agent.ainvoke("go")).run.status == "done"
    ended = {
        attributes_of(one)["gen_ai.tool.call.id"]: (
            one.name,
            attributes_of(one)["deep_agent.tool.outcome"],
            attributes_of(one).get("error.type"),
            one.status.status_code.name,
        )
        for one in recorded.spans
        if one.name.startswith("execute_tool")
    }
    assert ended == {
        "c1": ("execute_tool look", "ok", None, "UNSET"),
        "c2": ("execute_tool look", "error", "ValueError", "ERROR"),
        "c3": ("execute_tool strict", "error", "ToolError", "ERROR"),
        "c4": ("execute_tool secret", "refused", None, "UNSET"),
        "c5": ("execute_tool", "error", "tool_error", "ERROR"),
        "c6": ("execute_tool look", "error", "tool_error", "ERROR"),
    }


async def test_an_approval_ends_one_leg_and_the_answer_begins_the_next_linked_to_it():
    recorded = Recorded()
    journal = TracedCheckpointer(MemoryCheckpointer(), recorded.middleware)
    model = Turns(says("", call("c1", "look", place="here")), says("done"))
    gate = HumanInTheLoopMiddleware({"look": True})
    agent = agent_of(recorded, model, middleware=[gate], checkpointer=journal)
    waits = await agent.ainvoke("go")
    assert recorded.tree() == ["invoke_agent agent", "  chat test", "  execute_tool look"]
    (first,) = recorded.named("invoke_agent agent")
    assert attributes_of(first)["deep_agent.run.status"] == "needs_approval"
    asked = recorded.one("execute_tool look")
    assert attributes_of(asked)["deep_agent.tool.outcome"] == "waiting"
    assert {one.status.status_code for one in recorded.spans} == {StatusCode.UNSET}
    await agent.aresume(waits.run.id, {waits.interrupts[0].id: {"decision": "reject"}})
    _, second = recorded.named("invoke_agent agent")
    assert [one.context for one in second.links] == [first.context]
    told = attributes_of(second)
    assert (told["deep_agent.run.status"], told["deep_agent.run.attempt"]) == ("done", 2)
    assert told["deep_agent.approval.wait"] >= 0
    outcomes = [
        attributes_of(one)["deep_agent.tool.outcome"] for one in recorded.named("execute_tool look")
    ]
    assert outcomes == ["waiting", "rejected"]
    ((decided, (count, _)),) = recorded.points("deep_agent.approval.duration")
    assert (decided, count) == ({"deep_agent.approval.decision": "reject"}, 1)


async def test_how_long_an_answer_took_is_known_after_a_restart():
    before, after = Recorded(), Recorded()
    journal = MemoryCheckpointer()
    model = Turns(says("", call("c1", "look", place="here")), says("done"))
    gate = HumanInTheLoopMiddleware({"look": True})
    waits = await agent_of(before, model, middleware=[gate], checkpointer=journal).ainvoke("go")
    await anyio.sleep(0.05)
    traced = TracedCheckpointer(journal, after.middleware)
    later = agent_of(after, model, middleware=[gate], checkpointer=traced)
    await later.aresume(waits.run.id, {waits.interrupts[0].id: {"decision": "approve"}})
    run = after.one("invoke_agent agent")
    assert attributes_of(run)["deep_agent.approval.wait"] >= 0.05
    assert attributes_of(run)["deep_agent.run.id"] == waits.run.id
    assert not run.links


async def test_a_question_below_a_subagent_is_no_error_anywhere():
    recorded = Recorded()
    model = Turns(
        lambda request: (
            says("", call("c1", "task", description="look", subagent_type="general-purpose"))
            if request.agent == "main"
            else says("", call("c2", "look", place="here"))
        )
    )
    agent = create_deep_agent(
        model, [look], interrupt_on={"look": True}, middleware=[recorded.middleware]
    )
    assert (await agent.ainvoke("go")).run.status == "needs_approval"
    assert recorded.tree() == [
        "invoke_agent main",
        "  chat test",
        "  execute_tool task",
        "    invoke_agent general-purpose",
        "      chat test",
        "      execute_tool look",
    ]
    assert {one.status.status_code for one in recorded.spans} == {StatusCode.UNSET}


async def test_a_cancelled_run_ends_its_spans_and_has_not_failed():
    recorded = Recorded()
    model = Turns(says("never"))
    model.gate = anyio.Event()
    control = RunControl()
    agent = agent_of(recorded, model)

    async def cancel() -> None:
        await model.asked.wait()
        control.cancel("a person")

    async with anyio.create_task_group() as group:
        group.start_soon(cancel)
        await agent.ainvoke("go", options=RunOptions(control=control))
    assert recorded.tree() == ["invoke_agent agent", "  chat test"]
    assert attributes_of(recorded.one("chat test"))["deep_agent.cancelled"] is True
    run = recorded.one("invoke_agent agent")
    assert attributes_of(run)["deep_agent.run.status"] == "cancelled"
    assert {one.status.status_code for one in recorded.spans} == {StatusCode.UNSET}


async def test_a_torn_down_run_ends_its_spans_too():
    recorded = Recorded()
    model = Turns(says("never"))
    model.gate = anyio.Event()
    agent = agent_of(recorded, model)
    async with anyio.create_task_group() as group:
        group.start_soon(agent.ainvoke, "go")
        await model.asked.wait()
        group.cancel_scope.cancel()
    run = recorded.one("invoke_agent agent")
    assert attributes_of(run)["deep_agent.run.status"] == "running"
    assert recorded.points("deep_agent.runs.active") == [({"gen_ai.agent.name": "agent"}, 0)]


async def test_a_run_that_meets_a_limit_names_it_without_capturing_contents_too():
    recorded = Recorded()
    model = Turns(*[says("", call(f"c{n}", "look", place="here")) for n in range(5)])
    agent = agent_of(recorded, model)
    result = await agent.ainvoke("go", options=RunOptions(limits=Limits(model_calls=2)))
    assert result.run.status == "failed"
    assert recorded.one("invoke_agent agent").status.status_code is StatusCode.ERROR
    stopped = recorded.named("chat test")[-1]
    assert attributes_of(stopped)["error.type"] == "limit_model_calls"
    assert "limit" in str(stopped.status.description)


async def test_a_streamed_run_has_the_same_spans():
    recorded = Recorded()
    model = Turns(says("", call("c1", "look", place="here")), says("done"))
    agent = agent_of(recorded, model)
    modes = ["messages", "updates"]
    async for _ in agent.astream("go", modes=modes):  # type: ignore[arg-type]
        pass
    assert recorded.tree() == [
        "invoke_agent agent", "  chat test", "  execute_tool look", "  chat test"
    ]  # fmt: skip


def test_a_run_without_an_event_loop_has_the_same_spans():
    recorded = Recorded()
    model = Turns(says("", call("c1", "look", place="here")), says("done"))
    assert agent_of(recorded, model).invoke("go").run.status == "done"
    assert recorded.tree() == [
        "invoke_agent agent", "  chat test", "  execute_tool look", "  chat test"
    ]  # fmt: skip


async def test_spans_of_a_tool_stand_below_its_call():
    recorded = Recorded()
    tracer = recorded.tracers.get_tracer("tool")

    @tool
    def plain() -> str:
        """Work in a thread."""
        with tracer.start_as_current_span("in a thread"):
            return "done"

    @tool
    async def quick(runtime: ToolRuntime) -> str:
        """Work on the loop."""
        with tracer.start_as_current_span("on the loop"):
            return "done"

    model = Turns(says("", call("c1", "plain"), call("c2", "quick")), says("done"))
    await agent_of(recorded, model, plain, quick).ainvoke("go")
    below = {
        one.name: above.name
        for one in recorded.spans
        if (above := recorded.parent_of(one)) is not None
    }
    assert below["in a thread"] == "execute_tool plain"
    assert below["on the loop"] == "execute_tool quick"


# --- commits -------------------------------------------------------------------------------


async def test_commits_stand_below_whoever_they_are_for():
    recorded = Recorded()
    journal = TracedCheckpointer(MemoryCheckpointer(), recorded.middleware)

    def main(request: Any) -> AIMessage:
        if request.agent == "main" and request.messages[-1].type == "human":
            return says("", call("c1", "task", description="x", subagent_type="general-purpose"))
        return says("done")

    agent = create_deep_agent(
        Turns(main, main), middleware=[recorded.middleware], checkpointer=journal
    )
    result = await agent.ainvoke("go", thread_id="thr_1")
    assert recorded.tree(without=()) == [
        "invoke_agent main",
        "  commit",
        "  chat test",
        "  commit",
        "  execute_tool task",
        "    commit",
        "    invoke_agent general-purpose",
        "      chat test",
        "      commit",
        "      commit",
        "  commit",
        "  chat test",
        "  commit",
        "  commit",
    ]
    first = attributes_of(recorded.named("commit")[0])
    assert first["deep_agent.checkpoint.author"] == "input"
    assert first["deep_agent.checkpoint.step"] == 0
    assert first["deep_agent.run.id"] == result.run.id
    ids = [attributes_of(one).get("deep_agent.checkpoint.id") for one in recorded.named("commit")]
    assert result.checkpoint is not None
    assert result.checkpoint.id in ids


async def test_a_commit_that_fails_is_marked_and_so_is_its_run():
    recorded = Recorded(capture_content=True)

    class Full(MemoryCheckpointer):
        async def commit(self, batch: Any) -> None:
            if any(one.author == "model" for one in batch.checkpoints):
                raise CheckpointError("the disk is full")
            await super().commit(batch)

    journal = TracedCheckpointer(Full(), recorded.middleware)
    result = await agent_of(recorded, Turns(says("done")), checkpointer=journal).ainvoke("go")
    assert result.run.status == "failed"
    (failed,) = [one for one in recorded.named("commit") if not one.status.is_ok]
    assert attributes_of(failed)["error.type"] == "CheckpointError"
    assert failed.status.description == "the disk is full"
    assert not recorded.one("invoke_agent agent").status.is_ok


async def test_a_traced_journal_keeps_every_law_of_journals():
    @asynccontextmanager
    async def make() -> AsyncGenerator[Checkpointer]:
        async with MemoryCheckpointer() as journal:
            yield TracedCheckpointer(journal, Recorded().middleware)

    await verify(make)


# --- content -------------------------------------------------------------------------------


def _all_text(recorded: Recorded) -> str:
    return "\n".join(one.to_json() for one in recorded.spans)


async def test_contents_are_recorded_only_when_asked_for():
    seen: list[int] = []

    @before_model
    def hook(state: Any, runtime: Any) -> None:
        seen.append(len(state["messages"]))

    for capture in (False, True):
        recorded = Recorded(capture_content=capture)
        model = Turns(says("", call("c1", "look", place=SECRET)), says(SECRET))
        agent = agent_of(recorded, model, system_prompt="be brief", middleware=[hook])
        await agent.ainvoke(f"tell: {SECRET}")
        assert (SECRET in _all_text(recorded)) is capture
        assert seen.pop() == 3, "hooks ran"
        kinds = {one.name.partition(" ")[0] for one in recorded.spans}
        assert kinds == {"invoke_agent", "chat", "execute_tool"}, "hooks have no spans"
    chat = attributes_of(recorded.named("chat test")[1])
    assert json.loads(chat["gen_ai.system_instructions"]) == [
        {"type": "text", "content": "be brief"}
    ]
    assert json.loads(chat["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": f"tell: {SECRET}"}]},
        {
            "role": "assistant",
            "parts": [
                {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"place": SECRET}}
            ],
        },
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "c1", "response": f"seen {SECRET}"}],
        },
    ]
    assert json.loads(chat["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": SECRET}],
            "finish_reason": "stop",
        }
    ]
    looked = attributes_of(recorded.one("execute_tool look"))
    assert json.loads(looked["gen_ai.tool.call.arguments"]) == {"place": SECRET}
    assert json.loads(looked["gen_ai.tool.call.result"]) == f"seen {SECRET}"


async def test_recorded_contents_are_redacted_as_the_agent_redacts():
    recorded = Recorded(capture_content=True)
    address = "ada@example.com"

    @tool
    def find(who: str) -> str:
        """Find an address."""
        if who == "nobody":
            raise ValueError(f"not {address}")
        return f"{who}: {address}"

    model = Turns(
        says("", call("c1", "find", who=address), call("c2", "find", who="nobody")),
        says(f"It is {address}."),
    )
    pii = PIIMiddleware(
        "email", apply_to_input=True, apply_to_output=True, apply_to_tool_results=True
    )
    agent = agent_of(recorded, model, find, middleware=[pii])
    result = await agent.ainvoke(f"Who is {address}?")
    assert result.run.status == "done"
    assert "REDACTED" in _all_text(recorded)
    assert address not in _all_text(recorded)


# --- metrics -------------------------------------------------------------------------------


async def test_metrics_count_without_ids():
    recorded = Recorded()
    journal = TracedCheckpointer(MemoryCheckpointer(), recorded.middleware)
    answer = AIMessage((TextBlock("done"),), model="turns:test", usage=Usage(7, 2, 1))
    model = Turns(
        says("", call("c1", "look", place="here"), call("c2", "invented")),
        answer,
    )
    agent = agent_of(recorded, model, checkpointer=journal)
    result = await agent.ainvoke("go", thread_id="thr_1")
    await agent.adrive([call("c9", "look", place="nowhere")], thread_id="thr_1")
    named = {"gen_ai.agent.name": "agent"}
    assert recorded.points("deep_agent.runs.started") == [(named, 2)]
    assert recorded.points("deep_agent.runs.active") == [(named, 0)]
    assert recorded.points("deep_agent.runs.ended") == [
        ({**named, "deep_agent.run.kind": kind, "deep_agent.run.status": "done"}, 1)
        for kind in ("delegate", "drive")
    ]
    counts = {
        (one["gen_ai.tool.name"], one["deep_agent.tool.outcome"]): value
        for one, value in recorded.points("deep_agent.tool.calls")
    }
    assert counts == {("look", "ok"): 1, ("unknown", "error"): 1, ("look", "error"): 1}
    model_named = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "turns",
        "gen_ai.request.model": "test",
        "gen_ai.response.model": "test",
    }
    assert recorded.points("gen_ai.client.token.usage") == [
        ({**model_named, "gen_ai.token.type": "input"}, (1, 8)),
        ({**model_named, "gen_ai.token.type": "output"}, (1, 2)),
    ]
    assert sum(count for _, (count, _) in recorded.points("gen_ai.client.operation.duration")) == 2
    assert [count for _, (count, _) in recorded.points("gen_ai.invoke_agent.duration")] == [1]
    assert recorded.points("deep_agent.commit.duration")
    everything = repr([recorded.points(one) for one in METRICS])
    assert "thr_1" not in everything
    assert result.run.id not in everything


METRICS = [
    "deep_agent.approval.duration",
    "deep_agent.commit.duration",
    "deep_agent.runs.active",
    "deep_agent.runs.ended",
    "deep_agent.runs.started",
    "deep_agent.tool.calls",
    "gen_ai.client.operation.duration",
    "gen_ai.client.operation.time_to_first_chunk",
    "gen_ai.client.token.usage",
    "gen_ai.execute_tool.duration",
    "gen_ai.invoke_agent.duration",
]


async def test_a_driven_call_is_no_invocation_of_an_agent():
    recorded = Recorded()
    agent = agent_of(recorded, Turns(), name="main")
    await agent.adrive([call("c1", "look", place="here")])
    assert recorded.tree() == ["drive main", "  execute_tool look"]
    assert attributes_of(recorded.one("drive main"))["gen_ai.operation.name"] == "drive"
    assert recorded.points("gen_ai.invoke_agent.duration") == []


async def test_nothing_is_left_open_or_remembered_after_runs():
    recorded = Recorded()
    spans = recorded.middleware.spans
    journal = TracedCheckpointer(MemoryCheckpointer(), recorded.middleware)
    agent = create_deep_agent(
        Turns(
            lambda request: (
                says("", call("c1", "task", description="x", subagent_type="general-purpose"))
                if request.agent == "main"
                else says("back")
            ),
            says("done"),
        ),
        middleware=[recorded.middleware],
        checkpointer=journal,
    )
    for _ in range(3):
        assert (await agent.ainvoke("go")).run.status == "done"
    assert not spans._legs
    assert not spans._places
