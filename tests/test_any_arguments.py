"""Whatever arguments a model makes up for the tools of a deep agent, the run goes on."""

from typing import Any

import anyio
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.loop.agent import Agent
from deep_agent_mcp.harness.messages.message import AIMessage, ToolCall, ToolMessage
from deep_agent_mcp.harness.models.base import ChatRequest
from tests.loop.models import Turns, says

NAMES = sorted(
    [
        *("ls", "read_file", "write_file", "edit_file", "glob", "grep", "skill", "task"),
        *("write_todos", "no_such_tool", "", "a b", "x" * 300),
    ]
)
FIELDS = [
    *("path", "content", "old_string", "new_string", "pattern", "glob", "name", "file", "offset"),
    *("limit", "todos", "id", "status", "merge", "description", "subagent_type", "task_id", ""),
]
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(["/", "/a", "general-purpose", "completed", "pending", "in_progress", "t1"]),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    ),
    max_leaves=8,
)
calls = st.builds(
    lambda name, args, invalid: (name, args, invalid),
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=4),
    st.sampled_from([None, None, None, "", "{", "null", '{"path": NaN}', "\0"]),
)


def model_of(rounds: list[list[tuple[str, Any, str | None]]]) -> Turns:
    def turn(request: ChatRequest) -> AIMessage:
        place = sum(isinstance(one, AIMessage) for one in request.messages)
        if request.agent != "main" or place >= len(rounds):
            return says("done")
        made = [
            ToolCall(f"c{place}.{number}", name, {} if invalid is not None else args, invalid)
            for number, (name, args, invalid) in enumerate(rounds[place])
        ]
        return says("", *made)

    return Turns(*[turn] * 12)


def agent_of(model: Turns) -> Agent:
    return create_deep_agent(model)


@given(st.lists(st.lists(calls, min_size=1, max_size=3), min_size=1, max_size=3))
def test_the_run_goes_on_and_every_call_has_its_result(
    rounds: list[list[tuple[str, Any, str | None]]],
) -> None:
    async def run() -> None:
        with anyio.fail_after(60):
            result = await agent_of(model_of(rounds)).ainvoke("go")
        assert (result.run.status, result.run.answer) == ("done", "done"), result.error
        messages = result.state["messages"]
        results = [one.tool_call_id for one in messages if isinstance(one, ToolMessage)]
        made = [one.id for m in messages if isinstance(m, AIMessage) for one in m.tool_calls]
        assert sorted(results) == made  # calls that a hook answers have their results first
        for one in messages:
            if isinstance(one, ToolMessage) and one.status == "error":
                assert one.text.strip()

    anyio.run(run)
