"""Agents of a thread: their callers, tasks, working times and costs.

Costs are computed from the tokens of each answer that is still in the transcript. Costs of a run,
counted by its limits, are in the run. Times of calls come from the stored events.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from ...harness.agent import Agent
from ...harness.checkpoint.base import Checkpoint, Run, RunEvent, ThreadSlice
from ...harness.limits.prices import price_of
from ...harness.messages.message import AIMessage, HumanMessage, Message, Usage
from ..mcp.requests import Services
from .journal_steps import Branch, Branches, messages_in, namespace_of
from .queries import NotThere, instant

__all__ = ["AgentTree", "spans_of"]

KEPT = 500
MOST_EVENTS = 1_000
MOST_TASK = 4_000


@dataclass(frozen=True, slots=True)
class _Facts:
    """The facts about an agent from its messages."""

    name: str
    task: str
    answers: int
    calls: int
    usage: Usage
    cost: float
    unpriced: int


class AgentTree:
    """Reads the agents of threads."""

    def __init__(self, services: Services, branches: Branches) -> None:
        self._services = services
        self._branches = branches
        self._kept: OrderedDict[tuple[str, str, str], _Facts] = OrderedDict()

    async def of_thread(self, thread_id: str) -> dict[str, JsonValue]:
        """Return the agents of a thread, each after its caller.

        Raises:
            NotThere: There is no such thread.
        """
        branch = await self._branches.of(thread_id)
        if branch is None:
            raise NotThere(f"There is no thread {thread_id!r}, or it has no steps yet.")
        await self._services.places.prepare(thread_id)
        agent = self._services.places(thread_id)
        firsts = _firsts(branch)
        paths: dict[str, tuple[str, ...]] = {}
        shown: list[JsonValue] = []
        for head in branch.heads:
            facts = await self._facts(agent, head)
            place = namespace_of(head.ns)
            above = paths.get(place.parent, ()) if head.ns else ()
            own = (place.call_id, facts.name) if head.ns else (facts.name,)
            path = paths[head.ns] = (*above, *own)
            first = firsts[head.ns]
            done = head.next == "end"
            shown.append(
                {
                    "ns": head.ns,
                    "parent_ns": place.parent if head.ns else None,
                    "call_id": place.call_id or None,
                    "path": [*path],
                    "name": facts.name,
                    "task": facts.task,
                    "started": instant(first.created_at),
                    "ended": instant(head.created_at) if done else None,
                    "last_step": instant(head.created_at),
                    "steps": sum(one.ns == head.ns for one in branch.steps),
                    "model_calls": facts.answers,
                    "tool_calls": facts.calls,
                    "usage": facts.usage.to_json(),
                    "cost": facts.cost,
                    "unpriced": facts.unpriced,
                }
            )
        return {"thread_id": thread_id, "agents": shown}

    async def _facts(self, agent: Agent, head: Checkpoint) -> _Facts:
        key = (head.thread_id, head.ns, head.id)
        known = self._kept.get(key)
        if known is None:
            if head.ns:
                found = await self._services.journal.load(head.thread_id, head.ns, head.id)
                messages: Sequence[Message] = _messages(agent, found)
            else:
                state = await agent.get_state(head.thread_id)
                messages = state.values.get("messages", ())
            known = self._kept[key] = self._summed(agent, messages, is_main=not head.ns)
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return known

    def _summed(self, agent: Agent, messages: Sequence[Message], *, is_main: bool) -> _Facts:
        answers = [one for one in messages if isinstance(one, AIMessage) and one.source is None]
        usage, cost, unpriced = Usage(), 0.0, 0
        for one in answers:
            price = None if one.model is None else price_of(one.model)
            if one.usage is None or price is None:
                unpriced += 1
            else:
                cost += price.cost(one.usage)
            usage += one.usage or Usage()
        named = [one.name for one in answers if one.name]
        tasks = [one.text for one in messages if isinstance(one, HumanMessage) and not one.source]
        name = named[0] if named else agent.name if is_main else "subagent"
        calls = sum(len(one.tool_calls) for one in messages if isinstance(one, AIMessage))
        task = tasks[0][:MOST_TASK] if tasks else ""
        return _Facts(name, task, len(answers), calls, usage, cost, unpriced)


def _messages(agent: Agent, found: ThreadSlice | None) -> list[Message]:
    return [] if found is None else messages_in(agent, found.writes)


def _firsts(branch: Branch) -> Mapping[str, Checkpoint]:
    firsts: dict[str, Checkpoint] = {}
    for one in branch.steps:
        firsts.setdefault(one.ns, one)
    return firsts


async def spans_of(services: Services, run: Run) -> dict[str, JsonValue]:
    """Return when each model and tool call of a run began and ended, from the stored events.

    A call that has not ended, or whose beginning is no longer stored, lacks one of the two.
    """
    events = await services.journal.events(run.id, limit=MOST_EVENTS)
    begun: dict[tuple[object, ...], RunEvent] = {}
    spans: list[JsonValue] = []
    for one in events:
        what = str(one.data.get("event", ""))
        kind, _, side = what.partition("_")
        if kind not in ("model", "tool") or side not in ("start", "end"):
            continue
        key = (kind, one.path)
        if side == "start":
            begun[key] = one
        else:
            spans.append(_span(kind, begun.pop(key, None), one))
    spans += [_span(str(key[0]), one, None) for key, one in begun.items()]
    ended = run.status not in ("running", "needs_approval", "paused")
    return {
        "run_id": run.id,
        "thread_id": run.thread_id,
        "status": run.status,
        "started": instant(run.created_at),
        "ended": instant(run.updated_at) if ended else None,
        "missing": events[0].seq - 1 if events else 0,
        "more": len(events) == MOST_EVENTS,
        "spans": spans,
    }


def _span(kind: str, begun: RunEvent | None, ended: RunEvent | None) -> dict[str, JsonValue]:
    one = begun or ended
    assert one is not None  # a span has an event
    last = ended or one
    shown: dict[str, JsonValue] = {
        "kind": kind,
        "path": [*one.path],
        "name": last.data.get("name", ""),
        "call_id": one.data.get("tool_call_id") or None,
        "started": None if begun is None else instant(begun.created_at),
        "ended": None if ended is None else instant(ended.created_at),
        "status": last.data.get("status", "") if ended is not None else "open",
    }
    if "usage" in last.data:
        shown["usage"] = last.data["usage"]
    return shown
