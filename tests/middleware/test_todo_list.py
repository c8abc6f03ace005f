from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import ToolError
from deep_agent_mcp.harness.messages.message import HumanMessage, Message, ToolCall, ToolMessage
from deep_agent_mcp.harness.middleware.todo_list import (
    Todo,
    TodoListMiddleware,
    TodoState,
    render_todos,
)
from deep_agent_mcp.harness.middleware.tools.tool_calls import HumanInTheLoopMiddleware
from deep_agent_mcp.harness.state.channels import Mark
from deep_agent_mcp.harness.state.schema import StateSchema
from deep_agent_mcp.harness.tools.tool import InvalidArguments, ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says
from tests.middleware.support import Sent, answer, loops, model_request, runtime

pytestmark = pytest.mark.anyio


class _State:
    """The part of a tool's runtime that `write_todos` looks at."""

    ns = ""

    def __init__(self, todos: Sequence[Todo]) -> None:
        self.state = {"todos": list(todos)}
        self.events: list[Any] = []
        self.stream_writer = self.events.append


async def write(
    items: Sequence[Mapping[str, Any]], known: Sequence[Todo] = (), **options: bool
) -> ToolResult:
    (writer,) = TodoListMiddleware().tools
    args = writer.validate({"todos": cast(Any, items), **options})
    result = await writer.function(args, cast(ToolRuntime, _State(known)))
    assert isinstance(result, ToolResult)
    return result


async def written(
    items: Sequence[Mapping[str, Any]], known: Sequence[Todo] = (), **options: bool
) -> list[Todo]:
    return (await write(items, known, **options)).update["todos"]


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
    (writer,) = TodoListMiddleware().tools
    jsonschema.validate(artifact, writer.output_schema or {})


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


async def test_new_items_get_an_id_beside_those_that_a_model_chose() -> None:
    known = await written([{"content": "a", "id": "setup"}, {"content": "b", "id": "t7x"}])
    both = await written([{"content": "c"}, {"content": "d", "id": "last"}], known, merge=True)
    assert [todo.id for todo in both] == ["setup", "t7x", "t1", "last"]


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
    "item", [{"content": 1}, {"content": "a", "status": "done"}, {"content": "a", "state": "x"}]
)
async def test_a_malformed_item_is_refused_with_what_is_expected(item: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments, match="was not run"):
        await write([item])


async def test_an_empty_list_clears() -> None:
    result = await write([], [Todo("t1", "a")])
    assert result.update["todos"] == []
    assert "empty" in cast(str, result.content)


def _item(content: str, key: str) -> dict[str, str]:
    return {"content": content, "id": key}


def _ids_once(items: list[dict[str, str]]) -> bool:
    return sum(item["id"] != "" for item in items) <= 1


_items = st.lists(
    st.builds(_item, st.sampled_from("abc"), st.sampled_from(["", "", "t2"])), max_size=5
).filter(_ids_once)


@given(_items, _items, st.booleans())
async def test_ids_are_unique_and_the_same_write_twice_changes_nothing(
    first: list[dict[str, str]], second: list[dict[str, str]], merge: bool
) -> None:
    known = await written(first)
    once = await written(second, known, merge=merge)
    assert len({todo.id for todo in once}) == len(once)
    assert await written(second, once, merge=merge) == once
    if merge:
        assert {todo.id for todo in once} >= {todo.id for todo in known}


KNOWN = [Todo("t1", "a", "completed"), Todo("t2", "b", "in_progress"), Todo("t3", "c")]


async def test_a_partial_write_changes_adds_and_removes_only_what_it_names() -> None:
    got = await written(
        [{"id": "t2", "status": "completed"}, {"content": "d"}, {"id": "t1", "status": "removed"}],
        KNOWN,
        merge=True,
    )
    assert got == [Todo("t2", "b", "completed"), Todo("t3", "c"), Todo("t4", "d")]
    assert await written([], KNOWN, merge=True) == KNOWN


async def test_what_is_left_out_of_a_known_item_stays_in_whole_and_partial_writes() -> None:
    for merge in (True, False):
        items = [{"id": "t1", "content": "A"}, {"id": "t2", "status": "pending"}, {"content": "c"}]
        got = await written(items, KNOWN, merge=merge)
        assert got == [Todo("t1", "A", "completed"), Todo("t2", "b"), Todo("t3", "c")]


async def test_a_partial_write_of_a_known_content_does_not_double_the_item() -> None:
    got = await written([{"content": "c", "status": "completed"}], KNOWN, merge=True)
    assert got == [*KNOWN[:2], Todo("t3", "c", "completed")]


@pytest.mark.parametrize("merge", [True, False])
async def test_an_item_that_is_neither_known_nor_says_anything_is_refused(merge: bool) -> None:
    with pytest.raises(ToolError, match=r"not written: there is no item 't9'. Ids .* t1, t2, t3"):
        await write([{"id": "t9", "status": "completed"}], KNOWN, merge=merge)
    for item in ({"status": "completed"}, {"content": " "}):
        with pytest.raises(ToolError, match="no content"):
            await write([item], KNOWN, merge=merge)


def test_the_schema_is_flat_and_holds_no_default_that_a_client_could_fill_in() -> None:
    (writer,) = TodoListMiddleware().tools
    schema: Any = writer.parameters
    assert "anyOf" not in str(schema)
    item = schema["properties"]["todos"]["items"]
    assert "default" not in str(item)
    assert item["properties"]["status"]["enum"] == [
        "pending",
        "in_progress",
        "completed",
        "removed",
    ]
    assert schema["required"] == ["todos"]


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


def test_of_several_lists_in_one_answer_the_first_is_written() -> None:
    calls = [
        ToolCall("0", "write_todos", {}, "{broken"),
        ToolCall("1", "write_todos"),
        ToolCall("2", "ls"),
        ToolCall("3", "write_todos"),
        ToolCall("4", "write_todos"),
    ]
    update = TodoListMiddleware().after_model({"messages": [answer("", *calls)]}, runtime())
    assert isinstance(update, dict)
    results: list[ToolMessage] = update["messages"]
    assert [(one.tool_call_id, one.status) for one in results] == [("3", "error"), ("4", "error")]
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
    bare = TodoListMiddleware(system_prompt="")
    await bare.wrap_model_call(model_request([], tools=bare.tools), sent)
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


def todos_call(call_id: str, *contents: str, **options: bool) -> ToolCall:
    return call(call_id, "write_todos", todos=[{"content": one} for one in contents], **options)


def tool_results(state: Mapping[str, Any]) -> list[ToolMessage]:
    return [one for one in state["messages"] if isinstance(one, ToolMessage)]


async def test_one_answer_writes_once_and_nobody_is_asked_about_the_others() -> None:
    model = Turns(says("", todos_call("a", "one"), todos_call("b", "two")), says("ok"))
    middleware = [TodoListMiddleware(), HumanInTheLoopMiddleware({"write_todos": True})]
    agent = create_agent(model, middleware=middleware)
    result = await agent.ainvoke("Go")
    (question,) = result.interrupts
    result = await agent.aresume(result.run.id, {question.id: {"decision": "approve"}})
    statuses = {one.tool_call_id: one.status for one in tool_results(result.state)}
    assert statuses == {"a": "success", "b": "error"}
    assert result.state["todos"] == [Todo("t1", "one")]


async def test_a_call_that_a_person_edits_into_a_second_list_is_an_error_too() -> None:
    @tool
    def note(text: str) -> str:
        """Note."""
        return text

    model = Turns(says("", todos_call("a", "one"), call("b", "note", text="x")), says("ok"))
    middleware = [TodoListMiddleware(), HumanInTheLoopMiddleware({"note": True})]
    agent = create_agent(model, [note], middleware=middleware)
    result = await agent.ainvoke("Go")
    (question,) = result.interrupts
    edit = {"decision": "edit", "tool": "write_todos", "args": {"todos": [{"content": "two"}]}}
    result = await agent.aresume(result.run.id, {question.id: edit})
    assert [one.status for one in tool_results(result.state)] == ["success", "error"]
    assert result.state["todos"] == [Todo("t1", "one")]


async def test_clients_get_an_event_when_the_list_changes_and_only_then() -> None:
    model = Turns(
        says("", todos_call("a", "one")),
        says("", todos_call("b", "one")),
        says("", todos_call("c", "two", merge=True)),
        says("ok"),
    )
    agent = create_agent(model, middleware=[TodoListMiddleware()])
    *events, result = [one async for one in agent.astream("Go", modes=["custom"])]
    changes = [cast(dict[str, Any], one.data)["data"] for one in events]
    assert [one["event"] for one in changes] == ["todos", "todos"]
    assert [item["content"] for item in changes[1]["todos"]] == ["one", "two"]
    assert changes[1]["counts"]["total"] == 2
    assert changes[1]["todos"] == tool_results(result.state)[-1].artifact["todos"]  # type: ignore[index]


async def test_a_subagent_sees_the_main_list_once_and_keeps_one_of_its_own() -> None:
    helper = Turns(says("", todos_call("h", "mine")), says("report"))
    child = create_agent(helper, middleware=[TodoListMiddleware()], name="helper")

    @tool
    async def ask(task: str, runtime: ToolRuntime) -> ToolResult:
        """Ask the helper."""
        result = await runtime.run_subagent(child, task)
        return ToolResult(result.failed or result.text, writes=result.writes)

    model = Turns(
        says("", call("z", "ask", task="early")),
        says("", todos_call("a", "lead", "follow")),
        says("", call("b", "ask", task="late"), call("c", "ask", task="later")),
        says("ok"),
    )
    agent = create_agent(model, [ask], middleware=[TodoListMiddleware()])
    result = await agent.ainvoke("Go")
    assert [one.content for one in result.state["todos"]] == ["lead", "follow"]
    assert "shared_todos" not in result.state
    assert [one.text for one in tool_results(result.state)][2:] == ["report", "report"]
    early, *late = [one.messages for one in helper.requests if one.messages[0].text == "early"]
    assert len(early) == 1
    assert late
    seen = [one.messages for one in helper.requests if one.messages[0].text.startswith("late")]
    assert len(seen) == 4
    for messages in seen:
        assert isinstance(messages[1], HumanMessage)
        assert messages[1].source == "todos"
        assert "[ ] lead (t1)" in messages[1].text
        assert sum("lead" in one.text for one in messages) == 1


async def test_an_agent_is_not_shown_its_own_list_as_somebody_elses() -> None:
    model = Turns(says("", todos_call("a", "lead")), says("ok"), says("again"))
    agent = create_agent(
        model, middleware=[TodoListMiddleware()], checkpointer=MemoryCheckpointer()
    )
    await agent.ainvoke("Go", thread_id="t")
    result = await agent.ainvoke("Go on", thread_id="t")
    humans = [one for one in result.state["messages"] if isinstance(one, HumanMessage)]
    assert [one.text for one in humans] == ["Go", "Go on"]


async def test_a_list_is_still_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "threads.sqlite3"
    model = Turns(
        says("", todos_call("a", "one")),
        says("ok"),
        says("", call("b", "write_todos", merge=True, todos=[{"id": "t1", "status": "completed"}])),
        says("done"),
    )
    for text in ("Go", "On"):
        async with SqliteCheckpointer(path) as journal:
            agent = create_agent(model, middleware=[TodoListMiddleware()], checkpointer=journal)
            result = await agent.ainvoke(text, thread_id="t")
    assert result.state["todos"] == [Todo("t1", "one", "completed")]


@pytest.mark.parametrize(
    "items",
    [
        [{"content": f"c{n}"} for n in range(1_001)],
        [{"content": "x" * 200_001}],
        [{"id": "i" * 100_001, "content": "x" * 100_000}],
    ],
)
async def test_a_list_has_a_bound_that_its_error_names(items: list[dict[str, str]]) -> None:
    with pytest.raises(ToolError, match="at most 1,000 items with 200,000 characters"):
        await write(items)


async def test_a_list_that_grows_by_merging_has_the_same_bound() -> None:
    known = [Todo(f"t{n}", "c") for n in range(1_000)]
    assert len((await write([{"id": "t1", "content": "d"}], known, merge=True)).update["todos"])
    with pytest.raises(ToolError, match="would have 1,001 items"):
        await write([{"content": "one more"}], known, merge=True)


async def test_errors_name_few_ids_and_few_problems() -> None:
    known = [Todo(f"t{n}", "c") for n in range(1_000)]
    with pytest.raises(ToolError, match="t19, and 980 more") as refused:
        await write([{"id": "x" * 5_000}], known, merge=True)
    assert len(str(refused.value)) < 500
    with pytest.raises(InvalidArguments, match="and 4,990 more") as invalid:
        await write(cast(Any, [[]] * 5_000))
    assert len(str(invalid.value)) < 3_000
