"""Remote subagent: a subagent that works on another MCP server.

Here it is an agent like any other, except that no model decides its next step: it starts the remote
run, waits, passes questions on, and reports. Each of these is a tool call in the journal, so a
crash on our side neither starts the run twice nor loses it, and the remote run's questions become
ours.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, cast

from pydantic import JsonValue

from ..agent import create_agent
from ..checkpoint.base import Run
from ..errors import AgentBuildError, ModelError, ToolError, UnfinishedAnswer
from ..limits.limits import Limits
from ..loop.hooks.middleware import AgentMiddleware
from ..loop.hooks.requests import ModelHandler, ModelRequest, ModelResponse
from ..loop.run.interrupts import Interrupted
from ..mcp_servers.config import MCPServer
from ..messages.message import (
    AIMessage,
    HumanMessage,
    Message,
    TextBlock,
    ToolCall,
    ToolMessage,
    new_id,
)
from ..models.base import ChatRequest, Delta
from ..tools.schemas import check_schema
from ..tools.tool import ToolResult, ToolRuntime, tool
from .definitions import CompiledSubAgent
from .remote_runs import RemoteRuns, Standing

__all__ = ["remote_subagent"]

logger = logging.getLogger(__name__)

_TASK, _WAIT, _REPLY = "remote_task", "remote_wait", "remote_reply"
_MAX_OPEN = 1_000
_PLAIN = ("string", "number", "integer", "boolean")


def remote_subagent(
    name: str,
    description: str,
    server: MCPServer,
    *,
    task: str = "task",
    seconds: float | None = None,
    patience: float = 60.0,
) -> CompiledSubAgent:
    """Return a subagent that hands its tasks to another MCP server.

    Use it in `subagents=` or in any registry; `task` and `start_task` call it like any other. It
    waits for the server's run. The run's questions are asked here, once, and the answers are sent
    back. If the run here is cancelled, so is the remote one. If the connection breaks, it is opened
    again, and the same remote run continues. `.runnable.aclose()` or the end of the process closes
    it.

    Args:
        name: The name by which callers choose it.
        description: Its purpose.
        server: How to reach it; an `HttpServer` has `headers` for tokens.
        task: Its tool that takes a task. Ours takes an idempotency key, so a run never starts
            twice. If a server's tool takes none, a crash during the call may start it twice.
        seconds: Seconds for one task, without the time it waits for a person. The limit does not
            cancel the remote run. None for no limit except the caller's.
        patience: Seconds to keep trying if the server cannot be reached.

    Raises:
        AgentBuildError: The name is not valid, or `server` is not a server.
    """
    runs = RemoteRuns(name, server, task, patience)
    remote = _Remote(name, runs)
    agent = create_agent(_NoModel(name), remote.tools_of_its_own(), middleware=[remote], name=name)
    limits = None if seconds is None else Limits(seconds=seconds)
    return CompiledSubAgent(name, description, agent, limits)


@dataclass(slots=True)
class _Open:
    """A remote run that has not ended, as far as this side knows."""

    goal: str
    thread_id: str
    run_id: str = ""


class _Remote(AgentMiddleware):
    """Decides the next step, and carries it out."""

    def __init__(self, name: str, runs: RemoteRuns) -> None:
        self._agent = name
        self._runs = runs
        self._open: OrderedDict[str, dict[str, _Open]] = OrderedDict()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._runs.aclose()

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Answer in place of a model, based on the transcript."""
        following = _following(request.messages)
        if isinstance(following, ToolCall):
            return ModelResponse(AIMessage((following,), name=self._agent))
        if following.status == "done":
            text = following.answer or "(It finished without a report.)"
            return ModelResponse(AIMessage((TextBlock(text),), name=self._agent))
        why = f"{self._agent}: {following.reason or f'it is {following.status}'}"
        raise UnfinishedAnswer(why, following.answer) if following.answer else ModelError(why)

    async def run_stopped(self, run: Run) -> None:
        """Cancel the remote runs of a run that was cancelled."""
        if run.status not in ("cancelled", "done"):
            return
        for key, one in self._open.pop(run.id, {}).items():
            if run.status == "done":
                continue
            try:
                run_id = one.run_id
                if not run_id:  # it was being started
                    found = await self._runs.start(one.goal, key=key, thread_id=one.thread_id)
                    run_id = found.run_id
                if run_id:
                    await self._runs.cancel(run_id)
            except ToolError as error:
                logger.warning("remote run of %s was not cancelled: %s", self._agent, error)

    # --- tools -----------------------------------------------------------------------------

    def tools_of_its_own(self) -> Sequence[Any]:
        """Return its next calls."""
        return [
            tool(self._task, name=_TASK, idempotent=True),
            tool(self._wait, name=_WAIT, idempotent=True),
            tool(self._reply, name=_REPLY, idempotent=True),
        ]

    async def _task(self, goal: str, thread_id: str, runtime: ToolRuntime) -> ToolResult:
        """Start a remote run."""
        parts = (runtime.thread_id, runtime.ns, runtime.tool_call_id)
        key = blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
        self._note(runtime.run_id, key, _Open(goal, thread_id))
        standing = await self._runs.start(goal, key=key, thread_id=thread_id)
        self._note(runtime.run_id, key, _Open(goal, thread_id, standing.run_id))
        return self._result(standing, runtime)

    async def _wait(self, run_id: str, runtime: ToolRuntime) -> ToolResult:
        """Wait for a remote run."""
        self._note(runtime.run_id, run_id, _Open("", "", run_id))
        return self._result(await self._runs.wait(run_id), runtime)

    async def _reply(
        self, run_id: str, questions: list[dict[str, Any]], runtime: ToolRuntime
    ) -> ToolResult:
        """Get answers to a remote run's questions."""
        self._note(runtime.run_id, run_id, _Open("", "", run_id))
        answers: dict[str, JsonValue] = {}
        waiting: list[Interrupted] = []
        for one in questions:
            try:
                answers[str(one["id"])] = runtime.interrupt(
                    f"{self._agent} asks: {one['question']}",
                    answer_schema=_schema(one),
                    payload={"remote": self._agent, **one},
                )
            except Interrupted as pause:
                waiting.append(pause)
        if waiting:
            raise Interrupted([one for pause in waiting for one in pause.interrupts])
        return self._result(await self._runs.reply(run_id, answers), runtime)

    def _note(self, run_id: str, key: str, one: _Open) -> None:
        self._open.setdefault(run_id, {})[key] = one
        while len(self._open) > _MAX_OPEN:
            self._open.popitem(last=False)

    def _result(self, standing: Standing, runtime: ToolRuntime) -> ToolResult:
        if standing.status in ("done", "failed", "cancelled"):
            known = self._open.get(runtime.run_id, {})
            for key in [key for key, one in known.items() if one.run_id == standing.run_id]:
                del known[key]
        line = f"Remote run {standing.run_id}: {standing.status}."
        return ToolResult(line, artifact=standing.to_json())


def _following(messages: Sequence[Message]) -> ToolCall | Standing:
    """Return the next call, or the final status."""
    standing: Standing | None = None
    unsent: list[str] = []
    for message in messages:
        match message:
            case HumanMessage(is_request=True):
                unsent.append(message.text)
            case AIMessage() if any(call.name == _TASK for call in message.tool_calls):
                unsent.clear()
            case ToolMessage(artifact=dict() as data) if message.status == "success":
                standing = Standing.from_json(cast(Mapping[str, Any], data))
            case ToolMessage():
                before = standing or Standing("failed")
                standing = Standing("failed", before.run_id, before.thread_id, reason=message.text)
            case _:
                pass
    if standing is not None and standing.status == "running":
        return _call(_WAIT, run_id=standing.run_id)
    if standing is not None and standing.status == "needs_approval":
        questions = [dict(one) for one in standing.questions]
        return _call(_REPLY, run_id=standing.run_id, questions=cast(JsonValue, questions))
    if unsent:
        thread_id = "" if standing is None else standing.thread_id
        return _call(_TASK, goal="\n\n".join(unsent), thread_id=thread_id)
    return standing or Standing("failed", reason="it was given no task")


def _call(name: str, **args: JsonValue) -> ToolCall:
    return ToolCall(new_id("call"), name, args)


def _schema(question: Mapping[str, Any]) -> dict[str, JsonValue] | None:
    """Return the schema of an answer: a decision, or the server's schema."""
    decisions = [one for one in question.get("decisions") or () if one != "edit"]
    if decisions:
        return {
            "type": "object",
            "properties": {
                "decision": {"type": "string", "enum": decisions},
                "message": {"type": "string", "description": "Why not, or the result instead."},
            },
            "required": ["decision"],
            "additionalProperties": False,
        }
    asked = question.get("answer_schema")
    if not isinstance(asked, dict):
        return None
    schema = cast("dict[str, JsonValue]", asked)
    if schema.get("type") in _PLAIN:
        return {"type": schema["type"]}
    try:
        check_schema(schema, "the question")
    except AgentBuildError:
        return None  # then any text; the server refuses it if it is wrong
    return schema


class _NoModel:
    """Takes the place of a model; `_Remote` answers before it is called."""

    context_window = None
    native_output = False

    def __init__(self, name: str) -> None:
        self.name = f"remote:{name}"

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        """Refuse."""
        raise ModelError(f"{self.name} is not a model")
        yield  # makes this a generator

    async def aclose(self) -> None:
        """Do nothing."""
