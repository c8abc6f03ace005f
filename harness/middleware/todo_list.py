"""The todo list: one tool writes it, in full or in part, and it always stays in the model's view.

Items keep their ids in later writes, so clients can follow an item; they also get an event when the
list changes. If compaction has removed the list from view, it is shown again at the end of the
request. A subagent has its own list, and is shown the main agent's once when it starts.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, NotRequired, TypeAlias, TypedDict, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints

from .._internal.records import record
from ..errors import ToolError
from ..loop.hooks.middleware import AgentMiddleware
from ..loop.hooks.requests import HookResult, ModelHandler, ModelRequest, ModelResponse, Runtime
from ..messages.message import HumanMessage, Message, ToolMessage, pending_tool_calls
from ..state.channels import Mark, State
from ..subagents.background.engine import is_subagent
from ..tools.tool import Tool, ToolResult, ToolRuntime, tool

__all__ = ["Todo", "TodoItem", "TodoListMiddleware", "TodoState", "TodoStatus", "render_todos"]

TodoStatus: TypeAlias = Literal["pending", "in_progress", "completed"]

TOOL_NAME = "write_todos"

MOST_ITEMS = 1_000
MOST_CHARS = 200_000
"""The limits of a list, since each write shows all of it, and each step of a thread stores it."""

_MOST_NAMED = 20
"""The most ids that an error names."""

SYSTEM_PROMPT = """\
Keep a todo list with `write_todos` for work that takes three or more steps, for several requests \
at once, or when asked for one. For a single step, a quick answer or a chat, just do it.
- Set an item to in_progress before you start on it; several may be if they are independent.
- Set it to completed as soon as it is fully done, not with failing checks or open parts.
- If something blocks an item, leave it in_progress and add an item for what is needed first.
- Change the list when you learn more; drop what is no longer needed.
- Before your final answer, every item is completed or removed."""

TOOL_DESCRIPTION = """\
Write the thread's todo list. The list you send replaces the old one, so send every item. With \
`merge`, send only what changes: items with an `id` are updated (fields left out stay as they \
are), items without one are added. Status `removed` drops an item; an empty list without `merge` \
drops all. Call it at most once per answer."""

_OF_PARENT = "todos_of_parent"

_BOX: dict[TodoStatus, str] = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}
_STATUSES: tuple[TodoStatus, ...] = get_args(TodoStatus)


@record
class Todo:
    """One item of the list."""

    id: str
    content: str
    status: TodoStatus = "pending"


_Text: TypeAlias = Annotated[str, StringConstraints(strip_whitespace=True)]


def _without_default(schema: dict[str, JsonValue]) -> None:
    """Keep clients that fill in defaults from changing omitted fields."""
    schema.pop("default", None)


class TodoItem(BaseModel):
    """One item as a model writes it."""

    model_config = ConfigDict(extra="forbid")

    content: _Text = Field(
        default="",
        description="Required for a new item.",
        json_schema_extra=_without_default,
    )
    status: Literal["pending", "in_progress", "completed", "removed"] = Field(
        default="pending", json_schema_extra=_without_default
    )
    id: _Text = Field(
        default="",
        description="Leave out for a new item.",
        json_schema_extra=_without_default,
    )


class TodoState(TypedDict):
    """State of the middleware: the agent's own list, and the main agent's for its subagents."""

    todos: Annotated[NotRequired[list[Todo]], Mark.OMIT_FROM_INPUT]
    shared_todos: Annotated[NotRequired[list[Todo]], Mark.OMIT_FROM_OUTPUT]


_COUNTS = (*_STATUSES, "total")
_OUTPUT_SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {
        "todos": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "content": {"type": "string"},
                    "status": {"type": "string", "enum": list(_STATUSES)},
                },
                "required": ["id", "content", "status"],
            },
        },
        "counts": {
            "type": "object",
            "properties": {name: {"type": "integer"} for name in _COUNTS},
            "required": list(_COUNTS),
        },
    },
    "required": ["todos", "counts"],
}


def render_todos(todos: Sequence[Todo]) -> str:
    """Return the list as text: one line per item, such as `[x] Read the report (t1)`."""
    if not todos:
        return "The todo list is empty."
    done = sum(todo.status == "completed" for todo in todos)
    lines = (f"{_BOX[todo.status]} {todo.content} ({todo.id})" for todo in todos)
    return "\n".join((f"Todos, {done} of {len(todos)} completed:", *lines))


async def _write_todos(
    todos: list[TodoItem],
    runtime: ToolRuntime,
    merge: Annotated[bool, Field(description="Keep the items that are not sent.")] = False,
) -> ToolResult:
    known: Sequence[Todo] = runtime.state.get("todos") or ()
    _require_few(todos)
    written = _written(todos, known, merge=merge)
    _require_few(written)
    facts = _facts(written)
    if [*known] != written:
        runtime.stream_writer({"event": "todos", **facts})
    update = {"todos": written}
    if not runtime.ns:
        update["shared_todos"] = written
    return ToolResult(render_todos(written), artifact=facts, update=update)


def _facts(todos: Sequence[Todo]) -> dict[str, JsonValue]:
    counts = Counter(todo.status for todo in todos)
    facts = {
        "todos": [asdict(todo) for todo in todos],
        "counts": {**{name: counts[name] for name in _STATUSES}, "total": len(todos)},
    }
    return cast(dict[str, JsonValue], facts)


@lru_cache
def _tool(description: str) -> Tool:
    make = tool(
        name=TOOL_NAME,
        description=description,
        title="Write todos",
        idempotent=True,
        open_world=False,
        output_schema=_OUTPUT_SCHEMA,
    )
    return make(_write_todos)


def _require_few(items: Sequence[TodoItem] | Sequence[Todo]) -> None:
    """Refuse a list that is too long.

    Raises:
        ToolError: It is too long.
    """
    chars = sum(len(one.content) + len(one.id) for one in items)
    if len(items) > MOST_ITEMS or chars > MOST_CHARS:
        raise ToolError(
            f"The list was not written: it would have {len(items):,} items with {chars:,} "
            f"characters, and at most {MOST_ITEMS:,} items with {MOST_CHARS:,} characters are "
            "kept. Combine items, drop completed ones, and keep details in a file."
        )


def _named(names: Iterable[str]) -> str:
    """Return ids for an error; only some of them if they are many or long."""
    shown = [name if len(name) <= 100 else f"{name[:100]}…" for name in names]
    more = [f"and {len(shown) - _MOST_NAMED} more"] if len(shown) > _MOST_NAMED else []
    return ", ".join([*shown[:_MOST_NAMED], *more])


def _written(items: Sequence[TodoItem], known: Sequence[Todo], *, merge: bool) -> list[Todo]:
    """Return the list after a write.

    Raises:
        ToolError: An id is used twice, or a new item is empty.
    """
    twice = sorted(name for name, count in Counter(one.id for one in items).items() if count > 1)
    if any(twice):
        used = _named(name for name in twice if name)
        raise ToolError(f"The list was not written: ids used twice: {used}.")
    before = {todo.id: todo for todo in known}
    named = dict(zip(_ids(items, known), items, strict=True))
    empty = [item for name, item in named.items() if not item.content and name not in before]
    if empty:
        ids, wrong = _named(before) or "none", empty[0].id
        what = f"there is no item {wrong[:100]!r}" if wrong else "a new item has no content"
        raise ToolError(f"The list was not written: {what}. Ids in the list: {ids}.")
    order = dict.fromkeys([*before, *named] if merge else named)
    return [
        _changed(name, named.get(name), before.get(name))
        for name in order
        if name not in named or named[name].status != "removed"
    ]


def _changed(name: str, item: TodoItem | None, before: Todo | None) -> Todo:
    """Return an item after a write; fields that the write omits stay as they were."""
    if item is None:
        assert before is not None
        return before
    content, status = item.content, item.status
    if before is not None:
        content = content or before.content
        status = status if "status" in item.model_fields_set else before.status
    return Todo(name, content, cast(TodoStatus, status))


def _ids(items: Sequence[TodoItem], known: Iterable[Todo]) -> list[str]:
    """Return an id for every item: its own, the one its content had before, or a new one."""
    by_content: defaultdict[str, list[str]] = defaultdict(list)
    taken = {item.id for item in items if item.id}
    for todo in known:
        if todo.id not in taken:
            by_content[todo.content].append(todo.id)
        taken.add(todo.id)
    numbers = (re.fullmatch(r"t([0-9]{1,9})", name) for name in taken)
    highest = max((int(match[1]) for match in numbers if match), default=0)
    names: list[str] = []
    for item in items:
        name = item.id
        if not name and by_content[item.content]:
            name = by_content[item.content].pop(0)
        elif not name:
            highest += 1
            name = f"t{highest}"
        names.append(name)
    return names


class TodoListMiddleware(AgentMiddleware):
    """Adds `write_todos`, the state key `todos`, and a prompt section about both.

    When the list changes, there is a `custom` event `{"event": "todos", "todos": […], "counts":
    {…}}`, and the same data is in the result's artifact.

    List it after middleware that shortens the view, such as summarization, so that it sees what the
    model will see.

    Args:
        system_prompt: Text of the section `todos`; empty for none. It is sent only along with
            the tool.
        tool_description: The description of the tool for the model.
    """

    state_schema: ClassVar[type | None] = TodoState

    def __init__(
        self, *, system_prompt: str = SYSTEM_PROMPT, tool_description: str = TOOL_DESCRIPTION
    ) -> None:
        self.system_prompt = system_prompt
        self.tools = (_tool(tool_description),)

    def before_agent(self, state: State, runtime: Runtime) -> HookResult:
        """Show a subagent once the main agent's list at the time of the call."""
        todos: Sequence[Todo] = state.get("shared_todos") or ()
        # A background task keeps its own list there too, for its subagents.
        if not todos or not is_subagent(runtime) or todos == state.get("todos"):
            return None
        text = (
            "For orientation only: this is the todo list of the agent that leads this work. Do "
            f"your own task; the list is not yours to carry out or change.\n{render_todos(todos)}"
        )
        return {"messages": [HumanMessage(text, source="todos", id=_OF_PARENT)]}

    def after_model(self, state: State, runtime: Runtime) -> HookResult:
        """Refuse all but the first list of an answer, before a person is asked about them.

        For calls from elsewhere (an edit, a `Send`), the rule of the step applies: one writer per
        key.
        """
        calls = [
            call
            for call in pending_tool_calls(state.get("messages", ()))
            if call.name == TOOL_NAME and call.invalid is None
        ]
        if len(calls) < 2:
            return None
        text = (
            "Nothing was written by this call: an earlier one of the same answer writes the list. "
            f"Put all changes into one call of {TOOL_NAME}; this one can follow in your next "
            "answer."
        )
        return {
            "messages": [
                ToolMessage(call.id, text, name=TOOL_NAME, status="error") for call in calls[1:]
            ]
        }

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Add the prompt section, and the list itself if it is not in view."""
        if self.system_prompt and request.offers(TOOL_NAME):
            request = request.with_section("todos", self.system_prompt)
        todos: Sequence[Todo] = request.state.get("todos", ())
        if todos and not _shows(request.messages, text := render_todos(todos)):
            reminder = HumanMessage(f"Your todo list now.\n{text}", source="todos", id="todos")
            request = request.override(messages=[*request.messages, reminder])
        return await handler(request)


def _shows(messages: Sequence[Message], text: str) -> bool:
    """Whether the last written list is in view, and still current."""
    for message in reversed(messages):
        if (
            isinstance(message, ToolMessage)
            and message.name == TOOL_NAME
            and message.status == "success"
        ):
            return text in message.text
    return False
