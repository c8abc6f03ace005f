"""The only way to a tool.

Every call passes the same phases: rewrite (`wrap_tool_call`), policy, approval, execute, redact,
evict. The gate stands inside the wraps, so it judges the call that would really run: not what the
model wrote, but what wrappers and people made of it (peers E6, E7). A failing tool is a result.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import anyio

from harness.errors import CheckpointError, HarnessError, MiddlewareError, ToolError
from harness.limits import LimitReached, Meter
from harness.loop.interrupts import Asker
from harness.loop.middleware import AgentMiddleware, hooks_of
from harness.loop.requests import ToolCallOutcome, ToolCallRequest, ToolHandler
from harness.messages import ImageBlock, TextBlock, ToolCall, ToolMessage
from harness.policy import Policy, Verdict, strictest
from harness.tools import InvalidArguments, Tool, ToolResult

__all__ = ["ToolPipeline", "failure"]

logger = logging.getLogger(__name__)


def failure(call: ToolCall, text: str) -> ToolCallOutcome:
    """Return an error result for a call."""
    return ToolCallOutcome(ToolMessage(call.id, text, name=call.name, status="error"))


def _outcome(call: ToolCall, value: Any) -> ToolCallOutcome:
    """Turn whatever a tool returned into a result."""
    if isinstance(value, ToolResult):
        message = ToolMessage(call.id, value.content, call.name, value.status, value.artifact)
        return ToolCallOutcome(message, value.update, value.writes)
    if isinstance(value, tuple):
        blocks = cast(tuple[Any, ...], value)
        if all(isinstance(block, TextBlock | ImageBlock) for block in blocks):
            return ToolCallOutcome(ToolMessage(call.id, blocks, name=call.name))
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return ToolCallOutcome(ToolMessage(call.id, text, name=call.name))


class ToolPipeline:
    """Runs tool calls of one agent through all phases. Built once per agent."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        middleware: Sequence[AgentMiddleware],
        policy: Policy,
    ) -> None:
        self._tools = tools
        self._policy = policy
        self._wraps = hooks_of(middleware, "wrap_tool_call")
        self._judges = hooks_of(middleware, "judge")
        self._redactors = hooks_of(middleware, "redact")
        self._evictors = hooks_of(middleware, "evict")

    async def run(self, request: ToolCallRequest, asker: Asker, meter: Meter) -> ToolCallOutcome:
        """Return the result of a call.

        Raises:
            Interrupted: The call waits for an answer.
            MiddlewareError: A wrapper, redactor or evictor broke a rule or raised.
        """
        call = request.call
        if call.invalid is not None:
            return failure(
                call,
                f"{call.name} was not run: its arguments are not a JSON object. Received: "
                f"{call.invalid[:500]!r}. Send the call again with valid JSON.",
            )
        handler: ToolHandler = _Gate(self, asker, meter)
        for wrap in reversed(self._wraps):
            handler = _Wrapped(wrap, handler)
        outcome = await handler(request)
        for one in self._redactors:
            outcome = await one.redact(request, outcome)
        for one in self._evictors:
            outcome = await one.evict(request, outcome)
        if outcome.message.tool_call_id != call.id:
            raise MiddlewareError(
                f"the result of call {call.id} came back for {outcome.message.tool_call_id!r}; "
                "a middleware must keep the call's id"
            )
        return outcome

    def judge(self, request: ToolCallRequest) -> Verdict:
        """Return the strictest verdict of the policy and the middleware on a call."""
        call = request.call
        verdicts = [one.judge(request) for one in self._judges]
        return strictest(
            [
                self._policy.judge(call.name, call.args),
                *(verdict for verdict in verdicts if verdict is not None),
            ]
        )

    def find(self, request: ToolCallRequest) -> Tool | None:
        """Return the tool a request names, or the one a wrapper supplied under that name."""
        supplied = request.tool
        if supplied is not None and supplied.name == request.call.name:
            return supplied
        return self._tools.get(request.call.name)

    def unknown(self, call: ToolCall) -> ToolCallOutcome:
        """Return the answer to a call of a tool that is not there (peers A3.15)."""
        names = ", ".join(sorted(self._tools)) or "none"
        return failure(call, f"there is no tool {call.name!r}; nothing was run. Tools: {names}.")


class _Wrapped:
    """A middleware's `wrap_tool_call` around the rest of the chain."""

    def __init__(self, middleware: AgentMiddleware, handler: ToolHandler) -> None:
        self._middleware = middleware
        self._handler = handler

    async def __call__(self, request: ToolCallRequest) -> ToolCallOutcome:
        try:
            return await self._middleware.wrap_tool_call(request, self._handler)
        except (HarnessError, LimitReached):
            raise
        except Exception as error:
            raise MiddlewareError(
                f"{self._middleware.name}.wrap_tool_call raised {type(error).__name__}: {error}"
            ) from error


class _Gate:
    """Policy, approval and execution of one call."""

    def __init__(self, pipeline: ToolPipeline, asker: Asker, meter: Meter) -> None:
        self._pipeline = pipeline
        self._asker = asker
        self._meter = meter

    async def __call__(self, request: ToolCallRequest) -> ToolCallOutcome:
        approved_tool: str | None = None
        notice = ""
        while True:
            call = request.call
            tool = self._pipeline.find(request)
            if tool is None:
                return self._pipeline.unknown(call)
            try:
                args = tool.validate(call.args)
            except InvalidArguments as error:
                return failure(call, str(error))
            verdict = self._pipeline.judge(request)
            if verdict.action == "deny":
                return failure(
                    call,
                    f"{call.name} was refused and did not run ({verdict.reason}). Find "
                    "another way, or ask the user to change the policy.",
                )
            if verdict.action == "allow" or approved_tool == call.name:
                outcome = await self._execute(tool, call, args, request)
                return _with_notice(outcome, notice)
            decision = self._ask(call, verdict)
            match decision["decision"]:
                case "approve":
                    approved_tool = call.name
                case "edit":
                    request, approved_tool = _edited(request, decision)
                    notice = (
                        "Note: a person edited this call before it ran. It ran as "
                        f"{request.call.name}({json.dumps(request.call.args)}).\n"
                    )
                case "respond":
                    text = decision.get("message", "")
                    return ToolCallOutcome(ToolMessage(call.id, text, name=call.name))
                case _:
                    why = decision.get("message") or "no reason was given"
                    return failure(
                        call, f"{call.name} was rejected by a person and did not run: {why}."
                    )

    def _ask(self, call: ToolCall, verdict: Verdict) -> dict[str, Any]:
        message = f"{call.name} needs approval"
        if verdict.reason:
            message += f" ({verdict.reason})"
        return self._asker.approval(call, message, verdict.decisions)

    async def _execute(
        self, tool: Tool, call: ToolCall, args: dict[str, Any], request: ToolCallRequest
    ) -> ToolCallOutcome:
        try:
            self._meter.before_tool_call()
            with anyio.move_on_after(tool.timeout):
                return _outcome(call, await tool.function(args, request.runtime))
            return failure(
                call, f"{call.name} was stopped after {tool.timeout} s; it may have acted partly."
            )
        except ToolError as error:
            return failure(call, str(error))
        except (LimitReached, CheckpointError):
            raise
        except Exception as error:
            logger.warning("tool %s failed", call.name, exc_info=error)
            return failure(call, f"{call.name} failed: {type(error).__name__}: {error}")


def _edited(
    request: ToolCallRequest, decision: Mapping[str, Any]
) -> tuple[ToolCallRequest, str | None]:
    """Return the edited request, and its tool's name when the edit counts as its approval.

    An edit into another tool is judged like a call of that tool (peers B1.5).
    """
    old = request.call
    name = decision.get("tool", old.name)
    call = replace(old, name=name, args=decision.get("args", old.args))
    return request.override(call=call, tool=None), old.name if name == old.name else None


def _with_notice(outcome: ToolCallOutcome, notice: str) -> ToolCallOutcome:
    if not notice:
        return outcome
    content = outcome.message.content
    noted = notice + content if isinstance(content, str) else (TextBlock(notice), *content)
    return replace(outcome, message=replace(outcome.message, content=noted))
