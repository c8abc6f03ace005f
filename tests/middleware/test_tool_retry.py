"""Failed calls of tools that may be repeated are repeated; all others happen once."""

import logging

import anyio
import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.errors import AgentBuildError, ToolError, ToolFailed
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.hooks.decorators import wrap_tool_call
from deep_agent_mcp.harness.messages.message import HumanMessage
from deep_agent_mcp.harness.middleware.tools.tool_calls import HumanInTheLoopMiddleware
from deep_agent_mcp.harness.middleware.tools.tool_results import ToolRetryMiddleware
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import RetryPolicy, ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says
from tests.loop.test_gate import results

pytestmark = pytest.mark.anyio


class Line:
    """A tool that fails a number of times, and what it saw."""

    def __init__(self, failures: int = 99, error: Exception | None = None) -> None:
        self.failures = failures
        self.error = error or ConnectionError("reset")
        self.attempts: list[int] = []

    def fetch(self, name: str = "fetch", **marks):
        @tool(name=name, **marks)
        async def fetch(runtime: ToolRuntime) -> str:
            """Fetch."""
            self.attempts.append(runtime.attempt)
            if len(self.attempts) <= self.failures:
                raise self.error
            return "got it"

        return fetch


def quick(max_retries: int = 2, **options) -> ToolRetryMiddleware:
    return ToolRetryMiddleware(max_retries, **{"initial_delay": 0, **options})


async def run(tools, *middleware, calls=(), **options):
    model = Turns(says("", *(calls or (call("1", tools[0].name),))), says("ok"))
    agent = create_agent(model, tools, middleware=middleware, **options)
    return await agent.ainvoke("go")


# --- which calls ---------------------------------------------------------------------------


@pytest.mark.parametrize("mark", ["read_only", "idempotent"])
async def test_a_tool_that_may_be_repeated_is_until_it_answers(mark):
    line = Line(2)
    result = await run([line.fetch(**{mark: True})], quick())
    (answer,) = results(result)
    assert (answer.status, answer.text) == ("success", "got it")
    assert line.attempts == [1, 2, 3]
    assert result.used.tool_calls == 3


@pytest.mark.parametrize("marks", [{}, {"idempotent": True, "once": True}, {"destructive": True}])
async def test_a_tool_that_could_act_twice_is_called_once(marks):
    line = Line()
    result = await run([line.fetch(**marks)], quick(retry_on=Exception))
    assert line.attempts == [1]
    assert results(result)[0].text == "fetch failed: ConnectionError: reset"


async def test_that_a_tool_named_for_it_is_not_repeated_is_in_the_log(caplog):
    with caplog.at_level(logging.WARNING, "deep_agent_mcp.harness.middleware.tools.tool_results"):
        await run([Line().fetch()], quick(tools=["fetch"]))
    assert "ToolRetryMiddleware[fetch] does not repeat fetch" in caplog.text


async def test_nothing_is_in_the_log_of_calls_that_there_was_no_reason_to_repeat(caplog):
    with caplog.at_level(logging.WARNING, "deep_agent_mcp.harness.middleware.tools.tool_results"):
        await run([Line().fetch()], quick())  # nobody named the tool
        await run([Line(0).fetch()], quick(tools=["fetch"]))  # it did not fail
        await run([Line(error=ValueError("bad")).fetch()], quick(tools=["fetch"]))
    assert "does not repeat" not in caplog.text


async def test_only_the_tools_it_is_for_are_repeated():
    one, other = Line(), Line()
    tools = [one.fetch("one", read_only=True), other.fetch("other", read_only=True)]
    await run(tools, quick(tools=[tools[0]]), calls=(call("1", "one"), call("2", "other")))
    assert (len(one.attempts), len(other.attempts)) == (3, 1)


@pytest.mark.parametrize(
    ("error", "attempts"), [(ValueError("bad"), 1), (ToolError("no such city"), 1)]
)
async def test_what_will_not_pass_is_a_result_at_once(error, attempts):
    line = Line(error=error)
    result = await run([line.fetch(read_only=True)], quick(on_failure="error"))
    assert len(line.attempts) == attempts
    assert result.run.status == "done"


@pytest.mark.parametrize("retry_on", [ValueError, (KeyError, ValueError), lambda error: True])
async def test_which_errors_are_worth_another_attempt_can_be_said(retry_on):
    line = Line(1, ValueError("bad"))
    result = await run([line.fetch(read_only=True)], quick(retry_on=retry_on))
    assert results(result)[0].text == "got it"


async def test_attempts_never_multiply():
    line = Line()
    own = line.fetch(read_only=True, retry=RetryPolicy(attempts=2, initial_delay=0))
    await run([own], quick(5, on_failure="error"))
    assert line.attempts == [1, 2]
    line = Line()
    tools = [line.fetch(read_only=True)]
    await run(tools, quick(1, tools=tools), quick(7))
    assert line.attempts == [1, 2]


async def test_arguments_that_do_not_fit_are_answered_once():
    seen = []

    @wrap_tool_call
    async def count(request, handler):
        seen.append(1)
        return await handler(request)

    @tool(read_only=True)
    async def look(path: str) -> str:
        """Look."""
        return path

    result = await run([look], quick(retry_on=Exception), count, calls=(call("1", "look"),))
    assert "path: Field required" in results(result)[0].text
    assert len(seen) == 1


async def test_an_error_that_the_tool_returned_is_its_answer():
    ran = []

    @tool(read_only=True)
    async def look() -> ToolResult:
        """Look."""
        ran.append(1)
        return ToolResult("nothing there", status="error")

    await run([look], quick(retry_on=Exception))
    assert len(ran) == 1


# --- the gate ------------------------------------------------------------------------------


async def test_a_person_is_asked_once_for_all_attempts_also_when_the_call_is_edited():
    ran = []

    @tool(read_only=True)
    async def look(path: str) -> str:
        """Look."""
        ran.append(path)
        if len(ran) < 3:
            raise ConnectionError("reset")
        return "got it"

    model = Turns(says("", call("1", "look", path="/a")), says("ok"))
    asking = HumanInTheLoopMiddleware({"look": True})
    agent = create_agent(model, [look], middleware=[quick(), asking])
    waiting = await agent.ainvoke("go")
    (question,) = waiting.interrupts
    answer = {"decision": "edit", "args": {"path": "/b"}}
    result = await agent.aresume(waiting.run.id, {question.id: answer})
    assert (result.run.status, result.interrupts) == ("done", ())
    assert ran == ["/b"] * 3
    assert results(result)[0].text.endswith("got it")


@pytest.mark.parametrize("decision", ["reject", "respond"])
async def test_a_call_that_a_person_decided_is_not_made(decision):
    line = Line()
    model = Turns(says("", call("1", "fetch")), says("ok"))
    asking = HumanInTheLoopMiddleware({"fetch": True})
    retry = quick(retry_on=Exception, on_failure="error")
    agent = create_agent(model, [line.fetch(read_only=True)], middleware=[retry, asking])
    waiting = await agent.ainvoke("go")
    (question,) = waiting.interrupts
    result = await agent.aresume(waiting.run.id, {question.id: {"decision": decision}})
    assert (result.run.status, line.attempts) == ("done", [])


async def test_a_denied_call_is_not_an_error_to_repeat():
    line = Line()
    policy = Policy((Rule("deny", "fetch"),))
    retry = quick(retry_on=Exception, on_failure="error")
    result = await run([line.fetch(read_only=True)], retry, policy=policy)
    assert (result.run.status, line.attempts) == ("done", [])


async def test_a_question_of_the_tool_is_not_a_failure():
    begun = []

    @tool(idempotent=True)
    async def pay(runtime: ToolRuntime) -> str:
        """Pay."""
        begun.append(runtime.attempt)
        return f"paid from {runtime.interrupt('From which account?')}"

    model = Turns(says("", call("1", "pay")), says("ok"))
    agent = create_agent(model, [pay], middleware=[quick(retry_on=Exception)])
    waiting = await agent.ainvoke("go")
    (question,) = waiting.interrupts
    result = await agent.aresume(waiting.run.id, {question.id: "main"})
    assert results(result)[0].text == "paid from main"
    assert begun == [1, 1]


async def test_attempts_end_where_the_limit_of_tool_calls_is():
    line = Line()
    model = Turns(says("", call("1", "fetch")), says("ok"))
    agent = create_agent(
        model, [line.fetch(read_only=True)], middleware=[quick(50, retry_on=Exception)]
    )
    result = await agent.ainvoke("go", options=RunOptions(limits=Limits(tool_calls=4)))
    assert len(line.attempts) == 4
    assert "4 tool calls allowed" in results(result)[0].text


# --- what is left of a failure -------------------------------------------------------------


async def test_after_the_last_attempt_the_model_reads_the_error():
    result = await run([Line().fetch(read_only=True)], quick())
    (answer,) = results(result)
    assert answer.status == "error"
    assert answer.text == "fetch failed (3 attempts): ConnectionError: reset"
    assert result.run.answer == "ok"


async def text_of(error):
    return f"later: {error}"


@pytest.mark.parametrize("function", [lambda error: f"later: {error}", text_of])
async def test_a_function_makes_the_text(function):
    result = await run([Line().fetch(read_only=True)], quick(on_failure=function))
    (answer,) = results(result)
    assert (answer.status, answer.text) == ("error", "later: reset")


async def test_error_ends_the_run_and_siblings_that_finished_are_kept():
    line, finished = Line(), anyio.Event()

    @tool
    async def step() -> str:
        """Do a step."""
        finished.set()
        return "did"

    @tool(read_only=True)
    async def fetch() -> str:
        """Fetch."""
        await finished.wait()
        line.attempts.append(1)
        raise line.error

    model = Turns(says("", call("1", "step"), call("2", "fetch")), says("ok"))
    agent = create_agent(model, [step, fetch], middleware=[quick(on_failure="error")])
    result = await agent.ainvoke("go", thread_id="t")
    assert isinstance(result.error, ToolFailed)
    assert "fetch failed (3 attempts): ConnectionError: reset" in str(result.error)
    assert (await agent.get_state("t")).finished_calls == ("1",)


async def test_siblings_keep_their_results_and_run_once():
    line, ran = Line(1), []

    @tool
    async def step() -> str:
        """Do a step."""
        ran.append(1)
        return "did"

    tools = [line.fetch(read_only=True), step]
    result = await run(tools, quick(), calls=(call("1", "fetch"), call("2", "step")))
    assert [one.text for one in results(result)] == ["got it", "did"]
    assert len(ran) == 1


async def test_updates_of_failed_attempts_are_not_made():
    tries = []

    @tool(idempotent=True)
    async def note() -> ToolResult:
        """Note."""
        tries.append(1)
        update = {"messages": [HumanMessage(f"try {len(tries)}", source="note")]}
        if len(tries) < 2:
            raise ConnectionError("reset")
        return ToolResult("noted", update=update)

    result = await run([note], quick())
    told = [one.text for one in result.state["messages"] if isinstance(one, HumanMessage)]
    assert told == ["go", "try 2"]


# --- options -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_retries": -1}, "max_retries must be 0 or more"),
        ({"tools": "fetch"}, "write ['fetch']"),
        ({"tools": []}, "an empty list would do nothing"),
        ({"tools": [5]}, "got 5"),
        ({"tools": [Line().fetch()]}, "'fetch' could act twice"),
        ({"tools": [Line().fetch(read_only=True, once=True)]}, "'fetch' could act twice"),
        ({"on_failure": None}, "on_failure is 'continue', 'error' or a function"),
    ],
)
def test_wrong_options_are_refused_with_what_is_accepted(options, text):
    with pytest.raises(AgentBuildError, match="ToolRetryMiddleware") as caught:
        ToolRetryMiddleware(**options)
    assert text in str(caught.value)
