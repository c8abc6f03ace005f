"""Which arguments of old calls are cut in the view: what a file holds, and nothing else."""

import pytest

from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    Message,
    ToolCall,
    ToolMessage,
)
from deep_agent_mcp.harness.middleware.context.context_edits import shortened
from tests.middleware.support import answer

LONG = "x" * 3_000


def made(*calls: ToolCall, status: str = "success") -> list[Message]:
    results = [ToolMessage(one.id, "ok", one.name, status=status) for one in calls]  # type: ignore[arg-type]
    return [HumanMessage("go"), answer("words", *calls), *results]


def arguments(messages: list[Message]) -> list[dict[str, object]]:
    found = shortened(messages, 2_000)
    assert [one.id for one in found] == [one.id for one in messages]
    (said,) = [one for one in found if isinstance(one, AIMessage)]
    assert said.text == "words"
    return [dict(one.args) for one in said.tool_calls]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("write_file", {"path": "/a", "content": LONG}),
        ("edit_file", {"path": "/a", "old_string": "short", "new_string": LONG}),
        ("edit_file", {"path": "/a", "old_string": LONG, "new_string": LONG, "replace_all": True}),
    ],
)
def test_long_texts_of_writing_calls_are_cut_and_the_rest_stays(
    name: str, args: dict[str, object]
) -> None:
    (shown,) = arguments(made(ToolCall("c", name, args)))  # type: ignore[arg-type]
    assert shown.keys() == args.keys()
    for key, value in args.items():
        if value == LONG:
            assert str(shown[key]).startswith("x" * 20 + "…")
            assert "2980 characters not shown" in str(shown[key])
        else:
            assert shown[key] == value


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("c", "write_file", {"path": "/a", "content": "x" * 2_000}),
        ToolCall("c", "shell", {"command": LONG}),
        ToolCall("c", "read_file", {"path": LONG}),
        ToolCall("c", "write_file", {"path": "/a", "content": [LONG]}),
        ToolCall("c", "write_file", {}, invalid='{"content": "' + LONG),
    ],
)
def test_short_ones_other_tools_and_odd_arguments_are_the_same_objects(call: ToolCall) -> None:
    messages = made(call)
    assert all(new is old for new, old in zip(shortened(messages, 2_000), messages, strict=True))


def test_only_the_long_call_of_an_answer_is_cut() -> None:
    write = ToolCall("w", "write_file", {"path": "/a", "content": LONG})
    other = ToolCall("o", "shell", {"command": LONG})
    cut, kept = arguments(made(write, other))
    assert len(str(cut["content"])) < 100
    assert kept == {"command": LONG}


def test_what_a_failed_call_did_not_write_stays_in_view() -> None:
    """It is in no file, so the model could not look it up."""
    write = ToolCall("w", "write_file", {"path": "/a", "content": LONG})
    (shown,) = arguments(made(write, status="error"))
    assert shown["content"] == LONG


def test_a_call_that_failed_says_nothing_of_others_with_its_id() -> None:
    """Some models number their calls anew in each answer."""
    write = ToolCall("call_0", "write_file", {"path": "/a", "content": LONG})
    messages = [*made(write, status="error"), *made(write), *made(write, status="error")]
    shown = [
        str(call.args["content"]) == LONG
        for one in shortened(messages, 2_000)
        if isinstance(one, AIMessage)
        for call in one.tool_calls
    ]
    assert shown == [True, False, True]
