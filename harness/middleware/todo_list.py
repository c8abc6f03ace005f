"""The todo list: one tool that replaces the whole list, and a model that never loses sight of it.

Ids stay with their item from write to write, so clients can follow one item. When compaction has
cut the last list from view, it is shown again at the end of the request (peers B14, E12).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, NotRequired, TypeAlias, TypedDict, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints

from harness.errors import ToolError
from harness.loop.middleware import AgentMiddleware
from harness.loop.requests import HookResult, ModelHandler, ModelRequest, ModelResponse, Runtime
from harness.messages import HumanMessage, Message, ToolMessage, pending_tool_calls
from harness.state import Mark, State
from harness.tools import Tool, ToolResult, ToolRuntime, tool

__all__ = ["Todo", "TodoItem", "TodoListMiddleware", "TodoState", "TodoStatus", "render_todos"]

TodoStatus: TypeAlias = Literal["pending", "in_progress", "completed"]

TOOL_NAME = "write_todos"

SYSTEM_PROMPT = """\
Keep a todo list with `write_todos` for work that takes three or more steps, for several requests \
at once, or when asked for one. For a single step, a quick answer or a chat, just do it.
- Set an item to in_progress before you start on it; several may be if they are independent.
- Set it to completed as soon as it is fully done, not with failing checks or open parts.
- If something blocks an item, leave it in_progress and add an item for what is needed first.
- Change the list when you learn more; drop what is no longer needed.
- Before your final answer, every item is completed or removed."""

TOOL_DESCRIPTION = """\
Write the todo list of this thread. The list you send replaces the old one, so send every item, \
also the unchanged ones. Leave out `id` for new items; keep it for those that have one. \
An empty list clears it. At most one call per answer. Returns the list with ids and counts."""

_BOX: dict[TodoStatus, str] = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}
_STATUSES: tuple[TodoStatus, ...] = get_args(TodoStatus)


@dataclass(frozen=True, slots=True)
class Todo:
    """One item of the list."""

    id: str
    content: str
    status: TodoStatus = "pending"


class TodoItem(BaseModel):
    """One item as a model writes it."""

    model_config = ConfigDict(extra="forbid")

    content: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)] = Field(
        description="What is to be done."
    )
    status: TodoStatus = "pending"
    id: Annotated[str, StringConstraints(strip_whitespace=True)] = Field(
        default="", description="The id the item has; leave out for a new one."
    )


class TodoState(TypedDict):
    """What the middleware keeps."""

    todos: Annotated[NotRequired[list[Todo]], Mark.OMIT_FROM_INPUT]


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


async def _write_todos(todos: list[TodoItem], runtime: ToolRuntime) -> ToolResult:
    written = _with_ids(todos, runtime.state.get("todos", ()))
    counts = Counter(todo.status for todo in written)
    artifact = {
        "todos": [asdict(todo) for todo in written],
        "counts": {**{name: counts[name] for name in _STATUSES}, "total": len(written)},
    }
    return ToolResult(
        render_todos(written), artifact=cast(JsonValue, artifact), update={"todos": written}
    )


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


def _with_ids(items: Sequence[TodoItem], known: Iterable[Todo]) -> list[Todo]:
    """Give every item an id: its own, the one its content had before, or a new one."""
    given = [item.id for item in items if item.id]
    twice = sorted(name for name, count in Counter(given).items() if count > 1)
    if twice:
        raise ToolError(f"The list was not written: ids used twice: {', '.join(twice)}.")
    by_content: defaultdict[str, list[str]] = defaultdict(list)
    taken = set(given)
    for todo in known:
        if todo.id not in taken:
            by_content[todo.content].append(todo.id)
        taken.add(todo.id)
    numbers = (re.fullmatch(r"t([0-9]{1,9})", name) for name in taken)
    highest = max((int(match[1]) for match in numbers if match), default=0)
    written: list[Todo] = []
    for item in items:
        name = item.id
        if not name and by_content[item.content]:
            name = by_content[item.content].pop(0)
        elif not name:
            highest += 1
            name = f"t{highest}"
        written.append(Todo(name, item.content, item.status))
    return written


class TodoListMiddleware(AgentMiddleware):
    """Brings `write_todos`, the state key `todos`, and a prompt section that teaches both.

    List it after middleware that shortens the view, such as summarization, so that it sees what
    the model will see.

    Args:
        system_prompt: Text of the section `todos`; empty for none. It is sent only along with
            the tool.
        tool_description: What the model reads about the tool.
    """

    state_schema: ClassVar[type | None] = TodoState

    def __init__(
        self, *, system_prompt: str = SYSTEM_PROMPT, tool_description: str = TOOL_DESCRIPTION
    ) -> None:
        self.system_prompt = system_prompt
        self.tools = (_tool(tool_description),)

    def after_model(self, state: State, runtime: Runtime) -> HookResult:
        """Refuse all of several lists in one answer: it is unclear which one is meant."""
        calls = [
            call for call in pending_tool_calls(state.get("messages", ())) if call.name == TOOL_NAME
        ]
        if len(calls) < 2:
            return None
        text = (
            f"Nothing was written: the answer held {len(calls)} calls of {TOOL_NAME}, and each "
            "replaces the whole list. Send one call with every item."
        )
        return {
            "messages": [
                ToolMessage(call.id, text, name=TOOL_NAME, status="error") for call in calls
            ]
        }

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Add the prompt section, and the list itself if the view has lost it."""
        if self.system_prompt and request.offers(TOOL_NAME):
            request = request.with_section("todos", self.system_prompt)
        todos: Sequence[Todo] = request.state.get("todos", ())
        if todos and not _shows(request.messages, text := render_todos(todos)):
            reminder = HumanMessage(f"Your todo list now.\n{text}", source="todos", id="todos")
            request = request.override(messages=[*request.messages, reminder])
        return await handler(request)


def _shows(messages: Sequence[Message], text: str) -> bool:
    """Whether the last list that was written is in view, and still current."""
    for message in reversed(messages):
        if (
            isinstance(message, ToolMessage)
            and message.name == TOOL_NAME
            and message.status == "success"
        ):
            return text in message.text
    return False
