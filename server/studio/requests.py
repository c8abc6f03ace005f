"""Model requests: the request to a model in a step, in readable parts.

They are rebuilt from the journal by the currently configured agent: the sections of the system
prompt, the tools, and the messages as the model saw them, after summaries and edits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from ...harness.agent import Agent
from ...harness.errors import HarnessError
from ...harness.messages.message import AIMessage, HumanMessage, Message, ThinkingBlock
from ...harness.models.base import ChatRequest, PromptSection
from ...harness.tools.schemas import ToolSpec
from ..mcp.requests import Services
from .journal_steps import Branches, messages_in, namespace_of, written_by
from .queries import NotThere, Query, instant

__all__ = ["Requests"]

MOST_TEXT = 20_000


class Requests:
    """Reads requests to models."""

    def __init__(self, services: Services, branches: Branches) -> None:
        self._services = services
        self._branches = branches

    async def calls(self, thread_id: str, query: Query) -> dict[str, JsonValue]:
        """Return a page of the main agent's model calls, newest first.

        Raises:
            NotThere: There is no such thread.
        """
        limit, before = query.count("limit", 50, 200), query.number("before")
        branch = await self._branches.of(thread_id)
        if branch is None:
            raise NotThere(f"There is no thread {thread_id!r}, or it has no steps yet.")
        await self._services.places.prepare(thread_id)
        agent = self._services.places(thread_id)
        made = [one for one in branch.steps if not one.ns and one.author == "model"]
        made = [one for one in reversed(made) if before is None or one.seq < before]
        shown: list[JsonValue] = []
        for one in made[:limit]:
            messages = messages_in(agent, await written_by(self._services.journal, one))
            answer = next((each for each in messages if isinstance(each, AIMessage)), None)
            usage = None if answer is None or answer.usage is None else answer.usage.to_json()
            shown.append(
                {
                    "checkpoint_id": one.id,
                    "time": instant(one.created_at),
                    "run_id": one.run_id,
                    "model": None if answer is None else answer.model,
                    "usage": usage,
                    "summary": one.summary,
                }
            )
        following = str(made[limit - 1].seq) if len(made) > limit else None
        return {"calls": shown, "next": following}

    async def one(self, thread_id: str, checkpoint_id: str, ns: str) -> dict[str, JsonValue]:
        """Return the request to a model in a step of the main agent, or of the subagent in `ns`.

        Raises:
            NotThere: There is no such step, or its request cannot be rebuilt.
        """
        await self._services.places.prepare(thread_id)
        agent = self._services.places(thread_id)
        path = await self._path(agent, thread_id, ns) if ns else []
        try:
            request = await agent.get_request(thread_id, checkpoint_id, ns=ns, path=path)
        except HarnessError as error:
            raise NotThere(f"What the model saw is not known: {error}.") from error
        return {"checkpoint_id": checkpoint_id, "made_anew": True, **_request(request)}

    async def _path(self, agent: Agent, thread_id: str, ns: str) -> list[str]:
        """Return the agents and calls that lead to a subagent, from the authors of its answers."""
        branch = await self._branches.of(thread_id)
        steps = () if branch is None else branch.steps
        path: list[str] = []
        while ns:
            made = next((one for one in steps if one.ns == ns and one.author == "model"), None)
            if made is None:
                raise NotThere(f"Thread {thread_id!r} has no steps of a subagent in {ns!r}.")
            messages = messages_in(agent, await written_by(self._services.journal, made))
            names = [one.name for one in messages if isinstance(one, AIMessage) and one.name]
            place = namespace_of(ns)
            path = [place.call_id, names[0] if names else "", *path]
            ns = place.parent
        return [agent.name, *path]


def _request(request: ChatRequest) -> dict[str, JsonValue]:
    cached = frozenset(request.cache_messages)
    return {
        "sections": [_section(one) for one in request.system],
        "tools": [_tool(one) for one in request.tools],
        "tool_choice": request.tool_choice,
        "settings": json.loads(json.dumps(dict(request.settings), default=str)),
        "messages": [
            {**_message(one), "cached": place in cached}
            for place, one in enumerate(request.messages)
        ],
        "output_schema": None if request.output_schema is None else dict(request.output_schema),
    }


def _section(one: PromptSection) -> dict[str, JsonValue]:
    return {"name": one.name, "text": one.text, "chars": len(one.text), "cached": one.cache}


def _tool(one: ToolSpec | Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    if not isinstance(one, ToolSpec):
        return {"name": str(one.get("name", "")), "provider": dict(one), "cached": False}
    return {
        "name": one.name,
        "description": one.description,
        "parameters": dict(one.parameters),
        "cached": one.cache,
    }


def _message(one: Message) -> dict[str, JsonValue]:
    shown: dict[str, Any] = {"key": one.id, "text": one.text[:MOST_TEXT], "chars": len(one.text)}
    if isinstance(one, HumanMessage):
        return {**shown, "role": "user", "source": one.source}
    if isinstance(one, AIMessage):
        thoughts = [each.thinking for each in one.content if isinstance(each, ThinkingBlock)]
        calls: list[JsonValue] = [
            {
                "call_id": call.id,
                "name": call.name,
                "args_json": json.dumps(call.args, ensure_ascii=False)[:MOST_TEXT],
            }
            for call in one.tool_calls
        ]
        return {
            **shown,
            "role": "assistant",
            "thinking_chars": sum(map(len, thoughts)),
            "calls": calls,
        }
    return {**shown, "role": "tool", "call_id": one.tool_call_id, "name": one.name}
