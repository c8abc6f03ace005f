"""The picture of an agent's loop, held against what the loop really does."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypedDict, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.loop.drawing import draw_mermaid
from deep_agent_mcp.harness.loop.hooks.middleware import (
    AgentMiddleware,
    HookName,
    hook_config,
)
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

HOOKS: tuple[HookName, ...] = get_args(HookName)
NODE = re.compile(r'^ *(\w+)(?:\["|\(\[")(.*?)(?:"\]|"\]\))$')
EDGE = re.compile(r'^ {4}(\w+) (-->|-\.->)(?:\|"([^"|]*)"\|)? (\w+)$')


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(return_direct=True)
async def report(text: str) -> str:
    """End with a text."""
    return text


def middleware(
    name: str,
    hooks: Sequence[str],
    jumps: Mapping[str, Sequence[Any]] | None = None,
    body: Callable[[str], Any] = lambda hook: None,
) -> AgentMiddleware:
    """Return a middleware with these hooks, of which some declare jumps."""

    def make(hook: str) -> Any:
        return hook_config(can_jump_to=(jumps or {}).get(hook, ()))(
            lambda self, state, runtime: body(hook)
        )

    namespace: dict[str, Any] = {hook: make(hook) for hook in hooks}
    return type("Made", (AgentMiddleware,), {**namespace, "name": name})()


class Total(TypedDict):
    total: int


class Wraps(AgentMiddleware):
    async def wrap_model_call(self, request, handler):
        return await handler(request)

    async def wrap_tool_call(self, request, handler):
        return await handler(request)


def drawn(*stack: AgentMiddleware, tools: Sequence[Any] = (add,), **options: Any) -> str:
    return draw_mermaid(create_agent(Turns(), tools, middleware=stack, **options).definition)


def nodes(text: str) -> dict[str, str]:
    """Return the labels of all declared nodes, by id."""
    return {found[1]: found[2] for line in text.splitlines() if (found := NODE.match(line))}


def edges(text: str) -> set[tuple[str, str]]:
    """Return all edges, as pairs of labels."""
    labels = nodes(text)
    found = [match for line in text.splitlines() if (match := EDGE.match(line))]
    return {(labels[one[1]], labels[one[4]]) for one in found}


def test_a_small_agent() -> None:
    text = drawn(
        middleware("Outer", ["before_agent", "before_model", "after_model", "after_agent"]),
        middleware("Inner", ["before_model", "after_model"], {"after_model": ["end"]}),
        Wraps(),
        tools=[add, report],
    )
    assert text == (
        """\
flowchart TD
    start(["start"])
    before_agent_0["Outer.before_agent"]
    before_model_0["Outer.before_model"]
    before_model_1["Inner.before_model"]
    after_model_0["Inner.after_model"]
    after_model_1["Outer.after_model"]
    after_agent_0["Outer.after_agent"]
    subgraph around_model["wrap_model_call: Wraps"]
        model["model"]
    end
    subgraph around_tools["wrap_tool_call: Wraps"]
        tools["tools"]
    end
    finish(["end"])
    start --> before_agent_0
    before_agent_0 --> before_model_0
    before_model_0 --> before_model_1
    before_model_1 --> model
    model --> after_model_0
    after_model_0 --> after_model_1
    after_model_1 -->|"calls"| tools
    after_model_1 -->|"calls answered by hooks"| before_model_0
    after_model_1 -->|"no calls"| after_agent_0
    tools -->|"results"| before_model_0
    tools -->|"return_direct"| after_agent_0
    after_agent_0 --> finish
    after_model_0 -.->|"jump to end"| after_agent_0
"""
    )


def test_a_model_alone_asks_once() -> None:
    assert drawn(tools=[]) == (
        """\
flowchart TD
    start(["start"])
    model["model"]
    finish(["end"])
    start --> model
    model --> finish
"""
    )


def test_the_first_of_the_list_is_outermost() -> None:
    first = middleware("First", HOOKS)
    last = middleware("Last", HOOKS)
    pairs = edges(drawn(first, last))
    assert ("First.before_agent", "Last.before_agent") in pairs
    assert ("First.before_model", "Last.before_model") in pairs
    assert ("Last.after_model", "First.after_model") in pairs
    assert ("Last.after_agent", "First.after_agent") in pairs


def test_after_the_tools_the_loop_begins_again_without_the_hooks_of_the_run() -> None:
    assert ("tools", "M.before_model") in edges(drawn(middleware("M", HOOKS)))


@pytest.mark.parametrize(
    ("hook", "target", "place"),
    [
        ("before_agent", "model", "First.before_model"),
        ("before_agent", "tools", "tools"),
        ("before_model", "end", "Last.after_agent"),
        ("after_model", "model", "First.before_model"),
        ("after_agent", "model", "First.before_model"),
        ("after_agent", "end", "end"),
    ],
)
def test_a_declared_jump_leads_where_the_loop_would_go(
    hook: HookName, target: str, place: str
) -> None:
    text = drawn(middleware("First", HOOKS), middleware("Last", HOOKS, {hook: [target]}))
    labels = nodes(text)
    (dashed,) = [
        match for line in text.splitlines() if (match := EDGE.match(line)) and match[2] == "-.->"
    ]
    assert (labels[dashed[1]], dashed[3]) == (f"Last.{hook}", f"jump to {target}")
    assert labels[dashed[4]] == place


def test_a_jump_the_loop_refuses_is_not_drawn() -> None:
    assert "-.->" not in drawn(middleware("M", HOOKS, {"before_model": ["model"]}))


def test_tools_are_drawn_when_something_could_lead_there() -> None:
    assert "tools" not in nodes(drawn(tools=[]))
    assert "tools" in nodes(drawn(Wraps(), tools=[]))
    assert "tools" in nodes(drawn(middleware("M", HOOKS, {"before_agent": ["tools"]}), tools=[]))


def test_structured_output_is_an_end_of_its_own() -> None:
    text = drawn(tools=[], response_format=Total)
    assert 'model -->|"repair"| model' in text
    assert 'model -->|"structured response"| finish' in text
    assert "no calls" not in text
    assert 'tools -->|"structured response"| finish' in drawn(response_format=Total)


@pytest.mark.parametrize(
    "name",
    [
        'say "hi"',
        "a]b[c](d)",
        "<script>alert(1)</script>",
        "end",
        "a;b%%c",
        "#quot;",
        "- `x`",
        "1. x",
        "\n",
    ],
)
def test_a_name_cannot_break_out_of_its_label(name: str) -> None:
    text = drawn(middleware(name, ["before_agent"]), Wraps())
    plain = drawn(middleware("Plain", ["before_agent"]), Wraps())
    assert [*nodes(text)] == [*nodes(plain)]
    label = nodes(text)["before_agent_0"].removesuffix(".before_agent")
    assert re.sub(r"#(\d+);", lambda code: chr(int(code[1])), label) == name
    assert not set(label) & set('"[]()<>{}|%`\n')


def test_a_name_in_another_script_stays_readable() -> None:
    assert "预算.before_agent" in nodes(drawn(middleware("预算", ["before_agent"]))).values()


AGENT = create_agent(Turns())

stacks = st.lists(
    st.builds(
        middleware,
        st.text(max_size=6),
        st.sets(st.sampled_from(HOOKS)).map(sorted),
        st.dictionaries(
            st.sampled_from(HOOKS), st.lists(st.sampled_from(["model", "tools", "end"]))
        ),
    ),
    max_size=3,
    unique_by=lambda one: one.name,
)


@given(stacks, st.lists(st.sampled_from([add, report]), unique_by=id), st.booleans())
def test_every_line_is_a_node_a_box_or_an_edge_between_declared_nodes(
    stack: list[AgentMiddleware], tools: list[Any], wrapped: bool
) -> None:
    definition = replace(
        AGENT.definition,
        middleware=(*stack, *([Wraps()] if wrapped else [])),
        tools={one.name: one for one in tools},
    )
    text = draw_mermaid(definition)
    head, *lines = text.splitlines()
    assert head == "flowchart TD"
    declared = nodes(text)
    linked = [found for line in lines if (found := EDGE.match(line))]
    assert {end for one in linked for end in (one[1], one[4])} == declared.keys() - {
        f"around_{node}" for node in declared
    }
    boxes = sum(line.strip().startswith("subgraph") for line in lines)
    assert len(declared) + len(linked) + 2 * boxes == len(lines)


def test_the_default_deep_agent_can_be_drawn() -> None:
    text = draw_mermaid(create_deep_agent(Turns()).definition)
    assert "wrap_model_call: FilesystemMiddleware, " in text
    assert ("tools" in nodes(text), "model" in nodes(text)) == (True, True)


@pytest.mark.parametrize(
    ("hook", "target"),
    [
        (None, None),
        ("before_agent", "model"),
        ("before_agent", "end"),
        ("before_model", "end"),
        ("after_model", "model"),
        ("after_model", "tools"),
        ("after_model", "end"),
        ("after_agent", "model"),
        ("after_agent", "end"),
    ],
)
async def test_a_run_walks_along_the_edges_of_the_picture(
    hook: str | None, target: str | None
) -> None:
    """The middleware in the middle jumps once; whatever happens then must be in the picture."""
    walk: list[str] = ["start"]
    left = [target]

    def visiting(name: str) -> Callable[[str], Any]:
        def visit(ran: str) -> Any:
            walk.append(f"{name}.{ran}")
            return {"jump_to": left.pop()} if (name, ran) == ("M", hook) and left else None

        return visit

    @tool
    async def look() -> str:
        """Look."""
        walk.append("tools")
        return "seen"

    def turn(answer: Any) -> Callable[[Any], Any]:
        def play(request: Any) -> Any:
            walk.append("model")
            return answer

        return play

    jumps = {hook: [target]} if hook else {}
    stack = [
        middleware("A", HOOKS, body=visiting("A")),
        middleware("M", HOOKS, jumps, body=visiting("M")),
        middleware("Z", HOOKS, body=visiting("Z")),
    ]
    turns = [turn(says("", call("1", "look"))), turn(says("done")), turn(says("again"))]
    agent = create_agent(Turns(*turns), [look], middleware=stack)
    result = await agent.ainvoke("go")
    assert result.run.status == "done", result.run.reason
    assert not (hook and left)
    missing = set(pairwise([*walk, "end"])) - edges(draw_mermaid(agent.definition))
    assert not missing
