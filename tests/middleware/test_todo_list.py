from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ToolError
from harness.messages import HumanMessage, Message, ToolCall, ToolMessage
from harness.middleware.todo_list import Todo, TodoListMiddleware, TodoState, render_todos
from harness.state import Mark, StateSchema
from harness.tools import InvalidArguments, ToolResult, ToolRuntime
from tests.middleware.support import Sent, answer, loops, model_request, runtime

pytestmark = pytest.mark.anyio


class _State:
    """The part of a tool's runtime that `write_todos` looks at."""

    def __init__(self, todos: Sequence[Todo]) -> None:
        self.state = {"todos": list(todos)}


async def write(items: Sequence[Mapping[str, Any]], known: Sequence[Todo] = ()) -> ToolResult:
    (tool,) = TodoListMiddleware().tools
    args = tool.validate({"todos": cast(Any, items)})
    result = await tool.function(args, cast(ToolRuntime, _State(known)))
    assert isinstance(result, ToolResult)
    return result


async def written(items: Sequence[Mapping[str, Any]], known: Sequence[Todo] = ()) -> list[Todo]:
    return (await write(items, known)).update["todos"]


async def test_a_write_replaces_the_list_and_says_everything_in_text_and_data() -> None:
    result = await write(
        [
            {"content": "Read", "status": "completed"},
            {"content": "Think", "status": "in_progress"},
            {"content": "Write"},
        ],
        [Todo("t9", "Old")],
    )
    assert result.content == (
        "Todos, 1 of 3 completed:\n[x] Read (t10)\n[>] Think (t11)\n[ ] Write (t12)"
    )
    artifact = cast(dict[str, Any], result.artifact)
    assert artifact["todos"][0] == {"id": "t10", "content": "Read", "status": "completed"}
    assert artifact["counts"] == {"pending": 1, "in_progress": 1, "completed": 1, "total": 3}
    (tool,) = TodoListMiddleware().tools
    jsonschema.validate(artifact, tool.output_schema or {})


async def test_an_item_keeps_its_id_by_id_or_by_content() -> None:
    first = await written([{"content": "a"}, {"content": "b"}])
    assert [todo.id for todo in first] == ["t1", "t2"]
    second = await written(
        [
            {"content": "new"},
            {"content": "b", "status": "completed"},
            {"content": "A!", "id": "t1"},
        ],
        first,
    )
    assert [todo.id for todo in second] == ["t3", "t2", "t1"]


async def test_items_of_the_same_content_keep_their_own_ids() -> None:
    known = await written([{"content": "a"}, {"content": "a"}])
    assert [todo.id for todo in await written([{"content": "a"}, {"content": "a"}], known)] == [
        "t1",
        "t2",
    ]


async def test_an_id_used_twice_is_refused() -> None:
    with pytest.raises(ToolError, match=r"not written.*x"):
        await write([{"content": "a", "id": "x"}, {"content": "b", "id": "x"}])


@pytest.mark.parametrize(
    "item", [{"content": " "}, {"content": "a", "status": "done"}, {"content": "a", "state": "x"}]
)
async def test_a_malformed_item_is_refused_with_what_is_expected(item: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments, match="was not run"):
        await write([item])


async def test_an_empty_list_clears() -> None:
    result = await write([], [Todo("t1", "a")])
    assert result.update == {"todos": []}
    assert "empty" in cast(str, result.content)


def _item(content: str, key: str) -> dict[str, str]:
    return {"content": content, "id": key}


def _ids_once(items: list[dict[str, str]]) -> bool:
    return sum(item["id"] != "" for item in items) <= 1


_items = st.lists(
    st.builds(_item, st.sampled_from("abc"), st.sampled_from(["", "", "t2"])), max_size=5
).filter(_ids_once)


@given(_items, _items)
async def test_ids_are_unique_and_the_same_write_twice_changes_nothing(
    first: list[dict[str, str]], second: list[dict[str, str]]
) -> None:
    known = await written(first)
    once = await written(second, known)
    assert len({todo.id for todo in once}) == len(once)
    assert await written(second, once) == once


def test_the_tool_states_its_nature_and_the_schema_has_no_references() -> None:
    (tool,) = TodoListMiddleware(tool_description="Mine").tools
    assert (tool.idempotent, tool.destructive, tool.read_only) == (True, False, False)
    assert tool.description == "Mine"
    assert "$ref" not in str(tool.parameters)


def test_the_list_survives_storage_and_is_not_input() -> None:
    channel = StateSchema.of((TodoState, "todos"))["todos"]
    todos = [Todo("t1", "a", "completed")]
    assert channel.decode(channel.encode(todos)) == todos
    assert channel.marks == {Mark.OMIT_FROM_INPUT}


def test_two_lists_in_one_answer_are_both_refused() -> None:
    calls = [ToolCall("1", "write_todos"), ToolCall("2", "ls"), ToolCall("3", "write_todos")]
    update = TodoListMiddleware().after_model({"messages": [answer("", *calls)]}, runtime())
    assert isinstance(update, dict)
    results: list[ToolMessage] = update["messages"]
    assert [(one.tool_call_id, one.status) for one in results] == [("1", "error"), ("3", "error")]
    assert "one call" in results[0].text


def test_one_list_passes_and_old_answers_do_not_count() -> None:
    old = answer("", ToolCall("1", "write_todos"), ToolCall("2", "write_todos"))
    refused: list[Message] = [ToolMessage("1", "no"), ToolMessage("2", "no")]
    middleware = TodoListMiddleware()
    new = answer("", ToolCall("3", "write_todos"))
    assert middleware.after_model({"messages": [old, *refused, new]}, runtime()) is None
    assert middleware.after_model({"messages": [old, *refused]}, runtime()) is None


async def test_the_prompt_is_sent_only_along_with_the_tool() -> None:
    middleware, sent = TodoListMiddleware(), Sent()
    await middleware.wrap_model_call(model_request([], tools=middleware.tools), sent)
    assert [section.name for section in sent.request.system] == ["todos"]
    await middleware.wrap_model_call(model_request([]), sent)
    assert sent.request.system == ()


TODOS = [Todo("t1", "Ship it", "in_progress")]
SHOWN: list[Message] = [
    HumanMessage("go"),
    answer("", ToolCall("w", "write_todos")),
    ToolMessage("w", render_todos(TODOS), "write_todos"),
]


async def shown(view: Sequence[Message], todos: Sequence[Todo] = TODOS) -> list[Message]:
    """What the model sees of a view, and nothing that was there before."""
    sent = Sent()
    await TodoListMiddleware().wrap_model_call(model_request(view, todos=todos), sent)
    messages = list(sent.request.messages)
    assert messages[: len(view)] == list(view)
    return messages[len(view) :]


async def test_a_list_in_view_is_not_repeated() -> None:
    assert await shown([*SHOWN, *loops(2)]) == []
    assert await shown([HumanMessage("go")], []) == []


async def test_a_list_that_compaction_cut_is_shown_again_at_the_end() -> None:
    (reminder,) = await shown([HumanMessage("go"), *loops(2)])
    assert isinstance(reminder, HumanMessage)
    assert reminder.source == "todos"
    assert "[>] Ship it (t1)" in reminder.text


async def test_a_list_that_was_cleared_or_changed_since_is_shown_again() -> None:
    cleared = [*SHOWN[:2], replace(cast(ToolMessage, SHOWN[2]), content="[cleared]")]
    assert len(await shown(cleared)) == 1
    (reminder,) = await shown(SHOWN, [Todo("t1", "Ship it", "completed")])
    assert "[x] Ship it" in cast(HumanMessage, reminder).text
