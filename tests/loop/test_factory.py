"""What an option of `create_agent` promises, it does."""

import socket
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import anyio
import pytest
from pydantic import BaseModel

from deep_agent_mcp.harness.agent import Agent, RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import AgentBuildError, InvalidUpdate
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware, hook_config
from deep_agent_mcp.harness.messages.message import AIMessage, ProviderBlock, ToolMessage
from deep_agent_mcp.harness.models.base import PromptSection
from deep_agent_mcp.harness.models.registry import UnknownModel, init_chat_model
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}


@tool
async def look() -> str:
    """Look."""
    return "saw it"


def looking(**more: Any) -> Agent:
    return create_agent(Turns(says("", call("1", "look")), says("done")), [look], **more)


# --- model, tools, prompt ------------------------------------------------------------------


async def test_a_model_is_an_object_or_a_name(tmp_path):
    script = tmp_path / "s.yaml"
    script.write_text("agents: {'*': [{text: hello}]}\n")
    agent = create_agent(f"scripted:{script}")
    assert (await agent.ainvoke("go")).run.answer == "hello"
    with pytest.raises(UnknownModel, match="unknown model 'nope:x'"):
        create_agent("nope:x")


async def test_without_tools_the_model_is_asked_once():
    for tools in ((), []):
        model = Turns(says("hi"))
        result = await create_agent(model, tools).ainvoke("go")
        assert (result.run.answer, model.requests[0].tools) == ("hi", [])


async def test_a_tool_may_be_a_plain_function():
    def add(a: int, b: Literal[1, 2] = 2) -> int:
        """Add two numbers.

        Args:
            a: The first.
        """
        return a + b

    model = Turns(says("", call("1", "add", a=1)), says("ok"))
    result = await create_agent(model, [add]).ainvoke("go")
    (spec,) = model.requests[0].tools
    assert (spec.name, spec.description) == ("add", "Add two numbers.")
    assert spec.parameters["required"] == ["a"]
    assert spec.parameters["properties"]["a"]["description"] == "The first."
    assert result.state["messages"][2].text == "3"


async def test_a_tool_of_the_provider_reaches_the_model_and_never_runs_here():
    used = ProviderBlock("anthropic", {"type": "server_tool_use", "name": "web_search"})
    model = Turns(AIMessage((used, *says("found", call("1", "web_search")).content)), says("ok"))
    agent = create_agent(model, [look, SEARCH])
    result = await agent.ainvoke("go")
    own, provided = model.requests[0].tools
    assert (own.name, provided) == ("look", SEARCH)
    assert [*agent.tools] == ["look"]
    (refused,) = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert (refused.status, "no tool 'web_search'" in refused.text) == ("error", True)
    assert result.state["messages"][1].content[0] == used
    with pytest.raises(AgentBuildError, match="needs the provider's type"):
        create_agent(model, [{"name": "x", "input_schema": {}}])


@pytest.mark.parametrize(
    ("prompt", "sections"),
    [
        ("", []),
        ((), []),
        ("Be brief.", [PromptSection("agent", "Be brief.")]),
        (
            [PromptSection("rules", "A", cache=True), PromptSection("tone", "B")],
            [PromptSection("rules", "A", cache=True), PromptSection("tone", "B")],
        ),
    ],
)
async def test_a_prompt_is_text_or_sections_and_stays_out_of_the_transcript(prompt, sections):
    class Adds(AgentMiddleware):
        async def wrap_model_call(self, request, handler):
            return await handler(request.with_section("more", "C"))

    model = Turns(says("ok"))
    agent = create_agent(model, [], system_prompt=prompt, middleware=[Adds()])
    result = await agent.ainvoke("go")
    assert [*model.requests[0].system] == [*sections, PromptSection("more", "C")]
    assert [one.type for one in result.state["messages"]] == ["human", "ai"]


# --- what is refused -----------------------------------------------------------------------


def test_what_makes_no_sense_is_refused_when_the_agent_is_built():
    class Brings(AgentMiddleware):
        tools = (look,)

    for tools, middleware, text in [
        ([look, look], [], "two tools are named 'look': one of tools=, one of tools="),
        ([look], [Brings()], "two tools are named 'look': one of Brings, one of tools="),
        ([], [Brings(), Brings()], "middleware named twice: Brings"),
    ]:
        with pytest.raises(AgentBuildError, match=text):
            create_agent(Turns(), tools, middleware=middleware)
    with pytest.raises(AgentBuildError, match=r"there is no tool 'nope'\. Available: look"):
        create_agent(Turns(), [look], tool_names=["nope"])
    with pytest.raises(AgentBuildError, match=r"no node 'nope' to stop at; nodes: .*model"):
        create_agent(Turns(), [look], interrupt_before=["nope"])


async def test_only_the_named_tools_are_offered_and_run():
    @tool
    async def other() -> str:
        """Other."""
        raise AssertionError

    model = Turns(says("", call("1", "other")), says("ok"))
    result = await create_agent(model, [look, other], tool_names=["look"]).ainvoke("go")
    assert [one.name for one in model.requests[0].tools] == ["look"]
    assert "no tool 'other'" in result.state["messages"][2].text


# --- context, store, name ------------------------------------------------------------------


@dataclass
class Caller:
    user: str
    rank: int = 0


class CallerModel(BaseModel):
    user: str
    rank: int = 0


class CallerDict(TypedDict):
    user: str


@dataclass
class Holds:
    user: str
    line: socket.socket


class Sees(AgentMiddleware):
    """Notes what hooks, wraps and tools are given."""

    def __init__(self, attribute: str) -> None:
        self.attribute = attribute
        self.seen: list[Any] = []

    def _note(self, runtime: Any) -> None:
        self.seen.append(getattr(runtime, self.attribute))

    def before_agent(self, state, runtime):
        self._note(runtime)

    async def wrap_model_call(self, request, handler):
        self._note(request.runtime)
        return await handler(request)

    async def wrap_tool_call(self, request, handler):
        self._note(request.runtime)
        return await handler(request)

    @property
    def tools(self):  # type: ignore[override]
        @tool
        async def look(runtime: ToolRuntime) -> str:
            """Look."""
            self._note(runtime)
            return "saw it"

        return [look]


async def seen(attribute: str, options: RunOptions | None = None, **more: Any) -> Any:
    sees = Sees(attribute)
    model = Turns(says("", call("1", "look")), says("done"))
    result = await create_agent(model, middleware=[sees], **more).ainvoke("go", options=options)
    assert result.run.status == "done"
    assert len(sees.seen) == 5
    assert all(one is sees.seen[0] for one in sees.seen)
    return sees.seen[0]


@pytest.mark.parametrize(
    ("schema", "given", "value"),
    [
        (Caller, {"user": "a"}, Caller("a")),
        (Caller, {"user": "a", "rank": "2"}, Caller("a", 2)),
        (CallerModel, {"user": "a"}, CallerModel(user="a")),
        (CallerDict, {"user": "a"}, {"user": "a"}),
        (dict, {"user": "a"}, {"user": "a"}),
        (None, {"any": 1}, {"any": 1}),
        (Caller, None, None),
        (CallerModel, None, None),
    ],
)
async def test_a_context_is_of_the_declared_type_wherever_it_is_seen(schema, given, value):
    found = await seen("context", RunOptions(context=given), context_schema=schema)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("given", [Caller("a"), CallerModel(user="a")])
async def test_a_context_that_is_of_the_type_is_handed_on_itself(given):
    found = await seen("context", RunOptions(context=given), context_schema=type(given))
    assert found is given


async def test_a_context_may_hold_live_objects():
    with socket.socket() as line:
        given = {"user": "a", "line": line}
        found = await seen("context", RunOptions(context=given), context_schema=Holds)
        assert found == Holds("a", line)


@pytest.mark.parametrize("schema", [Caller, CallerModel, CallerDict])
async def test_a_context_that_does_not_fit_is_refused_before_anything_runs(schema):
    model = Turns(says("ok"))
    agent = create_agent(model, [], context_schema=schema)
    with pytest.raises(InvalidUpdate, match=r"(?s)context does not fit.*nothing was run.*user"):
        await agent.ainvoke("go", thread_id="t", options=RunOptions(context={"name": "x"}))
    assert model.requests == []
    assert await agent.checkpointer.load("t") is None
    again = await agent.ainvoke("go", thread_id="t", options=RunOptions(context={"user": "x"}))
    assert again.run.status == "done"


def test_a_context_type_nobody_can_check_is_refused_at_build():
    @dataclass
    class Lost:
        user: "NoSuchType"  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(AgentBuildError, match=r"context_schema=.*Lost.*cannot be checked"):
        create_agent(Turns(), [], context_schema=Lost)


async def test_a_store_is_handed_to_hooks_wraps_and_tools():
    store = object()
    assert await seen("store", store=store) is store
    assert await seen("store") is None


async def test_the_name_is_on_answers_events_runs_and_requests():
    events = []
    options = RunOptions(emit=events.append, modes=("tasks", "messages"))
    agent = looking(name="scout")
    result = await agent.ainvoke("go", options=options)
    names = [one.name for one in result.state["messages"] if isinstance(one, AIMessage)]
    assert (agent.name, result.run.agent, names) == ("scout", "scout", ["scout", "scout"])
    assert {one.path[0] for one in events} == {"scout"}
    assert {one.agent for one in agent.definition.model.requests} == {"scout"}


# --- breakpoints, checkpointer, limits -----------------------------------------------------


@pytest.mark.parametrize(
    ("options", "stops"),
    [
        ({"interrupt_before": ["tools"]}, 1),
        ({"interrupt_before": "model"}, 2),
        ({"interrupt_after": ["model"]}, 1),
        ({"interrupt_after": ["tools"]}, 1),
        ({"interrupt_before": ["model", "tools"], "interrupt_after": ["tools"]}, 4),
        ({"interrupt_before": ["Sees.before_agent"]}, 1),
    ],
)
async def test_a_run_stops_at_its_breakpoints_and_goes_on_in_another_agent(options, stops):
    journal = MemoryCheckpointer()
    more = {**options, "checkpointer": journal, "middleware": [Sees("run_id")], "model": Turns(
        says("", call("1", "look")), says("done"))}  # fmt: skip
    result = await create_agent(**more).ainvoke("go")
    count = 0
    while result.run.status == "needs_approval":
        count += 1
        assert [one.kind for one in result.interrupts] == ["breakpoint"]
        result = await create_agent(**more).aresume(result.run.id)
    assert (result.run.answer, count) == ("done", stops)
    results = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert len(results) == 1


async def test_agents_over_one_journal_share_its_threads():
    journal = MemoryCheckpointer()
    await create_agent(Turns(says("a")), [], checkpointer=journal).ainvoke("1", thread_id="t")
    alone = create_agent(Turns(says("a"), says("b")), [])
    assert len((await alone.ainvoke("1", thread_id="t")).state["messages"]) == 2
    other = create_agent(Turns(says("a"), says("b")), [], checkpointer=journal)
    assert len((await other.ainvoke("2", thread_id="t")).state["messages"]) == 4
    assert len((await other.ainvoke("3", thread_id="u")).state["messages"]) == 2
    listed = [one.thread_id for one in await other.checkpointer.threads()]
    assert sorted(listed) == ["t", "u"]


async def test_a_run_may_bring_limits_of_its_own():
    def agent(limits: Limits | None) -> Agent:
        turns = [says("", call(str(n), "look")) for n in range(9)]
        return create_agent(Turns(*turns, says("done")), [look], limits=limits)

    own, tight = Limits(model_calls=4), RunOptions(limits=Limits(model_calls=2))
    for limits, options, calls in [(None, None, 10), (own, None, 4), (own, tight, 2)]:
        result = await agent(limits).ainvoke("go", options=options)
        assert result.used.model_calls == calls


# --- models that a run configures ----------------------------------------------------------


def _scripts(folder, *names: str) -> list[str]:
    for name in names:
        (folder / f"{name}.yaml").write_text(f"agents: {{'*': [{{text: I am {name}}}]}}\n")
    return [f"scripted:{folder / name}.yaml" for name in names]


async def test_a_run_chooses_the_model_and_a_wrapper_may_choose_another(tmp_path):
    one, two, three = _scripts(tmp_path, "one", "two", "three")

    class Route(AgentMiddleware):
        async def wrap_model_call(self, request, handler):
            if request.messages[-1].text != "three":
                return await handler(request)
            return await handler(request.override(model=init_chat_model(three)))

    model = init_chat_model(one, configurable_fields=["model"], config_prefix="main")
    agent = create_agent(model, [], middleware=[Route()])
    chosen = RunOptions(configurable={"main_model": two, "other_model": three})
    assert (await agent.ainvoke("go")).run.answer == "I am one"
    assert (await agent.ainvoke("go", options=chosen)).run.answer == "I am two"
    assert (await agent.ainvoke("three", options=chosen)).run.answer == "I am three"
    refused = await agent.ainvoke("go", options=RunOptions(configurable={"main_base_url": "x"}))
    assert refused.run.status == "failed"
    assert "'main_base_url' cannot be set by a run" in str(refused.error)


# --- the agent that comes back -------------------------------------------------------------


async def test_one_agent_carries_many_runs_at_once():
    agent = create_agent(Turns(lambda request: says(request.messages[-1].text)), [])
    answers: dict[str, str | None] = {}

    async def run(name: str) -> None:
        answers[name] = (await agent.ainvoke(name)).run.answer

    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(run, str(number))
    assert answers == {str(n): str(n) for n in range(50)}


async def test_closing_an_agent_closes_its_middleware_and_model():
    closed: list[str] = []

    class Closes(AgentMiddleware):
        async def aclose(self):
            closed.append("middleware")

        @hook_config(can_jump_to=["end"])
        def before_model(self, state, runtime):
            return None

    class Closing(Turns):
        async def aclose(self):
            closed.append("model")

    await create_agent(Closing(), [], middleware=[Closes()]).aclose()
    assert closed == ["middleware", "model"]
