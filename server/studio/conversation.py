"""A thread as a conversation: the messages of all runs and subagents, step by step.

A step is a checkpoint; its writes to `messages` are its items. Tool calls that have ended while
their siblings still work are items without a checkpoint. Items keep their `key`, so a client can
replace items that come again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping

from pydantic import JsonValue

from ...harness.agent import Agent
from ...harness.checkpoint.base import Checkpoint, step_id
from ...harness.messages.message import (
    AIMessage,
    HumanMessage,
    Message,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
    is_media,
)
from ..mcp.requests import Services
from ..runs.active_run import ActiveRun
from .diffs import diff_of
from .journal_steps import (
    Branch,
    Branches,
    messages_in,
    namespace_of,
    place,
    written_by,
    written_by_each,
)
from .queries import NotThere, Query, instant

__all__ = ["Conversation"]

MOST_TEXT = 20_000
"""The most characters of a text, or of arguments, that a page shows in full."""

MOST_MEDIA = 400_000
"""The most characters of base64 of a picture that a page shows."""

MOST_EDIT = 20_000
"""The most characters of an edit whose lines are counted."""


class Conversation:
    """Reads the conversation of threads."""

    def __init__(self, services: Services, branches: Branches) -> None:
        self._services = services
        self._branches = branches

    async def page(self, thread_id: str, query: Query) -> dict[str, JsonValue]:
        """Return a page of items, oldest first; by default the newest.

        If the step that `after` names was abandoned, this is the newest page, with `reset`: what
        the caller has read before is out of date.

        Raises:
            NotThere: There is no such thread.
        """
        limit = query.count("limit", 200, 1_000)
        before, after = query.number("before"), query.number("after")
        branch = await self._branch(thread_id)
        reset = after is not None and branch.abandons(after)
        if reset:
            after = None
        newest = branch.steps[-1].seq + 1
        steps = branch.before(newest if before is None else before, limit)
        if after is not None:
            steps = branch.after(after, limit)
        items: list[JsonValue] = []
        agent = self._services.places(thread_id)
        known = frozenset(one.ns for one in branch.heads)
        written = await written_by_each(self._services.journal, steps, branch.weights)
        for made in steps:
            messages = messages_in(agent, written[place(made.ns, made.id)])
            items += [_item(made, one, at, known) for at, one in enumerate(messages)]
        if not steps or steps[-1].seq == branch.steps[-1].seq:
            items += await self._unfinished(agent, branch)
        more = bool(steps) and steps[0].seq > branch.steps[0].seq
        return {
            "steps": items,
            "before": str(steps[0].seq) if more and after is None else None,
            "after": str(steps[-1].seq if steps else after or 0),
            "more": bool(steps) and steps[-1].seq < branch.steps[-1].seq,
            "total": len(branch.steps),
            "reset": reset,
            **self.writing(thread_id),
        }

    async def whole(self, thread_id: str, key: str, ns: str) -> dict[str, JsonValue]:
        """Return one item in full.

        Raises:
            NotThere: The thread has no such item.
        """
        branch = await self._branch(thread_id)
        agent = self._services.places(thread_id)
        for made in reversed([one for one in branch.steps if one.ns == ns]):
            for message in messages_in(agent, await written_by(self._services.journal, made)):
                if message.id == key:
                    return _item(made, message, 0, whole=True)
        raise NotThere(f"Thread {thread_id} has no step {key!r} in namespace {ns!r}.")

    def writing(self, thread_id: str) -> dict[str, JsonValue]:
        """Return the answers that the thread's run is writing now, if it works here."""
        live = self._live(thread_id)
        working: list[JsonValue] = [
            {
                "path": [*one.path],
                "text": one.text,
                "thinking": one.thinking,
                "since": instant(one.since),
            }
            for one in (() if live is None else live.writing.now())
        ]
        return {
            "working": working,
            "run_id": None if live is None else live.run_id,
            "doing": None if live is None else live.line,
        }

    def _live(self, thread_id: str) -> ActiveRun | None:
        works = self._services.runs.supervisor.live.values()
        return next((one for one in works if one.thread_id == thread_id), None)

    async def _branch(self, thread_id: str) -> Branch:
        branch = await self._branches.of(thread_id)
        if branch is None:
            raise NotThere(f"There is no thread {thread_id!r}, or it has no steps yet.")
        await self._services.places.prepare(thread_id)
        return branch

    async def _unfinished(self, agent: Agent, branch: Branch) -> list[JsonValue]:
        """Return the results of calls whose step is not finished."""
        items: list[JsonValue] = []
        for head in branch.heads:
            if head.next == "end":
                continue
            found = await self._services.journal.load(
                head.thread_id, head.ns, head.id, cached=head.id
            )
            for task in found.pending if found is not None else ():
                messages = messages_in(agent, task.writes)
                items += [_item(head, one, 500 + task.index, committed=False) for one in messages]
        return items


def _item(
    made: Checkpoint,
    message: Message,
    at: int,
    known: Collection[str] = (),
    *,
    committed: bool = True,
    whole: bool = False,
) -> dict[str, JsonValue]:
    """Return a message as an item; `known` are the possible namespaces of its calls."""
    cut: dict[str, JsonValue] = {}

    def shown(name: str, text: str) -> str:
        if whole or len(text) <= MOST_TEXT:
            return text
        cut[name] = len(text)
        return text[:MOST_TEXT]

    item: dict[str, JsonValue] = {
        "key": message.id,
        "n": made.seq * 1_000 + at,
        "time": instant(made.created_at),
        "checkpoint_id": made.id if committed else None,
        "ns": made.ns,
        "call": namespace_of(made.ns).call_id or None,
        "run_id": made.run_id,
    }
    match message:
        case HumanMessage():
            item |= {
                "kind": "user" if message.source is None else "notice",
                "text": shown("text", message.text),
                "source": message.source,
                "images": _media(message.content),
            }
        case AIMessage():
            thinking = "".join(
                [one.thinking for one in message.content if isinstance(one, ThinkingBlock)]
            )
            item |= {
                "kind": "text",
                "agent": message.name,
                "source": message.source,
                "text": shown("text", message.text),
                "thinking": shown("thinking", thinking),
                "model": message.model,
                "stop": message.stop_reason,
                "usage": None if message.usage is None else message.usage.to_json(),
                "calls": [_call(made, one, shown, known) for one in message.tool_calls],
            }
        case ToolMessage():
            item |= {
                "kind": "tool",
                "call_id": message.tool_call_id,
                "name": message.name,
                "status": "error" if message.status == "error" else "ok",
                "text": shown("text", message.text),
                "images": _media(message.content),
            }
            if message.status != "error" and (lines := _counted(message.artifact)) is not None:
                item["file"] = lines
            artifact = json.dumps(message.artifact, ensure_ascii=False)
            if message.artifact is not None and len(artifact) <= MOST_TEXT:
                item["data"] = message.artifact
    if cut:
        item["cut"] = cut
    return item


def _call(
    made: Checkpoint, call: ToolCall, shown: Callable[[str, str], str], known: Collection[str]
) -> dict[str, JsonValue]:
    child = f"task:{call.id}@{step_id(made.id)}"
    child = f"{made.ns}/{child}" if made.ns else child
    args = shown(f"args of {call.id}", json.dumps(call.args, ensure_ascii=False))
    return {
        "call_id": call.id,
        "name": call.name,
        "args_json": args,
        "invalid": call.invalid,
        "file": _edited(call.name, call.args),
        "subagent_ns": child if child in known else None,
    }


def _counted(artifact: JsonValue) -> JsonValue:
    """Return how many lines a file tool added and removed, if its result says so."""
    facts = artifact if isinstance(artifact, dict) else {}
    if not isinstance(facts.get("path"), str) or not isinstance(facts.get("added"), int):
        return None
    return {name: facts.get(name) for name in ("path", "added", "removed", "created")}


def _edited(name: str, args: Mapping[str, JsonValue]) -> JsonValue:
    """Return how many lines an edit adds and removes, if its arguments tell.

    `removed` is None for a call that may replace a file: only its result knows what it replaced.
    """
    path = args.get("path")
    texts = [args.get(one) for one in ("content", "old_string", "new_string")]
    if not isinstance(path, str) or sum(len(str(one or "")) for one in texts) > MOST_EDIT:
        return None
    if name == "write_file":
        content = str(texts[0] or "")
        lines = content.count("\n") + (content[-1:] not in ("", "\n"))
        return {"path": path, "added": lines, "removed": None}
    if name != "edit_file" or args.get("replace_all"):
        return None
    found = diff_of(str(texts[1] or "").encode("utf-8", "replace"),
                    str(texts[2] or "").encode("utf-8", "replace"))  # fmt: skip
    return {"path": path, "added": found.added, "removed": found.removed}


def _media(content: str | Iterable[object]) -> list[JsonValue]:
    if isinstance(content, str):
        return []
    return [
        {
            "mime": one.media_type,
            "data": one.data if len(one.data) <= MOST_MEDIA else None,
            "bytes": len(one.data) * 3 // 4,
        }
        for one in content
        if is_media(one)
    ]
