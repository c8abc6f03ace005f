"""Background tasks inside one process: starting, collecting, steering, ending."""

from __future__ import annotations

import json
from contextvars import ContextVar
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from deep_agent_mcp.harness.agent import Agent, RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import AgentBuildError, ModelError, RunEnded, UnknownRun
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.hooks.requests import (
    ToolCallOutcome,
    ToolCallRequest,
    ToolHandler,
)
from deep_agent_mcp.harness.messages.message import HumanMessage
from deep_agent_mcp.harness.middleware.pii import PIIMiddleware
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.subagents.background.launcher import BackgroundSubAgents
from deep_agent_mcp.harness.subagents.definitions import CompiledSubAgent, SubAgent
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.loop.models import call, says
from tests.subagents.background.support import (
    DIGGER,
    Cast,
    Gate,
    check,
    family,
    news,
    results,
    start,
    steering,
    task_id,
    task_in,
    view,
)

pytestmark = pytest.mark.anyio


async def test_a_task_goes_on_while_its_caller_ends_and_is_told_of_once(
    journal: MemoryCheckpointer,
) -> None:
    gate = Gate(says("Found gold."))
    main = [
        says("", start("c1", "dig for gold")),
        says("I have begun."),
        lambda request: check(request, "c1"),
        says("There is gold."),
        says("Nothing new."),
    ]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, {"main": main, "digger": [gate]})
            first = await agent.ainvoke("go", thread_id="t")
            assert first.run.answer == "I have begun."
            await gate.reached.wait()
            gate.open.set()
            assert (await view(background, first, "c1")).status == "success"
            second = await agent.ainvoke("and?", thread_id="t")
            third = await agent.ainvoke("more?", thread_id="t")
    assert results(second)["check"].text.endswith("Found gold.")
    (told,) = news(third)
    assert "success" in told
    assert "dig for gold" in told
    assert third.run.answer == "Nothing new."
    (child,) = await journal.find_runs(thread_id=f"t.{task_in(first.state['messages'], 'c1')}")
    assert (child.agent, child.status, child.answer) == ("digger", "done", "Found gold.")


async def test_tasks_run_side_by_side_and_are_waited_for_with_one_call(
    journal: MemoryCheckpointer,
) -> None:
    both, gate = anyio.Event(), Gate(says("done digging"))

    async def dig(request: Any) -> Any:
        if gate.running == 1:
            gate.open.set()  # nobody opens it before two are there
            both.set()
        return await gate(request)

    main = [
        says("", start("c1", "left"), start("c2", "right")),
        lambda request: check(request, "c1", "c2"),
        says("Both."),
    ]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, {"main": main, "digger": [dig]})
            result = await agent.ainvoke("go")
    assert gate.most == 2
    assert results(result)["check"].text.count("done digging") == 2
    assert news(result) == []  # it has seen them itself


async def test_tasks_beyond_the_bound_wait_for_their_turn(journal: MemoryCheckpointer) -> None:
    gate = Gate(says("dug"))
    main = [
        says("", *(start(f"c{number}") for number in range(4))),
        says("", call("list", "check_tasks")),
        says("Begun."),
    ]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal, max_running=2, max_open=3) as background:
            agent = family(background, {"main": main, "digger": [gate]})
            result = await agent.ainvoke("go")
            listed = results(result)["list"].text
            assert listed.count(": running") + listed.count(": pending") == 3
            assert listed.count(": pending") == 1
            refused = [one for one in results(result).values() if one.status == "error"]
            assert len(refused) == 1
            assert "no more are allowed" in refused[0].text
            gate.open.set()
            for number in range(4):
                if results(result)[f"c{number}"].status != "error":
                    assert (await view(background, result, f"c{number}")).status == "success"
    assert gate.most == 2


async def test_a_pending_task_can_be_cancelled_and_never_begins(
    journal: MemoryCheckpointer,
) -> None:
    gate = Gate(says("dug"))
    main = [
        says("", start("c1", "one")),
        says("", start("c2", "two")),
        lambda request: says("", call("stop", "cancel_task", task_id=task_id(request, "c2"))),
        says("Begun."),
    ]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal, max_running=1) as background:
            cast = Cast(main=main, digger=[gate])
            result = await family(background, cast).ainvoke("go")
            assert ": cancelled" in results(result)["stop"].text
            gate.open.set()
            assert (await view(background, result, "c1")).status == "success"
            assert (await view(background, result, "c2")).status == "cancelled"
    assert len(cast.asked_by("digger")) == 1


async def test_a_running_task_is_cancelled_and_the_model_is_not_told_again(
    journal: MemoryCheckpointer,
) -> None:
    gate = Gate(says("dug"))

    async def stop(request: Any) -> Any:
        await gate.reached.wait()
        return says("", call("stop", "cancel_task", task_id=task_id(request, "c1")))

    main = [says("", start("c1")), stop, says("Stopped."), says("Still.")]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, {"main": main, "digger": [gate]})
            await agent.ainvoke("go", thread_id="t")
            result = await agent.ainvoke("and?", thread_id="t")
            found = await view(background, result, "c1")
    assert found.status == "cancelled"
    assert found.run.reason == "cancelled by the agent that started it"
    assert news(result) == []


async def test_a_message_reaches_a_running_task_before_its_next_model_call(
    journal: MemoryCheckpointer,
) -> None:
    gate = Gate(says("", call("l", "ls", path="/")))
    main = steering(gate, "look left")
    cast = Cast(main=main, digger=[gate, says("Was left.")])
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            result = await family(background, cast).ainvoke("go")
    assert results(result)["check"].text.endswith("Was left.")
    last = cast.asked_by("digger")[-1].messages
    said = [one.text for one in last if isinstance(one, HumanMessage)]
    assert said == ["dig", "look left"]
    assert last[-1].text == "look left"


async def test_a_message_that_comes_too_late_for_the_last_answer_makes_the_task_go_on(
    journal: MemoryCheckpointer,
) -> None:
    gate = Gate(says("Dug."))
    main = steering(gate, "and deeper")
    cast = Cast(main=main, digger=[gate, says("Deeper too.")])
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            result = await family(background, cast).ainvoke("go")
    assert results(result)["check"].text.endswith("Deeper too.")


async def test_a_finished_task_goes_on_with_all_it_knows(journal: MemoryCheckpointer) -> None:
    main = [
        says("", start("c1")),
        lambda request: check(request, "c1"),
        lambda request: says(
            "", call("say", "update_task", task_id=task_id(request, "c1"), message="deeper")
        ),
        lambda request: says(
            "",
            call("again", "check_tasks", task_ids=[task_id(request, "c1")], wait_seconds=30),
        ),
        says("Good."),
    ]
    cast = Cast(main=main, digger=[says("Dug."), says("Dug deeper.")])
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            result = await family(background, cast).ainvoke("go")
    assert results(result)["check"].text.endswith("Dug.")
    assert results(result)["again"].text.endswith("Dug deeper.")
    assert [one.text for one in cast.asked_by("digger")[-1].messages] == ["dig", "Dug.", "deeper"]
    assert news(result) == []


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("check_tasks", {"task_ids": ["task-00000000"]}, "there is no background task"),
        ("update_task", {"task_id": "../../etc", "message": "x"}, "there is no background task"),
        ("cancel_task", {"task_id": ""}, "there is no background task"),
        ("start_task", {"description": "x", "subagent_type": "nobody"}, "nobody"),
        ("start_task", {"description": ""}, "description"),
        ("check_tasks", {"task_ids": [], "wait_seconds": 1e9}, "wait_seconds"),
    ],
)
async def test_wrong_arguments_are_error_results(
    journal: MemoryCheckpointer, name: str, args: dict[str, Any], expected: str
) -> None:
    main = [says("", call("bad", name, **args)), says("Sorry.")]
    async with BackgroundSubAgents(journal) as background:
        result = await family(background, {"main": main}).ainvoke("go")
    assert result.run.answer == "Sorry."
    assert results(result)["bad"].status == "error"
    assert expected in results(result)["bad"].text


async def test_a_task_that_fails_is_told_with_its_reason_and_can_go_on(
    journal: MemoryCheckpointer,
) -> None:
    main = [
        says("", start("c1")),
        says("Waiting."),
        lambda request: says(
            "", call("say", "update_task", task_id=task_id(request, "c1"), message="again")
        ),
        lambda request: check(request, "c1"),
        says("Good."),
    ]
    turns: list[Any] = [ModelError("the mine is closed", kind="other")]
    cast = Cast(main=main, digger=turns)
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, cast)
            first = await agent.ainvoke("go", thread_id="t")
            assert (await view(background, first, "c1")).status == "error"
            turns[0] = says("Open again.")
            second = await agent.ainvoke("and?", thread_id="t")
    assert results(second)["check"].text.endswith("Open again.")
    (told,) = news(second)
    assert "the mine is closed" in told


async def test_a_task_has_limits_of_its_own_and_says_when_its_time_is_over(
    journal: MemoryCheckpointer,
) -> None:
    hasty = SubAgent("hasty", "Hurries.", "Hurry.", limits=Limits(seconds=0.05))
    gate = Gate(says("never"))
    main = [
        says("", start("c1", subagent="hasty"), start("c2")),
        lambda request: check(request, "c1"),
        says("Late."),
    ]
    options = RunOptions(limits=Limits(model_calls=1))
    cast = Cast(
        main=main,
        hasty=[gate],
        digger=[says("", call("l", "ls", path="/")), says("too many")],
    )
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal, options=options) as background:
            agent = family(background, cast, subagents=(DIGGER, hasty))
            result = await agent.ainvoke("go")
            assert result.used.model_calls == 3  # nothing of what the tasks use
            assert (await view(background, result, "c2")).status == "error"
    assert ": timeout" in results(result)["check"].text


async def test_a_structured_answer_comes_back_as_json(journal: MemoryCheckpointer) -> None:
    class Find(BaseModel):
        metal: str
        grams: int

    finder = SubAgent("finder", "Finds.", "Find.", response_format=Find)
    main = [
        says("", start("c1", subagent="finder")),
        lambda request: check(request, "c1"),
        says("Good."),
    ]
    cast = Cast(main=main, finder=[says("", call("a", "Find", metal="gold", grams=3))])
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            result = await family(background, cast, subagents=[finder]).ainvoke("go")
    answer = results(result)["check"].text.splitlines()[-1]
    assert json.loads(answer) == {"metal": "gold", "grams": 3}


async def test_a_person_answers_what_a_task_asks_and_the_call_runs_once(
    journal: MemoryCheckpointer,
) -> None:
    blasts: list[str] = []

    @tool
    def blast(where: str) -> str:
        """Blast."""
        blasts.append(where)
        return "boom"

    main = [
        says("", start("c1")),
        lambda request: check(request, "c1"),
        says("It asks."),
        lambda request: check(request, "c1"),
        says("Done."),
    ]
    digger = [
        says("", call("n", "ls", path="/"), call("b", "blast", where="left")),
        says("Blasted."),
    ]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(
                background, {"main": main, "digger": digger}, [blast], interrupt_on={"blast": True}
            )
            first = await agent.ainvoke("go", thread_id="t")
            assert (first.run.status, blasts) == ("done", [])
            shown = results(first)["check"].text
            assert ": waiting" in shown
            found = await view(background, first, "c1")
            (question,) = found.questions
            assert question.path == ("digger", "b")
            assert f"{found.task_id} > digger: " in shown
            await background.answer(found.run.id, {question.id: {"decision": "approve"}})
            assert (await view(background, first, "c1")).status == "success"
            with pytest.raises(RunEnded):
                await background.answer(found.run.id, {question.id: {"decision": "approve"}})
            second = await agent.ainvoke("and?", thread_id="t")
    assert blasts == ["left"]
    assert results(second)["check"].text.endswith("Blasted.")
    with pytest.raises(UnknownRun):
        async with background:
            await background.answer("run_none", {})


async def test_what_a_task_asks_is_told_to_its_caller_once(journal: MemoryCheckpointer) -> None:
    main = [says("", start("c1")), says("Begun."), says("It asks."), says("Nothing new.")]
    digger = [says("", call("n", "ls", path="/")), says("Listed.")]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, {"main": main, "digger": digger}, interrupt_on={"ls": True})
            first = await agent.ainvoke("go", thread_id="t")
            found = await view(background, first, "c1")
            second = await agent.ainvoke("and?", thread_id="t")
            third = await agent.ainvoke("more?", thread_id="t")
    (told,) = news(second)
    assert f"{found.task_id} " in told
    assert ": waiting" in told
    assert news(third) == [told]


async def test_rules_about_callers_hold_in_the_background(journal: MemoryCheckpointer) -> None:
    policy = Policy([Rule("deny", tool="ls", agent="main/digger")])
    own = create_agent(
        Cast(miner=[says("", call("n", "ping")), says("Refused.")]), [ping], name="miner"
    )
    compiled = CompiledSubAgent("miner", "Mines.", own)
    main = [
        says("", start("c1"), start("c2", subagent="miner")),
        lambda request: check(request, "c1", "c2"),
        says("Good."),
    ]
    digger = [says("", call("n", "ls", path="/")), says("Was refused.")]
    rules = Policy([*policy.rules, Rule("deny", tool="ping", agent="main/miner")])
    cast = Cast(main=main, digger=digger)
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, cast, policy=rules, subagents=(DIGGER, compiled))
            result = await agent.ainvoke("go")
            for one, child in (("c1", agent_of(background, "digger")), ("c2", None)):
                thread = f"{result.run.thread_id}.{task_in(result.state['messages'], one)}"
                made = child or agent_of(background, "miner")
                state = await made.get_state(thread)
                (refused,) = [m for m in state.values["messages"] if m.type == "tool"]
                assert refused.status == "error", refused.text


def agent_of(background: BackgroundSubAgents, name: str) -> Agent:
    return background.agent(name)


@tool
def ping(runtime: ToolRuntime) -> str:
    """Say who asks."""
    return f"{runtime.principal} {runtime.context}"


async def test_a_task_works_on_behalf_of_whoever_started_it(journal: MemoryCheckpointer) -> None:
    main = [says("", start("c1")), lambda request: check(request, "c1"), says("Good.")]
    cast = Cast(main=main, digger=[says("", call("p", "ping")), says("ok")])
    options = RunOptions(principal="ann", context={"team": "blue"})
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            await family(background, cast, [ping]).ainvoke("go", options=options)
    assert results(cast.asked_by("digger")[-1])["p"].text == "ann {'team': 'blue'}"


@pytest.mark.parametrize("by", ["an answer", "a message"])
async def test_a_task_that_continues_still_works_on_behalf_of_whoever_started_it(
    journal: MemoryCheckpointer, by: str
) -> None:
    asks, look = call("a", "ls", path="/"), [call("p", "ping"), call("g", "glob", pattern="*")]
    stops = says("", asks) if by == "an answer" else says("Dug.")
    cast = Cast(main=[says("", start("c1")), says("ok")], digger=[stops, says("", *look), stops])
    rules = [Rule("deny", tool="glob", principal="ann"), Rule("ask", tool="ls")]
    options = RunOptions(principal="ann", context={"team": "blue"})
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, cast, [ping], policy=Policy(rules))
            first = await agent.ainvoke("go", thread_id="t", options=options)
            stopped = await view(background, first, "c1")
            if by == "an answer":
                (question,) = stopped.questions
                await background.answer(stopped.run.id, {question.id: {"decision": "approve"}})
            else:
                await background.send(stopped.run.thread_id, "go on", "k1")
            await view(background, first, "c1")
    seen = results(cast.asked_by("digger")[-1])
    assert seen["p"].text == "ann {'team': 'blue'}"
    assert "policy" in seen["g"].text


async def test_without_background_there_are_no_such_tools_and_unentered_it_says_so(
    journal: MemoryCheckpointer,
) -> None:
    assert "start_task" not in create_deep_agent(Cast(main=[])).tools
    background = BackgroundSubAgents(journal)
    cast = Cast(main=[says("", start("c1")), says("No.")])
    agent = family(background, cast)
    assert agent.checkpointer is journal
    result = await agent.ainvoke("go")
    assert "not entered" in results(result)["c1"].text
    with pytest.raises(AgentBuildError, match="another agent"):
        family(background, cast)
    with pytest.raises(AgentBuildError, match="different journals"):
        create_deep_agent(
            cast, background=BackgroundSubAgents(journal), checkpointer=MemoryCheckpointer()
        )


async def test_a_start_that_was_cut_off_and_is_made_again_finds_its_task(
    journal: MemoryCheckpointer,
) -> None:
    class CutOff(AgentMiddleware):
        """Lets a start happen, and nobody hear of it."""

        def __init__(self) -> None:
            self.started = anyio.Event()

        async def wrap_tool_call(
            self, request: ToolCallRequest, handler: ToolHandler
        ) -> ToolCallOutcome:
            outcome = await handler(request)
            if request.call.name == "start_task" and not self.started.is_set():
                self.started.set()
                await anyio.sleep_forever()
            return outcome

    cut_off = CutOff()
    main = [says("", start("c1")), lambda request: check(request, "c1"), says("Done.")]
    cast = Cast(main=main, digger=[says("Dug.")])
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, cast, middleware=[cut_off])
            async with anyio.create_task_group() as group:
                group.start_soon(agent.ainvoke, "go")
                await cut_off.started.wait()
                group.cancel_scope.cancel()
            (run,) = [one for one in await journal.find_runs() if one.agent == "main"]
            assert run.status == "running"
            result = await agent.aresume(run.id)
    assert results(result)["check"].text.endswith("Dug.")
    assert len(cast.asked_by("digger")) == 1
    assert len(await journal.find_runs()) == 2


async def test_nothing_of_the_call_that_starts_a_task_gets_into_it(
    journal: MemoryCheckpointer,
) -> None:
    around: ContextVar[str] = ContextVar("around", default="nothing")

    class Around(AgentMiddleware):
        async def wrap_tool_call(
            self, request: ToolCallRequest, handler: ToolHandler
        ) -> ToolCallOutcome:
            if request.call.name != "start_task":
                return await handler(request)
            token = around.set("the call")
            try:
                return await handler(request)
            finally:
                around.reset(token)

    @tool
    def look() -> str:
        """Look around."""
        return around.get()

    main = [says("", start("c1")), lambda request: check(request, "c1"), says("Done.")]
    cast = Cast(main=main, digger=[says("", call("l", "look")), says("Dug.")])
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            await family(background, cast, [look], middleware=[Around()]).ainvoke("go")
    assert results(cast.asked_by("digger")[-1])["l"].text == "nothing"


async def test_what_is_redacted_is_redacted_in_tasks_and_in_messages_to_them(
    journal: MemoryCheckpointer,
) -> None:
    gate = Gate(says("", call("l", "ls", path="/")))
    main = steering(gate, "and ann@example.com", "ask bob@example.com")
    cast = Cast(main=main, digger=[gate, says("Asked.")])
    hide = PIIMiddleware("email", strategy="redact", apply_to_output=True)
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            result = await family(background, cast, middleware=[hide]).ainvoke("go")
    assert results(result)["check"].text.endswith("Asked.")
    texts = [one.text for one in cast.asked_by("digger")[-1].messages]
    assert texts[0] == "ask [REDACTED_EMAIL]"
    assert texts[-1] == "and [REDACTED_EMAIL]"
    assert "@example" not in repr(vars(journal))


async def test_what_is_redacted_in_input_is_not_stored_with_messages_to_tasks(
    journal: MemoryCheckpointer,
) -> None:
    gate = Gate(says("", call("l", "ls", path="/")))
    cast = Cast(main=[says("", start("c1")), says("Begun.")], digger=[gate, says("Asked.")])
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, cast, middleware=[PIIMiddleware("email")])
            first = await agent.ainvoke("go", thread_id="t")
            thread = f"t.{task_in(first.state['messages'], 'c1')}"
            await gate.reached.wait()
            await background.send(thread, "ask bob@example.com", "k1")
            gate.open.set()
            await view(background, first, "c1")
    assert cast.asked_by("digger")[-1].messages[-1].text == "ask [REDACTED_EMAIL]"
    assert "@example" not in repr(vars(journal))


async def test_a_copied_thread_and_a_deleted_task_do_not_end_runs(
    journal: MemoryCheckpointer,
) -> None:
    main = [says("", start("c1")), says("Begun."), says("Still here."), says("Here.")]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = family(background, {"main": main, "digger": [says("Dug.")]})
            first = await agent.ainvoke("go", thread_id="t")
            found = await view(background, first, "c1")
            await journal.copy_thread("t", "copy")
            copied = await agent.ainvoke("and?", thread_id="copy")
            await journal.delete_thread(found.run.thread_id)
            again = await agent.ainvoke("and?", thread_id="t")
            third = await agent.ainvoke("and?", thread_id="t")
    assert "success" in news(copied)[0]
    assert "is gone" in news(again)[0]
    assert len(news(third)) == 1
