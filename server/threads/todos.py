"""Current todo lists of threads, and todos as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pydantic import JsonValue

from ...harness.agent import Agent
from ...harness.middleware.todo_list import Todo
from ...harness.state.channels import ChannelWrite

__all__ = ["todos_as_json", "todos_now"]

_KEY = "todos"


async def todos_now(agent: Agent, thread_id: str) -> Sequence[Todo]:
    """Return the todos of a thread.

    A finished call counts at once, because it never runs again, even if its step still waits for
    another call, such as one that needs approval.

    Raises:
        UnknownThread: There is no such thread.
        CheckpointError: The todos cannot be read.
    """
    state = await agent.get_state(thread_id)
    schema, values = agent.definition.schema, state.values
    if state.finished_calls and _KEY in schema.channels:
        at = state.checkpoint.id
        step = await agent.checkpointer.load(thread_id, checkpoint_id=at, cached=at)
        writes = [
            ChannelWrite(_KEY, schema[_KEY].decode(one.value, overwrite=one.overwrite))
            for task in (() if step is None else step.pending)
            for one in task.writes
            if one.channel == _KEY
        ]
        values = schema.fold(values, writes)
    return cast("Sequence[Todo]", values.get(_KEY, ()))


def todos_as_json(agent: Agent, todos: Sequence[Todo]) -> list[JsonValue]:
    """Return todos as data; none for an agent without a todo list."""
    if not todos or _KEY not in agent.definition.schema.channels:
        return []
    return cast("list[JsonValue]", agent.definition.schema[_KEY].to_json([*todos]))
