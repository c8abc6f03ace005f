"""Link: a connection to a server, with the calls that the terminal commands need.

The server is in this process or elsewhere. The link uses the same tools and resources as every MCP
client, so the same rules apply.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar, cast
from uuid import uuid4

import anyio
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CONNECTION_CLOSED,
    CallToolResult,
    Request,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel, ConfigDict, JsonValue

from ...harness.mcp_servers.transports import UNSENT
from ..runs.active_run import call_id
from .states import LinkError, Lost, Question, RunState, Task

__all__ = ["Link", "OnLine"]

WAIT_SECONDS = 600.0
"""Seconds for which one call waits for a run; the server may allow less."""

RECONNECT_SECONDS = 120.0
"""Seconds for which a server may be unreachable before a call gives up."""

T = TypeVar("T")

OnLine: TypeAlias = Callable[[str], object]
"""Called with what a run is doing now."""


class _Facts(BaseModel):
    model_config = ConfigDict(extra="allow")


class Link:
    """Calls on one connection.

    Args:
        client: A connected client.
        is_local: Whether the server is in this process, so that the run ends with it.
        on_lost: Called with a message when the server is unreachable, and with "" when it is back.
    """

    def __init__(self, client: Client, *, is_local: bool, on_lost: OnLine = lambda _: None) -> None:
        self._client = client
        self.is_local = is_local
        self.on_lost = on_lost
        self._away_since: float | None = None

    # --- runs ------------------------------------------------------------------------------

    async def start(self, task: Task) -> RunState:
        """Start a run with a goal; return the run.

        Raises:
            Lost: The server was lost before it answered.
            LinkError: Nothing was started.
        """
        args = {**task.arguments(), "idempotency_key": f"terminal-{uuid4().hex}"}
        try:
            return await self._run("task", {**args, "wait_seconds": 0})
        except Lost as error:
            raise Lost(f"{error} The run may have started: `runs list` shows it.") from None

    async def look(self, run_id: str) -> RunState:
        """Return the current status of a run.

        Raises:
            LinkError: There is no such run.
        """
        return await self._run("wait", {"run_id": run_id, "wait_seconds": 0})

    async def pending(self, run_id: str) -> Sequence[Mapping[str, Any]]:
        """Return the open questions of a run as the tools show them; none for an unknown run.

        Raises:
            LinkError: The server cannot be reached.
        """
        result = await self._call("wait", {"run_id": run_id, "wait_seconds": 0})
        facts: dict[str, Any] = dict(result.structured_content or {})
        return facts.get("pending", ())

    async def wait(self, run_id: str, on_line: OnLine) -> RunState:
        """Wait until a run pauses or ends, or as long as the server allows; return its status.

        Raises:
            LinkError: The run cannot be waited for.
        """

        async def on_progress(_: float, __: float | None, message: str | None) -> None:
            self._is_back()
            on_line(message or "")

        args = {"run_id": run_id, "wait_seconds": WAIT_SECONDS}
        return await self._run("wait", args, on_progress)

    async def answer(self, run_id: str, answers: Mapping[str, JsonValue]) -> RunState:
        """Answer questions of a run; without answers, continue a paused or failed run.

        Raises:
            Lost: The server was lost before it answered.
            LinkError: Nothing was stored.
        """
        args: dict[str, Any] = {"run_id": run_id, "wait_seconds": 0}
        if answers:
            return await self._run("reply", {**args, "answers": dict(answers)})
        return await self._go_on(run_id, args)

    async def _go_on(self, run_id: str, args: dict[str, Any]) -> RunState:
        """Continue a stopped run. A second request would continue it twice if it stops again."""

        async def continuing() -> CallToolResult:
            return await self._client.call_tool("reply", args)

        what = f"continued run {run_id}, so it may have. Look with `runs show {run_id}`"
        try:
            return _state(await self._patiently(lambda: self._once(continuing, what)))
        except Lost as lost:
            try:
                state = await self.look(run_id)
            except LinkError:
                raise lost from None
            if state.status in ("paused", "failed"):  # it did not continue, or has stopped again
                raise
            return state

    async def tell(self, run_id: str, message: str) -> None:
        """Send a message to a run that works or waits in line.

        A message that was read would be another one when sent again, so it is sent only once.

        Raises:
            Lost: The server was lost before it answered.
            LinkError: It was refused.
        """
        args = {"run_id": run_id, "message": message, "wait_seconds": 0}

        async def telling() -> CallToolResult:
            return await self._client.call_tool("reply", args)

        what = f"took the message, so it may have stored it. Look with `threads events {run_id}`"
        result = await self._patiently(lambda: self._once(telling, what))
        if result.is_error:
            raise LinkError(_for_people(_text(result)))

    async def cancel(self, run_id: str) -> RunState:
        """End a run.

        Raises:
            LinkError: It did not end.
        """
        return await self._run("cancel", {"run_id": run_id})

    async def agent_of(self, run_id: str) -> str | None:
        """Return the name of the agent that works on a run's goal; None for a run of one call.

        Raises:
            LinkError: There is no such run.
        """
        facts = json.loads(await self.read(f"run://{run_id}"))
        return None if facts["kind"] == "drive" else str(facts["agent"])

    async def subagent_of(self, run_id: str) -> str:
        """Return the subagent that has a run's goal; empty for the main agent, or if unknown.

        Raises:
            LinkError: There is no such run.
        """
        events, _ = await self.events(run_id, 0)
        mine, is_task = call_id(run_id), False
        for one in events:
            match one:
                case {"name": "task", "tool_call_id": call, **rest} if call == mine:
                    is_task, args = True, rest.get("args")
                    if isinstance(args, Mapping):  # long ones are shortened to text
                        return str(cast(Mapping[str, Any], args).get("subagent_type") or "")
                case {"path": [_, call, name, *_]} if is_task and call == mine:
                    return str(name)
                case _:
                    pass
        return ""

    async def events(self, run_id: str, after: int) -> tuple[list[dict[str, Any]], bool]:
        """Return a page of stored events after a number, and whether there are more.

        Raises:
            LinkError: There is no such run.
        """
        page = json.loads(await self.read(f"run://{run_id}/events?after={after}"))
        return page["events"], bool(page["events_more"])

    async def whole_answer(self, state: RunState) -> RunState:
        """Return a status with the whole of a long answer.

        Raises:
            LinkError: The rest cannot be read.
        """
        pages, state_now = [state.answer], state
        while state.data is None and len(state_now.answer) >= 3_000:
            offset = sum(map(len, pages))
            args = {"run_id": state.run_id, "wait_seconds": 0, "answer_offset": offset}
            state_now = await self._run("wait", args)
            pages.append(state_now.answer)
        return replace(state, answer="".join(pages))

    # --- threads ---------------------------------------------------------------------------

    async def call(self, tool: str, **args: Any) -> dict[str, Any]:
        """Call a tool; return its structured content.

        Raises:
            LinkError: It failed.
        """
        text, facts = await self.said(tool, **args)
        return facts or {"text": text}

    async def said(self, tool: str, **args: Any) -> tuple[str, dict[str, Any]]:
        """Call a tool; return its text and its structured content.

        Raises:
            LinkError: It failed.
        """
        result = await self._call(tool, args)
        if result.is_error:
            raise LinkError(_for_people(_text(result)))
        return _text(result), dict(result.structured_content or {})

    async def read(self, uri: str) -> str:
        """Return a resource's text.

        Raises:
            LinkError: It does not exist, or is not text.
        """

        async def reading() -> Any:
            return await self._client.read_resource(uri, cache_mode="bypass")

        result = await self._patiently(reading)
        content = result.contents[0]
        if not isinstance(content, TextResourceContents):
            raise LinkError(f"{uri} is no text")
        return content.text

    async def act(self, method: str, **params: Any) -> dict[str, Any]:
        """Have the server do what is no tool, as no model may ask for it; return its answer.

        Raises:
            Lost: The server was lost before it answered.
            LinkError: It was refused.
        """
        request = Request[dict[str, Any], str](method=method, params=params)

        async def acting() -> Any:
            answer = await self._client.session.send_request(request, _Facts)
            return answer.model_extra or {}

        what = f"answered {method}, so it may have done it. Look with `threads list`"
        return await self._patiently(lambda: self._once(acting, what))

    # --- the wire --------------------------------------------------------------------------

    async def _run(self, tool: str, args: dict[str, Any], on_progress: Any = None) -> RunState:
        return _state(await self._call(tool, args, on_progress))

    async def _call(self, tool: str, args: dict[str, Any], on_progress: Any = None) -> Any:
        async def calling() -> Any:
            return await self._client.call_tool(tool, args, progress_callback=on_progress)

        return await self._patiently(calling)

    async def _patiently(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Retry while the server is unreachable; `work` may safely be repeated."""
        pause, was_sent = 0.25, False
        while True:
            try:
                done = await work()
            except MCPError as error:
                said = error.error.message
                if not self._is_away(error):
                    raise LinkError(_for_people(said)) from None
                was_sent = was_sent or error.error.data != UNSENT
                self._wait_or_give_up(said, Lost if was_sent else LinkError)
                await anyio.sleep(pause)
                pause = min(pause * 2, 5.0)
            else:
                self._is_back()
                return done

    async def _once(self, work: Callable[[], Awaitable[T]], what: str) -> T:
        """Do what must not be repeated once it may have reached the server.

        Raises:
            MCPError: It did not reach the server, or was refused.
            Lost: The server was lost before `what`, which also says where to look.
        """
        try:
            return await work()
        except MCPError as error:
            if error.error.data == UNSENT or not self._is_away(error):
                raise
        raise Lost(f"The server was lost before it {what} before you try again.")

    def _is_away(self, error: MCPError) -> bool:
        """Whether the server may answer later; one in this process that has ended never does."""
        return not self.is_local and error.error.code == CONNECTION_CLOSED

    def _wait_or_give_up(self, why: str, error: type[LinkError]) -> None:
        """Report that the server is away.

        Raises:
            error: It has been away for too long, as seen by all calls of this connection.
        """
        now = anyio.current_time()
        if self._away_since is None:
            self._away_since = now
        if now - self._away_since > RECONNECT_SECONDS:
            self._away_since = None
            raise error(f"The server cannot be reached any more: {why}.")
        self.on_lost(f"the server is away ({why}); trying again")

    def _is_back(self) -> None:
        if self._away_since is not None:
            self._away_since = None
            self.on_lost("")


def _state(result: CallToolResult) -> RunState:
    """Return the run in a result of a tool.

    Raises:
        LinkError: There is none, because the call was refused.
    """
    facts: dict[str, Any] = dict(result.structured_content or {})
    if "run_id" not in facts or "status" not in facts:
        raise LinkError(_for_people(_text(result)))
    return RunState(
        facts["run_id"],
        facts["thread_id"],
        facts["status"],
        facts.get("answer", ""),
        facts.get("answer_data"),
        facts.get("reason", ""),
        tuple(Question.of(one) for one in facts.get("pending", ())),
        facts.get("usage") or {},
        tuple(facts.get("notes", ())),
    )


def _text(result: CallToolResult) -> str:
    return "\n".join(one.text for one in result.content if isinstance(one, TextContent))


_ADVICE = (
    (r'Call threads\(thread_id="([^"]*)"\) to', r"Run `deep-agent-mcp threads show \1` to"),
    (
        r"Call threads to see (recent runs), or task .*",
        r"Run `deep-agent-mcp runs list` to see \1.",
    ),
    (r"Call threads(\(\))? to", "Run `deep-agent-mcp threads list` to"),
    (r"Leave agent out for", "Leave --subagent out for"),
    (r"^Resource not found: \S+\. ", ""),
    (
        r'Wait for it with wait\(run_id="([^"]*)"\),( or)? end it with cancel\(run_id="[^"]*"\)',
        r"Follow or continue it with `deep-agent-mcp run --resume \1`,\2 end it with "
        r"`deep-agent-mcp runs cancel \1`",
    ),
    (
        r'See the question with threads\(\S*\), answer it with reply\(run_id="([^"]*)", …\) or '
        r"drop it with cancel\(\S*\)",
        r"Answer it with `deep-agent-mcp run --resume \1`, or drop it with "
        r"`deep-agent-mcp runs cancel \1`",
    ),
    (r'Wait for one with wait\(run_id="([^"]*)"\)', r"Wait for one: `deep-agent-mcp runs wait \1`"),
    (r" To wait for the thread, call task again with \S+", ""),
)
"""What errors tell models to call -> what people run instead."""


def _for_people(text: str) -> str:
    for advice, instead in _ADVICE:
        text = re.sub(advice, instead, text)
    return text
