"""Remote runs: starts, awaits, answers and cancels runs of another MCP server.

The server offers `task`, and also `wait`, `reply` and `cancel` if it is one of ours or compatible.
With other servers, only `task` is called, and its result is final.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, TypeGuard, cast

import anyio
from pydantic import JsonValue

from .._internal.records import record
from ..errors import ToolError
from ..mcp_servers.config import MCPServer
from ..mcp_servers.connections import Pool
from ..tools.tool import ToolResult

__all__ = ["RemoteRuns", "Standing"]

RemoteStatus: TypeAlias = Literal[
    "running", "needs_approval", "paused", "done", "failed", "cancelled"
]

_STATUSES = ("queued", "running", "needs_approval", "paused", "done", "failed", "cancelled")
_GOALS = ("goal", "description", "task", "prompt", "instructions")
_MAX_PAGES = 200
_PAUSE = 1.0


@record
class Standing:
    """Status of a remote run.

    Attributes:
        status: The status in our own server's terms; a run in a queue counts as running.
        run_id: Its id there; empty if the server has none.
        thread_id: Its thread there; empty if the server has none.
        answer: Its final text once done, or the cut off text of an answer that failed for that.
        reason: Why it failed or was cancelled.
        questions: Its open questions, in the server's form.
    """

    status: RemoteStatus
    run_id: str = ""
    thread_id: str = ""
    answer: str = ""
    reason: str = ""
    questions: Sequence[Mapping[str, JsonValue]] = ()

    def to_json(self) -> dict[str, JsonValue]:
        """Return the status as JSON data."""
        return {
            "status": self.status,
            "run_id": self.run_id,
            "thread_id": self.thread_id,
            "answer": self.answer,
            "reason": self.reason,
            "questions": [dict(one) for one in self.questions],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Standing:
        """Return the status from JSON data of `to_json`."""
        return Standing(**data)


class RemoteRuns:
    """Runs of one server. A broken connection is opened again.

    Args:
        name: The server's name in errors.
        server: How to reach it.
        task: Its tool that takes a task.
        patience: Seconds to keep trying to reach it.
    """

    def __init__(self, name: str, server: MCPServer, task: str, patience: float) -> None:
        self._name = name
        self._pool = Pool({name: server})
        self._task = task
        self._patience = patience
        self._wait_seconds = min(45.0, server.timeout * 0.75)

    async def start(self, goal: str, *, key: str, thread_id: str = "") -> Standing:
        """Start a run, or find the one started with this key, and wait for it a while.

        Raises:
            ToolError: The server cannot be used, or refused the task.
        """
        known = await self._arguments(self._task)
        place = next((one for one in _GOALS if one in known), None)
        if place is None:
            raise ToolError(
                f"MCP server {self._name!r} has no tool {self._task!r} that takes a task in one "
                f"of {', '.join(_GOALS)}; nothing was started"
            )
        args: dict[str, JsonValue] = {place: goal}
        optional: dict[str, JsonValue] = {
            "idempotency_key": key,
            "thread_id": thread_id,
            "wait_seconds": self._wait_seconds,
        }
        args |= {name: value for name, value in optional.items() if name in known and value != ""}
        result = await self._call(self._task, args, again="idempotency_key" in known)
        return await self._whole(_standing(result))

    async def wait(self, run_id: str, seconds: float | None = None) -> Standing:
        """Return the status of a run once it stops, or after a while.

        Raises:
            ToolError: The server cannot be used, or does not know the run.
        """
        wanted = self._wait_seconds if seconds is None else seconds
        deadline = anyio.current_time() + wanted
        args: dict[str, JsonValue] = {"run_id": run_id, "wait_seconds": wanted}
        while True:
            standing = _standing(await self._call("wait", args, again=True), refusal=True)
            left = deadline - anyio.current_time()
            if standing.status != "running" or left <= 0:
                return await self._whole(standing)
            await anyio.sleep(min(left, _PAUSE))  # it answers earlier than requested

    async def reply(self, run_id: str, answers: Mapping[str, JsonValue]) -> Standing:
        """Answer a run's questions, and wait for it a while. Given answers are not sent again.

        Raises:
            ToolError: The server cannot be used, or refused the answers.
        """
        args: dict[str, JsonValue] = {"run_id": run_id, "wait_seconds": self._wait_seconds}
        result = await self._call("reply", {**args, "answers": dict(answers)}, again=True)
        if _is_run(result.artifact):
            return await self._whole(_standing(result))
        now = await self.wait(run_id, 0)  # it may have been answered before we lost the connection
        open_ids = {str(one.get("id")) for one in now.questions}
        if open_ids & answers.keys():
            raise ToolError(f"{self._name} did not take the answer: {_text(result)}")
        return now

    async def cancel(self, run_id: str) -> None:
        """End a run.

        Raises:
            ToolError: The server cannot be used.
        """
        await self._call("cancel", {"run_id": run_id}, again=True)

    async def aclose(self) -> None:
        """Close the connection; a later use opens it again."""
        await self._pool.aclose()

    async def _whole(self, standing: Standing) -> Standing:
        """Return the status with all pages of the answer."""
        if not (standing.answer and standing.run_id):
            return standing
        if "answer_offset" not in await self._arguments("wait"):
            return standing
        answer = standing.answer
        for _ in range(_MAX_PAGES):
            args: dict[str, JsonValue] = {
                "run_id": standing.run_id,
                "wait_seconds": 0,
                "answer_offset": len(answer),
            }
            page = _standing(await self._call("wait", args, again=True), refusal=True).answer
            if not page:
                break
            answer += page
        return replace(standing, answer=answer)

    async def _arguments(self, tool: str) -> Collection[str]:
        """Return the names of a tool's arguments; empty if the server has no such tool."""
        deadline = anyio.current_time() + self._patience
        connection = self._pool.connection(self._name)
        await self._pool.refresh([self._name])
        while connection.problem is not None or connection.listing is None:
            if anyio.current_time() + _PAUSE > deadline:
                why = connection.problem or "its connection was closed"
                raise ToolError(f"MCP server {self._name!r} cannot be used: {why}")
            await anyio.sleep(_PAUSE)
            connection = self._pool.connection(self._name)
            await self._pool.refresh([self._name])
        for one in connection.listing.tools:
            if one.remote_name == tool:
                return cast(Mapping[str, Any], one.parameters.get("properties") or {}).keys()
        return ()

    async def _call(self, tool: str, args: Mapping[str, JsonValue], *, again: bool) -> ToolResult:
        """Call a tool; retries calls that may be repeated, while patience lasts."""
        deadline = anyio.current_time() + self._patience
        pause = 0.25
        while True:
            try:
                return await self._pool.call(self._name, tool, args)
            except ToolError:
                if not again or anyio.current_time() + pause > deadline:
                    raise
            await anyio.sleep(pause)
            pause = min(pause * 2, 5.0)


def _standing(result: ToolResult, *, refusal: bool = False) -> Standing:
    """Return the status in a result; a result without one is the final answer."""
    data = result.artifact
    if _is_run(data):
        standing = Standing(
            cast(RemoteStatus, "running" if data["status"] == "queued" else data["status"]),
            str(data["run_id"]),
            str(data.get("thread_id") or ""),
            str(data.get("answer") or ""),
            str(data.get("reason") or ""),
            _questions(data.get("pending")),
        )
        if standing.status == "needs_approval" and not standing.questions:
            why = "it waits for an answer, but does not say to what"
            return replace(standing, status="failed", reason=why)
        return standing
    if result.status == "error":
        if refusal:
            raise ToolError(_text(result))
        return Standing("failed", reason=_text(result))
    return Standing("done", answer=_text(result))


def _questions(pending: JsonValue) -> tuple[Mapping[str, JsonValue], ...]:
    asked = pending if isinstance(pending, list) else []
    return tuple(one for one in asked if isinstance(one, dict) and {"id", "question"} <= one.keys())


def _is_run(data: JsonValue) -> TypeGuard[dict[str, JsonValue]]:
    return isinstance(data, dict) and data.get("status") in _STATUSES and "run_id" in data


def _text(result: ToolResult) -> str:
    if isinstance(result.content, str):
        return result.content
    return "\n".join(text for one in result.content if (text := getattr(one, "text", "")))
