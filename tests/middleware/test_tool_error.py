"""A function says what the model reads when a tool raises; without an answer nothing changes."""

import anyio
import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.errors import AgentBuildError, MiddlewareError, ToolError, ToolFailed
from deep_agent_mcp.harness.messages.message import ImageBlock, TextBlock
from deep_agent_mcp.harness.middleware.tools.tool_results import (
    ToolErrorMiddleware,
    ToolRetryMiddleware,
)
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says
from tests.loop.test_gate import results

pytestmark = pytest.mark.anyio


def broken(error: Exception | None = None, **marks):
    @tool(**marks)
    async def fetch(city: str) -> str:
        """Fetch."""
        raise error or KeyError(city)

    return fetch


FETCH = call("1", "fetch", city="Rome")


async def run(tools, *middleware, calls=(FETCH,), **options):
    model = Turns(says("", *calls), says("ok"))
    return await create_agent(model, tools, middleware=middleware, **options).ainvoke("go")


def plain(error, request):
    return f"no {request.call.args['city']} ({type(error).__name__})"


async def slow(error, request):
    await anyio.lowlevel.checkpoint()
    return plain(error, request)


@pytest.mark.parametrize("on_error", [plain, slow])
async def test_the_function_sees_error_and_call_and_the_model_reads_its_text(on_error):
    result = await run([broken()], ToolErrorMiddleware(on_error))
    (answer,) = results(result)
    assert (answer.status, answer.text, answer.name) == ("error", "no Rome (KeyError)", "fetch")
    assert result.run.answer == "ok"


async def test_content_blocks_are_a_result_too():
    blocks = [TextBlock("see"), ImageBlock("image/png", "AAAA")]
    result = await run([broken()], ToolErrorMiddleware(lambda error, request: blocks))
    assert results(result)[0].content == tuple(blocks)


async def test_none_leaves_the_usual_error_result():
    result = await run([broken()], ToolErrorMiddleware(lambda error, request: None))
    assert results(result)[0].text == "fetch failed: KeyError: 'Rome'"


async def test_none_lets_a_strict_tool_end_the_run_and_a_text_keeps_it_going():
    vital = broken(strict=True)
    result = await run([vital], ToolErrorMiddleware(lambda error, request: None))
    assert isinstance(result.error, ToolFailed)
    assert isinstance(result.error.__cause__, KeyError)
    result = await run([vital], ToolErrorMiddleware(plain))
    assert results(result)[0].text == "no Rome (KeyError)"
    assert result.run.status == "done"


async def test_tool_errors_and_timeouts_are_asked_about_too():
    seen = []

    def look(error, request):
        seen.append(error)

    refusal = ToolError("no such city")
    await run([broken(refusal)], ToolErrorMiddleware(look))

    @tool(timeout=0.01)
    async def fetch(city: str) -> str:
        """Hang."""
        await anyio.sleep_forever()
        return ""

    await run([fetch], ToolErrorMiddleware(look))
    assert seen[0] is refusal
    assert isinstance(seen[1], TimeoutError)


@pytest.mark.parametrize(
    ("tools", "calls", "options"),
    [
        ([broken()], (call("1", "fetch"),), {}),
        ([broken()], (call("1", "other"),), {}),
        ([broken()], (FETCH,), {"policy": Policy((Rule("deny", "fetch"),))}),
    ],
    ids=["wrong arguments", "no such tool", "denied"],
)
async def test_calls_whose_tool_did_not_run_are_not_asked_about(tools, calls, options):
    seen = []
    middleware = ToolErrorMiddleware(lambda error, request: seen.append(error))
    await run(tools, middleware, calls=calls, **options)
    assert seen == []


async def test_an_error_that_the_tool_returned_is_left_alone():
    @tool
    async def fetch(city: str) -> ToolResult:
        """Fetch."""
        return ToolResult("closed", status="error")

    result = await run([fetch], ToolErrorMiddleware(plain))
    assert results(result)[0].text == "closed"


async def test_a_question_of_a_tool_is_no_error():
    seen = []

    @tool
    async def fetch(city: str, runtime: ToolRuntime) -> str:
        """Ask."""
        return runtime.interrupt("sure?")

    middleware = ToolErrorMiddleware(lambda error, request: seen.append(error))
    model = Turns(says("", FETCH), says("ok"))
    agent = create_agent(model, [fetch], middleware=[middleware])
    waiting = await agent.ainvoke("go")
    (question,) = waiting.interrupts
    result = await agent.aresume(waiting.run.id, {question.id: "yes"})
    assert (results(result)[0].text, seen) == ("yes", [])


async def test_it_is_only_for_the_tools_it_names_and_several_may_be_listed():
    @tool
    async def send() -> str:
        """Send."""
        raise ConnectionError("down")

    first = ToolErrorMiddleware(lambda error, request: "first", tools=["fetch"])
    second = ToolErrorMiddleware(lambda error, request: "second", tools=[send])
    assert (first.name, second.name) == ("ToolErrorMiddleware[fetch]", "ToolErrorMiddleware[send]")
    result = await run([broken(), send], first, second, calls=(FETCH, call("2", "send")))
    assert [one.text for one in results(result)] == ["first", "second"]


async def test_the_innermost_that_answers_decides():
    inner = ToolErrorMiddleware(lambda error, request: "inner", tools=["fetch"])
    result = await run([broken()], ToolErrorMiddleware(plain), inner)
    assert results(result)[0].text == "inner"


@pytest.mark.parametrize("outside", [True, False])
async def test_it_is_asked_once_after_the_last_of_several_attempts(outside):
    seen = []

    def look(error, request):
        seen.append(str(error))
        return "gave up"

    own = ToolErrorMiddleware(look)
    retry = ToolRetryMiddleware(initial_delay=0, on_failure="error")
    tools = [broken(ConnectionError("reset"), read_only=True)]
    result = await run(tools, *((own, retry) if outside else (retry, own)))
    assert (results(result)[0].text, result.used.tool_calls) == ("gave up", 3)
    assert seen == ["reset"]


async def test_siblings_keep_their_results():
    @tool
    async def step() -> str:
        """Do a step."""
        return "did"

    result = await run(
        [broken(), step], ToolErrorMiddleware(plain), calls=(FETCH, call("2", "step"))
    )
    assert [one.text for one in results(result)] == ["no Rome (KeyError)", "did"]


def failing(error, request):
    raise ZeroDivisionError("oops")


@pytest.mark.parametrize(
    ("on_error", "text"),
    [
        (lambda error, request: 5, "on_error returned 5; it returns a text"),
        (lambda error, request: [], "on_error returned []"),
        (lambda error, request: ["text"], "on_error returned ['text']"),
        (failing, "raised ZeroDivisionError: oops"),
    ],
)
async def test_a_function_that_misbehaves_fails_the_run_and_is_named(on_error, text):
    result = await run([broken()], ToolErrorMiddleware(on_error))
    assert isinstance(result.error, MiddlewareError)
    assert "ToolErrorMiddleware" in str(result.error)
    assert text in str(result.error)


@pytest.mark.parametrize("on_error", [None, "sorry", lambda error: "", ToolError])
def test_a_handler_is_required_and_takes_error_and_request(on_error):
    with pytest.raises(AgentBuildError, match=r"on_error is a function of \(error, request\)"):
        ToolErrorMiddleware(on_error)
