"""A grader that looks for itself: with the agent's reading tools, through the agent's gate."""

from typing import Any

import pytest

from deep_agent_mcp.harness.agent import Agent, create_agent
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.errors import AgentBuildError, MiddlewareError
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.messages.message import AIMessage, ToolCall, ToolMessage
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from deep_agent_mcp.harness.middleware.pii import PIIMiddleware
from deep_agent_mcp.harness.middleware.rubric import RubricMiddleware
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.state.channels import Mark
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.loop.models import Turns, call, says
from tests.middleware.test_rubric import GOOD, Grader, task, verdict, verdicts

pytestmark = pytest.mark.anyio

TEXT = "The price is 12 euros, says ann@example.org."


def worker() -> Turns:
    write = call("w", "write_file", path="/quote.md", content=TEXT)
    return Turns(says("", write), says("It is in /quote.md."), says("Better."))


def looks(*paths: str) -> AIMessage:
    return says("", *(call(f"r{n}", "read_file", path=path) for n, path in enumerate(paths)))


def agent_of(
    grader: Grader, *more: Any, tools: Any = ("read_file", "grep"), **options: Any
) -> Agent:
    rubric = {key: options.pop(key) for key in ("max_tool_calls",) if key in options}
    middleware = [
        FilesystemMiddleware(StateBackend()),
        *more,
        RubricMiddleware(grader, tools=tools, **rubric),
    ]
    return create_agent(worker(), middleware=middleware, **options)


def results(grader: Grader) -> list[str]:
    return [one.text for one in grader.requests[-1].messages if isinstance(one, ToolMessage)]


async def test_the_grader_reads_a_file_and_nothing_of_it_is_in_the_thread() -> None:
    grader = Grader(looks("/quote.md", "/none.md"), GOOD)
    agent = agent_of(grader)
    result = await agent.ainvoke(task(), thread_id="t")
    assert verdicts(result) == ["satisfied"]
    read, missing = results(grader)
    assert TEXT in read
    assert "/none.md" in missing
    assert [one.type for one in result.state["messages"]] == ["human", "ai", "tool", "ai"]
    assert {one.name for one in grader.requests[0].tools} == {"give_verdict", "read_file", "grep"}  # type: ignore[union-attr]
    assert grader.requests[0].tool_choice == "auto"
    assert "You may look for yourself" in grader.requests[0].system[0].text
    assert result.used.tool_calls == 3, "its calls count against the limits"
    history = await agent.get_state_history("t")
    assert [one.author for one in history] == ["after_agent", "model", "tools", "model", "input"]


async def test_the_number_of_its_calls_is_bounded_and_then_it_must_judge() -> None:
    grader = Grader(looks("/quote.md"), looks("/quote.md", "/quote.md"), GOOD)
    result = await agent_of(grader, max_tool_calls=2).ainvoke(task())
    assert verdicts(result) == ["satisfied"]
    first, second, third = results(grader)
    assert TEXT in first and TEXT in second
    assert "you have looked often enough" in third
    assert grader.requests[-1].tool_choice == "give_verdict"
    assert "You have looked 2 times" in grader.requests[-1].messages[-1].text


async def test_a_grader_that_only_looks_gives_no_usable_verdict() -> None:
    grader = Grader(*[looks("/quote.md")] * 20)
    result = await agent_of(grader, max_tool_calls=3).ainvoke(task())
    assert verdicts(result) == ["grader_error"]
    assert len(grader.requests) == 8
    assert result.run.status == "done"


async def test_a_grader_that_could_look_and_only_talks_is_asked_once_more() -> None:
    grader = Grader(says("Fine."), GOOD)
    assert verdicts(await agent_of(grader).ainvoke(task())) == ["satisfied"]
    assert "not usable" in grader.text


async def test_tools_that_it_was_not_given_are_refused() -> None:
    write = call("x", "write_file", path="/quote.md", content="gone")
    grader = Grader(says("", write, call("y", "nothing")), GOOD)
    result = await agent_of(grader).ainvoke(task())
    assert all("you have no such tool" in one for one in results(grader))
    assert "gone" not in str(result.state.get("files"))


async def test_a_verdict_with_broken_arguments_is_asked_for_again() -> None:
    grader = Grader(says("", ToolCall("v", "give_verdict", invalid='{"verdict":')), GOOD)
    assert verdicts(await agent_of(grader).ainvoke(task())) == ["satisfied"]
    (refusal,) = results(grader)
    assert "not a JSON object" in refusal
    assert "no such tool" not in refusal


@pytest.mark.parametrize("action", ["deny", "ask"])
async def test_its_calls_pass_the_policy_and_nobody_is_asked(action: Any) -> None:
    grader = Grader(looks("/quote.md"), GOOD)
    policy = Policy((Rule(action, "read_file"),))
    result = await agent_of(grader, policy=policy).ainvoke(task())
    assert (result.run.status, result.interrupts) == ("done", ())
    (refusal,) = results(grader)
    assert TEXT not in refusal
    assert ("was refused" if action == "deny" else "needs a person's decision") in refusal


async def test_what_it_reads_is_redacted() -> None:
    grader = Grader(looks("/quote.md"), GOOD)
    await agent_of(grader, PIIMiddleware("email", apply_to_tool_results=True)).ainvoke(task())
    assert "12 euros, says [REDACTED_EMAIL]" in results(grader)[0]


async def test_when_tool_calls_are_used_up_it_is_told() -> None:
    grader = Grader(looks("/quote.md"), GOOD)
    result = await agent_of(grader, limits=Limits(tool_calls=1)).ainvoke(task())
    assert "1 tool calls allowed, 1 used" in results(grader)[0]
    assert verdicts(result) == ["satisfied"]


async def test_state_that_its_tools_write_is_not_kept() -> None:
    @tool(read_only=True)
    def peek(runtime: ToolRuntime) -> Any:
        """Peek."""
        from deep_agent_mcp.harness.tools.tool import ToolResult

        return ToolResult("peeked", update={"seen": "yes"})

    from typing import Annotated, NotRequired, TypedDict

    class Seen(TypedDict):
        seen: Annotated[NotRequired[str], Mark.OMIT_FROM_INPUT]

    grader = Grader(says("", call("1", "peek")), GOOD)
    agent = create_agent(
        Turns(says("done")),
        [peek],
        state_schema=Seen,
        middleware=[RubricMiddleware(grader, tools=["peek"])],
    )
    result = await agent.ainvoke(task())
    assert results(grader) == ["peeked"]
    assert "seen" not in result.state


@pytest.mark.parametrize(("name", "why"), [("nope", "no such tool"), ("write_file", "only read")])
async def test_a_tool_it_cannot_have_fails_the_run_before_any_model_is_asked(
    name: str, why: str
) -> None:
    grader = Grader()
    result = await agent_of(grader, tools=[name]).ainvoke(task())
    assert isinstance(result.error, MiddlewareError)
    assert name in str(result.error) and why in str(result.error)
    assert result.used.model_calls == 0


@pytest.mark.parametrize("options", [{"tools": "read_file"}, {"max_tool_calls": 0}])
def test_wrong_options_are_refused(options: Any) -> None:
    with pytest.raises(AgentBuildError):
        RubricMiddleware(Grader(), **options)


async def test_a_verdict_beside_other_calls_is_the_verdict() -> None:
    both = AIMessage((*looks("/quote.md").content, *verdict("satisfied", True).content))
    grader = Grader(both)
    assert verdicts(await agent_of(grader).ainvoke(task())) == ["satisfied"]
    assert len(grader.requests) == 1
