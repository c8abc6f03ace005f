"""A tool marked `once` runs at most once, whatever dies and whoever resumes."""

from dataclasses import replace

import anyio
import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.base import Batch
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.loop.hooks.decorators import wrap_tool_call
from deep_agent_mcp.harness.loop.run.context import RunControl
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

ASK = Policy([Rule("ask", "pay")])


class Bank:
    """A payment that can be interrupted, and its journal."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.entered = anyio.Event()
        self.release = anyio.Event()
        self.journal = MemoryCheckpointer()

    def agent(self, *, once=True, **options):
        @tool(once=once)
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            self.entered.set()
            await self.release.wait()
            return "paid"

        @tool(once=True)
        async def ask_and_pay(amount: int, runtime: ToolRuntime) -> str:
            """Ask, then pay."""
            sure = runtime.interrupt(f"pay {amount}?")
            self.paid.append(amount)
            return f"paid: {sure}"

        turns = options.pop("turns", (says("", call("1", "pay", amount=5)), says("ok")))
        return create_agent(Turns(*turns), [pay, ask_and_pay], checkpointer=self.journal, **options)


async def test_a_call_that_had_begun_is_not_made_again_and_the_model_is_told():
    bank = Bank()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: bank.agent().ainvoke("go", thread_id="t"))
            await bank.entered.wait()
            group.cancel_scope.cancel()  # as if the process died
    (run,) = await bank.journal.find_runs(thread_id="t")
    assert run.status == "running"
    result = await bank.agent().aresume(run.id)
    assert bank.paid == [5]
    assert result.run.status == "done"
    told = result.state["messages"][2]
    assert told.status == "error"
    assert "whether it finished is not known" in told.text


async def test_the_mark_is_no_finished_call():
    bank = Bank()
    control = RunControl()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            options = RunOptions(control=control)
            group.start_soon(lambda: bank.agent().ainvoke("go", thread_id="t", options=options))
            await bank.entered.wait()
            control.pause("enough")
    assert (await bank.agent().get_state("t")).finished_calls == ()


async def test_a_call_that_finished_keeps_its_result():
    bank = Bank()
    bank.release.set()
    result = await bank.agent().ainvoke("go")
    assert result.state["messages"][2].text == "paid"
    assert bank.paid == [5]


async def test_a_question_asked_before_acting_does_not_count_as_a_beginning():
    bank = Bank()
    turns = (says("", call("1", "ask_and_pay", amount=5)), says("ok"))
    waiting = await bank.agent(turns=turns).ainvoke("go", thread_id="t")
    (question,) = waiting.interrupts
    done = await bank.agent(turns=turns).aresume(waiting.run.id, {question.id: "yes"})
    assert done.state["messages"][2].text == "paid: yes"
    assert bank.paid == [5]


async def test_a_wrapper_that_repeats_the_call_is_refused_the_second_time():
    bank = Bank()
    bank.release.set()

    @wrap_tool_call
    async def twice(request, handler):
        await handler(request)
        return await handler(request)

    result = await bank.agent(middleware=[twice]).ainvoke("go")
    assert bank.paid == [5]
    assert result.state["messages"][2].status == "error"


async def died(bank: Bank) -> str:
    """Begin a payment that a person decides about, and die in it; return the run."""
    bank.entered = anyio.Event()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: bank.agent(once="ask").ainvoke("go", thread_id="t"))
            await bank.entered.wait()
            group.cancel_scope.cancel()
    (run,) = await bank.journal.find_runs(thread_id="t")
    return run.id


async def test_a_person_is_asked_what_to_do_with_a_call_whose_outcome_is_unknown():
    bank = Bank()
    run_id = await died(bank)
    waiting = await bank.agent(once="ask").aresume(run_id)
    assert bank.paid == [5]
    assert waiting.run.status == "needs_approval"
    (question,) = waiting.interrupts
    assert question.kind == "approval"
    assert "whether it finished is not known" in question.message
    assert question.payload["tool"] == "pay"
    assert question.payload["args"] == {"amount": 5}
    assert "edit" not in str(question.answer_schema["properties"]["decision"]["enum"])


async def test_a_call_runs_again_once_a_person_has_approved_and_then_may_ask_again():
    bank = Bank()
    run_id = await died(bank)
    (first,) = (await bank.agent(once="ask").aresume(run_id)).interrupts
    bank.entered = anyio.Event()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            answers = {first.id: {"decision": "approve"}}
            group.start_soon(lambda: bank.agent(once="ask").aresume(run_id, answers))
            await bank.entered.wait()
            group.cancel_scope.cancel()  # it dies a second time
    assert bank.paid == [5, 5]
    (second,) = (await bank.agent(once="ask").aresume(run_id)).interrupts
    assert second.id != first.id
    bank.release.set()
    answers = {second.id: {"decision": "approve"}}
    done = await bank.agent(once="ask").aresume(run_id, answers)
    assert bank.paid == [5, 5, 5]
    assert done.state["messages"][2].text == "paid"


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        ({"decision": "reject", "message": "ask Ann"}, "error", "ask Ann"),
        ({"decision": "reject"}, "error", "is not known"),
        ({"decision": "respond", "message": "it was paid"}, "success", "it was paid"),
    ],
)
async def test_a_call_does_not_run_again_when_a_person_says_so(answer, status, text):
    bank = Bank()
    run_id = await died(bank)
    (question,) = (await bank.agent(once="ask").aresume(run_id)).interrupts
    done = await bank.agent(once="ask").aresume(run_id, {question.id: answer})
    assert bank.paid == [5]
    result = done.state["messages"][2]
    assert result.status == status
    assert text in result.text


async def test_the_policy_asks_first_and_the_outcome_later():
    bank = Bank()
    policy = Policy([Rule("ask", "pay")])

    def agent():
        return bank.agent(once="ask", policy=policy)

    (permission,) = (await agent().ainvoke("go", thread_id="t")).interrupts
    (run,) = await bank.journal.find_runs(thread_id="t")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            answers = {permission.id: {"decision": "approve"}}
            group.start_soon(lambda: agent().aresume(run.id, answers))
            await bank.entered.wait()
            group.cancel_scope.cancel()
    (outcome,) = (await agent().aresume(run.id)).interrupts
    assert outcome.id != permission.id
    done = await agent().aresume(run.id, {outcome.id: {"decision": "reject"}})
    assert bank.paid == [5]
    assert done.run.status == "done"


async def test_a_wrapper_that_repeats_the_call_asks_nobody():
    bank = Bank()
    bank.release.set()

    @wrap_tool_call
    async def twice(request, handler):
        await handler(request)
        return await handler(request)

    result = await bank.agent(once="ask", middleware=[twice]).ainvoke("go")
    assert bank.paid == [5]
    assert result.run.status == "done"


async def approved_and_dead(bank: Bank, *, noted: bool) -> str:
    """Begin a payment that a person has approved, and die in it; return the run.

    A server notes who decided, and does so only after the run has gone on.
    """
    waiting = await bank.agent(policy=ASK).ainvoke("go", thread_id="t")
    (question,) = waiting.interrupts
    answers = {question.id: {"decision": "approve"}}
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: bank.agent(policy=ASK).aresume(waiting.run.id, answers))
            await bank.entered.wait()
            group.cancel_scope.cancel()
    if noted:
        note = replace(question, id="dec_1", ns="decisions", step_id="", kind="decision")
        await bank.journal.commit(Batch("t", interrupts=[replace(note, answered=True)]))
    return waiting.run.id


@pytest.mark.parametrize("noted", [False, True], ids=["", "with a note of who approved it"])
async def test_an_approved_call_that_had_begun_is_not_made_again(noted: bool):
    bank = Bank()
    run_id = await approved_and_dead(bank, noted=noted)
    done = await bank.agent(policy=ASK).aresume(run_id)
    assert bank.paid == [5]
    assert "whether it finished is not known" in done.state["messages"][2].text


@pytest.mark.parametrize("noted", [False, True], ids=["", "with a note of who approved it"])
async def test_an_approved_call_that_had_begun_is_not_made_again_by_another_run(noted: bool):
    bank = Bank()
    await approved_and_dead(bank, noted=noted)
    done = await bank.agent(policy=ASK).ainvoke(None, thread_id="t")
    assert bank.paid == [5]
    assert "whether it finished is not known" in done.state["messages"][2].text
