"""Agents and functions that are ready to run as subagents."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import pytest
from pydantic import BaseModel

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.limits.carried_limits import bounds
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.subagents.definitions import GENERAL_PURPOSE, CompiledSubAgent, SubAgent
from deep_agent_mcp.harness.subagents.registry import SubAgentRegistry
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says
from tests.subagents.family import family, task, told

pytestmark = pytest.mark.anyio


class Verdict(BaseModel):
    good: bool


@dataclass
class Count:
    words: int


def count(text: str) -> Count:
    return Count(len(text.split()))


async def judge(text: str, runtime: ToolRuntime) -> Verdict:
    runtime.stream_writer({"judged": text})
    return Verdict(good="fine" in text)


class Shouts:
    def __call__(self, text: str) -> str:
        return text.upper()


async def stored(text: str) -> ToolResult:
    return ToolResult(f"kept {text}", artifact={"size": len(text)})


async def prefixed(prefix: str, text: str) -> str:
    return f"{prefix}: {text}"


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (count, '{"words": 3}'),
        (judge, '{"good": true}'),
        (Shouts(), "ALL IS FINE"),
        (stored, "kept all is fine"),
        (partial(prefixed, "said"), "said: all is fine"),
        (lambda text: None, "(no output)"),
    ],
)
async def test_any_function_can_be_a_subagent_and_returns_what_a_tool_may(function, text):
    helper = CompiledSubAgent("helper", "Helps.", function)
    turns = {"main": [says("", task("1", "all is fine", "helper")), says("thanks")]}
    result = await family(turns, subagents=[helper]).ainvoke("go")
    (answer,) = told(result)
    assert (answer.text, answer.status) == (text, "success")
    assert answer.artifact == ({"size": 11} if function is stored else None)


async def test_a_function_that_fails_is_an_error_result_and_its_siblings_go_on():
    async def fail(text: str) -> str:
        raise ValueError(f"no {text}")

    answer = says("", task("1", "luck", "broken"), task("2", "x", "fine"))
    agent = family(
        {"main": [answer, says("one of two")]},
        subagents=[
            CompiledSubAgent("broken", "Fails.", fail),
            CompiledSubAgent("fine", "Works.", lambda text: "ok"),
        ],
    )
    result = await agent.ainvoke("go")
    first, second = told(result)
    assert (first.status, second.status) == ("error", "success")
    assert first.text.startswith("Subagent broken did not finish: ValueError: no luck.")
    assert result.run.answer == "one of two"


async def test_a_function_is_stopped_when_its_time_is_over():
    async def sleep(text: str) -> str:
        await anyio.sleep_forever()
        return text

    slow = CompiledSubAgent("slow", "Sleeps.", sleep, bounds(seconds=0.05))
    agent = family({"main": [says("", task("1", "x", "slow")), says("ok")]}, subagents=[slow])
    with anyio.fail_after(60):
        result = await agent.ainvoke("go")
    (answer,) = told(result)
    assert answer.status == "error"
    assert "limit: it was stopped after 0.05 seconds" in answer.text


async def test_a_function_can_ask_a_person():
    async def ask(text: str, runtime: ToolRuntime) -> str:
        return f"{text}: {runtime.interrupt('which?')}"

    agent = family(
        {"main": [says("", task("1", "colour", "asker")), says("ok")]},
        subagents=[CompiledSubAgent("asker", "Asks.", ask)],
    )
    waiting = await agent.ainvoke("go")
    (question,) = waiting.interrupts
    result = await agent.aresume(waiting.run.id, {question.id: "blue"})
    assert told(result)[0].text == "colour: blue"


async def test_an_agent_runs_with_its_own_model_and_tools_and_the_callers_policy_holds_too():
    ran = []

    @tool
    async def act(what: str) -> str:
        """Act."""
        ran.append(what)
        return f"did {what}"

    own = create_agent(
        Turns(says("", call("a", "act", what="x"), call("b", "act", what="y")), says("report")),
        [act],
        policy=Policy([Rule("deny", "act", args={"what": "x"})]),
        name="worker",
    )
    agent = family(
        {"main": [says("", task("1", "work", "worker")), says("ok")]},
        subagents=[CompiledSubAgent("worker", "Works.", own)],
        policy=Policy([Rule("deny", "act", args={"what": "y"})]),
    )
    result = await agent.ainvoke("go", thread_id="t")
    assert told(result)[0].text.startswith("report\n\n[task_id: sub-")
    assert ran == []
    assert any(ns.startswith("task:1@") for ns in await agent.checkpointer.namespaces("t"))


async def test_the_limits_an_agent_was_built_with_hold_for_each_task():
    turns = [says("", call(str(n), "step")) for n in range(20)]

    @tool
    async def step() -> str:
        """Step."""
        return "did"

    own = create_agent(Turns(*turns), [step], limits=Limits(model_calls=2), name="worker")
    agent = family(
        {"main": [says("", task("1", "a", "worker"), task("2", "b", "worker")), says("ok")]},
        subagents=[CompiledSubAgent("worker", "Works.", own)],
    )
    result = await agent.ainvoke("go")
    assert result.used.model_calls == 2 + 2 * 2
    assert all("2 model calls allowed" in one.text for one in told(result))


def test_what_cannot_be_a_subagent_is_refused_when_it_is_made():
    with pytest.raises(AgentBuildError, match=r"subagent 'x': .* as one parameter"):
        CompiledSubAgent("x", "X.", lambda a, b: "")
    with pytest.raises(AgentBuildError, match="a generator cannot be"):
        CompiledSubAgent("x", "X.", lambda a: (yield a))
    with pytest.raises(AgentBuildError, match="needs a name that is text"):
        CompiledSubAgent("", "X.", lambda a: a)
    for name in ("a/b", "a b", "a\nb", "x" * 101):
        with pytest.raises(AgentBuildError, match="a name has letters, digits"):
            CompiledSubAgent(name, "X.", lambda a: a)
    with pytest.raises(AgentBuildError, match="needs a description"):
        SubAgent("x", None)  # type: ignore[arg-type]
    with pytest.raises(AgentBuildError, match=r"got \{'name': 'x'\}"):
        SubAgentRegistry(None, given=[{"name": "x"}])  # type: ignore[list-item]


def test_two_of_one_name_are_an_error_that_names_both(tmp_path: Path):
    one = SubAgent("x", "Does this.", "p")
    two = CompiledSubAgent("x", "Does that.", lambda text: text)
    with pytest.raises(AgentBuildError, match=r"SubAgent that 'Does this.'.*Does that\."):
        family({"main": []}, subagents=[one, two])
    path = tmp_path / "x.md"
    path.write_text("---\nname: x\ndescription: D.\n---\nBody.\n")
    registry = SubAgentRegistry(tmp_path, given=[two])
    assert registry.get("x") is two
    assert "already taken by a CompiledSubAgent given in code" in registry.errors[str(path)]


def test_general_purpose_is_there_unless_one_of_its_name_is_given():
    own = SubAgent("general-purpose", "Mine.", "p")
    assert SubAgentRegistry(None, given=[own]).get("general-purpose") is own
    other = SubAgentRegistry(None, given=[SubAgent("x", "X.", "p")])
    assert list(other.subagents) == ["general-purpose", "x"]
    assert other.get("general-purpose") is GENERAL_PURPOSE
