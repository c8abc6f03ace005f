"""Tool execution: the gate every tool call passes, and the wraps around it.

Every call passes the same phases: rewrite (`wrap_tool_call`), policy, approval, execute, redact,
evict. The gate is inside the wraps, so it checks the call that would really run: not the model's
call, but the call after changes by wrappers and people. A failing tool gives a result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from pydantic import JsonValue

from ..._internal.records import changed, record
from ...errors import MiddlewareError
from ...limits.limits import Meter
from ...messages.message import ToolCall, ToolMessage
from ...policy import ALLOW, CallAuthorization, CallPolicy, NarrowedPolicy, Verdict, strictest
from ...policy.composite import ancestor_policies, consents_of_run
from ...tools.schemas import without_nulls
from ...tools.tool import InvalidArguments, Tool
from ..hooks.calling import FAILURES, Wrap, failure_of, wraps_of
from ..hooks.middleware import AgentMiddleware, hooks_of
from ..hooks.requests import Command, ToolCallOutcome, ToolCallRequest, ToolHandler
from ..run.interrupts import Asker
from .outcomes import (
    AtMostOnceMark,
    edit_notice_of,
    failure,
    not_run,
    outcome_of,
    run_cached,
    run_tool,
    with_notice,
)

if TYPE_CHECKING:
    from ...cache.entries import ToolCache

__all__ = ["REFUSED", "ToolPipeline"]

MAX_PROBLEM_CHARS = 1_000

REFUSED = "was refused and did not run"


class ToolPipeline:
    """Runs tool calls of one agent through all phases. Built once per agent.

    Attributes:
        policy: The rules in front of every call.
        cache: The cache for results of cacheable tools, if any.
    """

    def __init__(
        self,
        tools: Mapping[str, Tool],
        middleware: Sequence[AgentMiddleware],
        policy: CallPolicy,
        cache: ToolCache | None = None,
    ) -> None:
        self.cache = cache
        self._tools = tools
        self.policy = policy
        self._wraps = wraps_of(middleware, "wrap_tool_call")
        wrappers = hooks_of(middleware, "wrap_tool_call")
        self._supplied = any(one.supplies_tools for one in wrappers)
        self._judges = hooks_of(middleware, "judge")
        self._redactors = hooks_of(middleware, "redact")
        self._evictors = hooks_of(middleware, "evict")

    @property
    def runnable(self) -> Collection[str] | None:
        """Names of the tools that can run; None if wrappers may supply any."""
        return None if self._supplied else self._tools.keys()

    async def run(
        self, request: ToolCallRequest, asker: Asker, meter: Meter, once: AtMostOnceMark
    ) -> ToolCallOutcome:
        """Return the result of a call.

        Raises:
            Interrupted: The call waits for an answer.
            ToolFailed: A strict tool failed.
            MiddlewareError: A wrapper, redactor or evictor broke a rule or raised.
        """
        call = request.call
        if call.invalid is not None:
            return failure(
                call,
                f"{call.name} was not run: its arguments are not a JSON object that can be "
                f"read. Received: {call.invalid[:500]!r}. Send the call again with valid JSON; if "
                "it was cut off because it is long, in smaller parts.",
            )
        handler: ToolHandler = _Gate(self, asker, meter, once)
        for wrap in reversed(self._wraps):
            handler = _Wrapped(wrap, handler)
        outcome = await handler(request)
        for one in self._redactors:
            outcome = await _guarded(one, "redact", one.redact(request, outcome))
        for one in self._evictors:
            outcome = await _guarded(one, "evict", one.evict(request, outcome))
        if outcome.message.tool_call_id != call.id:
            raise MiddlewareError(
                f"the result of call {call.id} came back for {outcome.message.tool_call_id!r}; "
                "a middleware must keep the call's id"
            )
        return outcome

    def judge(self, request: ToolCallRequest, tool: Tool) -> tuple[Verdict, CallAuthorization]:
        """Return the strictest verdict of the policy and the middleware on a call.

        The second value is the verdict of the policies, including those of the agents above, on the
        rest of the call.
        """
        above = [one for one in ancestor_policies() if one is not self.policy]
        call, runtime = request.call, request.runtime
        authorization = CallAuthorization(
            NarrowedPolicy((self.policy, *above)) if above else self.policy,
            call.name,
            call.args,
            tool,
            self._tools.get("read_file", tool),
            runtime.agent_path[::2],  # names alternate with ids of calls
            runtime.principal,
        )
        said = [_judged(one, _with_own_arguments(request)) for one in self._judges]
        verdict = authorization.judge()
        others = [one for one in said if one is not None]
        return strictest([verdict, *others]) if others else verdict, authorization

    def find(self, request: ToolCallRequest) -> Tool | None:
        """Return the tool of a request, or the one that a wrapper supplied under that name."""
        supplied = request.tool
        if supplied is not None and supplied.name == request.call.name:
            return supplied
        return self._tools.get(request.call.name)

    def unknown(self, call: ToolCall) -> ToolCallOutcome:
        """Return the answer to a call of an unknown tool."""
        names = ", ".join(sorted(self._tools)) or "none"
        return failure(call, f"there is no tool {call.name!r}; nothing was run. Tools: {names}.")

    def reachable(self, tool: Tool) -> list[str]:
        """Return the names of the tools into which a call may be edited, including its own."""
        return sorted({*self._tools, tool.name})

    def edit_problem(self, asked: str, name: str, args: Mapping[str, JsonValue]) -> str | None:
        """Return why a call cannot be edited into a call of this tool with these arguments.

        It is also None if that is unknown in advance, because wrappers may supply the tool.
        """
        if name == asked and self._supplied:
            return None
        return self._call_problem(self._tools.get(name), name, args)

    def unusable(self, request: ToolCallRequest) -> str | None:
        """Return why an edited call cannot run, or None if it can."""
        return self._call_problem(self.find(request), request.call.name, request.call.args)

    def _call_problem(
        self, tool: Tool | None, name: str, args: Mapping[str, JsonValue]
    ) -> str | None:
        if tool is None:
            return f"there is no tool {name!r}. Tools: {', '.join(sorted(self._tools))}."
        try:
            tool.validate(_copied(args))
        except InvalidArguments as error:
            return str(error)
        return None


@record
class _Wrapped:
    """A middleware's `wrap_tool_call` around the rest of the chain."""

    wrap: Wrap
    handler: ToolHandler

    async def __call__(self, request: ToolCallRequest) -> ToolCallOutcome:
        try:
            value = await self.wrap.call(request, self.handler)
        except FAILURES as raised:
            raise failure_of(self.wrap.author, raised)  # noqa: B904 - it knows its cause
        if isinstance(value, ToolCallOutcome):
            return value
        try:
            return _wrapped_outcome(request.call, value)
        except (TypeError, ValueError) as error:
            raise MiddlewareError(f"{self.wrap.author}: {error}") from error


def _wrapped_outcome(call: ToolCall, value: object) -> ToolCallOutcome:
    """Return a wrapper's outcome of a call; unlike a tool's, it must contain the call's result."""
    outcome = outcome_of(call, value)
    if outcome.message.id in _result_ids(value):
        return outcome
    raise TypeError(
        f"it returned {type(value).__name__} without the call's result; return the handler's "
        "outcome, a ToolMessage, or a Command whose update holds one"
    )


def _result_ids(value: object) -> set[str]:
    """Return the ids of the tool messages in a wrapper's return value."""
    if isinstance(value, ToolCallOutcome):
        return {value.message.id}
    values = cast(Sequence[object], value) if isinstance(value, list) else (value,)
    found: list[object] = []
    for one in values:
        found += one.update.get("messages", ()) if isinstance(one, Command) else (one,)
    return {message.id for message in found if isinstance(message, ToolMessage)}


def _judged(middleware: AgentMiddleware, request: ToolCallRequest) -> Verdict | None:
    try:
        return middleware.judge(request)
    except FAILURES as raised:
        author, more = f"{middleware.name}.judge", f"; {request.call.name} did not run"
        raise failure_of(author, raised, more)  # noqa: B904 - it knows its cause


async def _guarded(
    middleware: AgentMiddleware, hook: str, outcome: Awaitable[ToolCallOutcome]
) -> ToolCallOutcome:
    try:
        return await outcome
    except FAILURES as raised:
        raise failure_of(f"{middleware.name}.{hook}", raised)  # noqa: B904 - it knows its cause


@record
class _Gate:
    """Policy, approval and execution of one call."""

    pipeline: ToolPipeline
    asker: Asker
    meter: Meter
    once: AtMostOnceMark

    async def __call__(self, request: ToolCallRequest) -> ToolCallOutcome:
        request = _with_own_arguments(request)
        approved_tool: str | None = None
        notice = unused = ""
        edits = 0
        while True:
            call = request.call
            if call.id != request.runtime.tool_call_id:
                raise MiddlewareError(
                    f"a wrapper made call {request.runtime.tool_call_id} into {call.id!r}; nothing "
                    "was run. A wrapper may change a call's tool and arguments, not its id"
                )
            tool = self.pipeline.find(request)
            if tool is None:
                return self.pipeline.unknown(call)
            try:
                request, args = _validated(request, tool)
            except InvalidArguments as error:
                return failure(call, str(error))
            call = request.call
            verdict, authorization = self.pipeline.judge(request, tool)
            if verdict.action == "deny":
                return failure(
                    call,
                    f"{call.name} {REFUSED} ({verdict.reason}). Find "
                    "another way, or ask the user to change the policy.",
                )
            asks = verdict.action == "ask" or self.asker.has_asked(call, edits)
            if (
                not asks
                or approved_tool == call.name
                or await self._was_consented(request, tool, verdict, edits)
            ):
                outcome = await self._run(tool, args, request, authorization)
                return with_notice(outcome, notice) if notice else outcome
            decision = self._ask(call, tool, verdict, edits, unused)
            match decision["decision"]:
                case "approve":
                    approved_tool = call.name
                case "edit":
                    edited, approves = _edited(request, decision)
                    edits += 1
                    unused = self._unused(call, edited, edits)
                    if not unused:
                        request, approved_tool = edited, approves
                        notice = edit_notice_of(request.call, verdict)
                case _:
                    return not_run(call, decision)

    async def _run(
        self,
        tool: Tool,
        args: dict[str, Any],
        request: ToolCallRequest,
        authorization: CallAuthorization,
    ) -> ToolCallOutcome:
        begun = await self.once.begin(request.call, tool.once) if tool.once else None
        if begun is not None:
            return begun
        request = changed(request, runtime=changed(request.runtime, policy=authorization))
        cache = self.pipeline.cache
        if cache is None or not tool.cacheable:
            return await run_tool(tool, args, request, self.meter, self.asker)
        return await run_cached(cache, tool, args, request, self.meter, self.asker)

    async def _was_consented(
        self, request: ToolCallRequest, tool: Tool, verdict: Verdict, edits: int
    ) -> bool:
        """Whether a person has decided such calls permanently; open questions still wait."""
        consents = consents_of_run()
        if consents is None or verdict.each_time or "approve" not in verdict.decisions:
            return False
        if edits or self.asker.has_asked(request.call, edits):
            return False
        return await consents.cover(request.call, tool, request.runtime)

    def _unused(self, call: ToolCall, edited: ToolCallRequest, edits: int) -> str:
        """Return why an edit is not used; empty if it is used.

        The person is asked about such a call again, so that neither the call nor the approval is
        lost. An edit that was not used once is never used later, even if its tool is back.
        """
        problem = self.pipeline.unusable(edited) or self._denied(edited)
        if problem is None and self.asker.has_asked(call, edits):
            problem = "it could not run then."
        return problem or ""

    def _denied(self, request: ToolCallRequest) -> str | None:
        """Return why a call is denied, or None if it is allowed or needs approval."""
        tool = self.pipeline.find(request)
        verdict = ALLOW if tool is None else self.pipeline.judge(request, tool)[0]
        text = f"{request.call.name} {REFUSED} ({verdict.reason})."
        return text if verdict.action == "deny" else None

    def _ask(
        self, call: ToolCall, tool: Tool, verdict: Verdict, edits: int, unused: str
    ) -> dict[str, Any]:
        if verdict.action == "allow":
            return self.asker.asked(call, edits)
        message = f"{call.name} needs approval"
        if verdict.reason:
            message += f" ({verdict.reason})"
        if unused:
            message += f". The edit was not used: {unused[:MAX_PROBLEM_CHARS]}"
        return self.asker.approval(
            call,
            message,
            verdict.decisions,
            edits,
            args_schema=tool.parameters,
            tools=self.pipeline.reachable(tool),
        )


def _with_own_arguments(request: ToolCallRequest) -> ToolCallRequest:
    """Return the request with a copy of its arguments, so that the checked call is what runs."""
    call = request.call
    return changed(request, call=changed(call, args=_copied(call.args)))


def _validated(request: ToolCallRequest, tool: Tool) -> tuple[ToolCallRequest, dict[str, Any]]:
    """Return the request without nulls that its tool does not accept, and valid arguments."""
    call = request.call
    try:
        return request, tool.validate(_copied(call.args))
    except InvalidArguments:
        kept = without_nulls(tool.parameters, call.args)
        if len(kept) == len(call.args):
            raise
        return _validated(request.override(call=changed(call, args=kept)), tool)


_NESTED = (dict, list)


def _copied(value: Any) -> Any:
    """Copy JSON data into new containers; `deepcopy` takes twenty times as long."""
    kind: object = value  # a second name, so that the first keeps its type
    if isinstance(kind, dict):
        return {key: _copied(one) if type(one) in _NESTED else one for key, one in value.items()}
    if isinstance(kind, list):
        return [_copied(one) if type(one) in _NESTED else one for one in value]
    return value


def _edited(
    request: ToolCallRequest, decision: Mapping[str, Any]
) -> tuple[ToolCallRequest, str | None]:
    """Return the edited request, and its tool's name if the edit counts as its approval.

    An edit into another tool is checked like a call of that tool.
    """
    old = request.call
    name = decision.get("tool", old.name)
    call = replace(old, name=name, args=decision.get("args", old.args))
    same = name == old.name
    return request.override(call=call, tool=request.tool if same else None), name if same else None
