"""A tool marked `once` runs at most once, whatever dies and whoever resumes."""

import anyio
import pytest

from harness.agent import RunOptions, create_agent
from harness.checkpoint.memory import MemoryCheckpointer
from harness.loop.decorators import wrap_tool_call
from harness.loop.run_context import RunControl
from harness.tools import ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


class Bank:
    """A payment that can be interrupted, and its journal."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.entered = anyio.Event()
        self.release = anyio.Event()
        self.journal = MemoryCheckpointer()

    def agent(self, **options):
        @tool(once=True)
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
