"""Tool calls before they run: asks for approvals, and repairs calls without results.

The middleware says which calls need a decision; the gate in front of every tool asks. There is one
durable question for each such call, wherever the call comes from. A call that a person edited is
checked again, so no edit bypasses the rule of a tool.

Before a run starts, the transcript is made valid: each call has exactly one result, in its place. A
model always gets calls and results in pairs, whatever the transcript contains. Here the repaired
version is stored, so that people and other programs see it too. A valid transcript is not changed.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Mapping, Sequence
from typing import cast

from ..._internal.patterns import fits
from ...errors import AgentBuildError
from ...loop.hooks.middleware import AgentMiddleware
from ...loop.hooks.requests import HookResult, Runtime, ToolCallRequest
from ...loop.run.interrupts import InterruptOnConfig
from ...messages.message import Message
from ...messages.transcript import paired
from ...policy import ALL_DECISIONS, Verdict
from ...state.channels import Overwrite, State

__all__ = ["HumanInTheLoopMiddleware", "PatchToolCallsMiddleware"]


_GLOB = frozenset("*?[")


class HumanInTheLoopMiddleware(AgentMiddleware):
    """Asks a person before certain tools run.

    Args:
        interrupt_on: By tool name or glob over names: True to ask with all four decisions, False
            not to ask, or an `InterruptOnConfig`. An exact name goes before globs, globs are
            tried in the order given, and the first match decides: `{"*": True, "ls": False}`
            asks about everything but `ls`.
        description_prefix: The text for the person, before the tool's name, if the config has no
            description.
        edit_notice: The text before the result of an edited call, so that the model does not
            repeat its original call; `{call}` is replaced by the call as it ran. None for the
            default text, empty for none.

    Raises:
        AgentBuildError: A config allows no decision or an unknown one, or has a wrong type.
    """

    def __init__(
        self,
        interrupt_on: Mapping[str, bool | InterruptOnConfig],
        *,
        description_prefix: str = "Tool execution requires approval",
        edit_notice: str | None = None,
    ) -> None:
        self._prefix = description_prefix
        self._edit_notice = edit_notice
        self._exact: dict[str, InterruptOnConfig | None] = {}
        self._globs: dict[str, InterruptOnConfig | None] = {}
        for pattern, value in interrupt_on.items():
            rules = self._globs if _GLOB & set(pattern) else self._exact
            rules[pattern] = _checked(pattern, value)

    def judge(self, request: ToolCallRequest) -> Verdict | None:
        """Return `ask` with the text and the decisions for the person, or None to allow it."""
        config = self._config(request.call.name)
        if config is None or (config.when is not None and not config.when(request)):
            return None
        description = config.description
        text = description if isinstance(description, str) else description(request)
        decisions = tuple(dict.fromkeys(config.allowed_decisions))
        reason = text or f"{self._prefix}: {request.call.name}"
        return Verdict("ask", reason, decisions, self._edit_notice)

    def _config(self, tool: str) -> InterruptOnConfig | None:
        if tool in self._exact:
            return self._exact[tool]
        for pattern, config in self._globs.items():
            if fits(tool, pattern):
                return config
        return None


def _checked(pattern: str, value: object) -> InterruptOnConfig | None:
    """Return the config, or None for `False`. Configs come from files too, so types are checked."""
    where = f"interrupt_on[{pattern!r}]"
    if not pattern:
        raise AgentBuildError(f"{where}: a tool name or glob is expected")
    if isinstance(value, bool):
        return InterruptOnConfig() if value else None
    if not isinstance(value, InterruptOnConfig):
        raise AgentBuildError(
            f"{where} must be True, False or an InterruptOnConfig; got {type(value).__name__}"
        )
    choices = ", ".join(ALL_DECISIONS)
    if not value.allowed_decisions:
        raise AgentBuildError(f"{where} allows no decision; choose from {choices}")
    given = cast(object, value.allowed_decisions)
    if isinstance(given, str):
        raise AgentBuildError(f"{where}: allowed_decisions is a sequence; write [{given!r}]")
    unknown = [choice for choice in value.allowed_decisions if choice not in ALL_DECISIONS]
    if unknown:
        raise AgentBuildError(f"{where} allows unknown decisions {unknown}; choose from {choices}")
    for name, function in (("when", value.when), ("description", value.description)):
        if inspect.iscoroutinefunction(function):
            raise AgentBuildError(f"{where}: {name} must be a plain function, not async")
    return value


class PatchToolCallsMiddleware(AgentMiddleware):
    """Repairs dangling calls and orphaned results when a run begins.

    A call without a result gets an error result right after the other results of its answer. A
    result without a call is removed, and a misplaced one is moved to its answer.
    """

    def before_agent(self, state: State, runtime: Runtime) -> HookResult:
        """Return the repaired transcript as an `Overwrite`, or nothing if it is valid."""
        messages: Sequence[Message] = state.get("messages", ())
        patched = paired(messages)
        same = len(patched) == len(messages) and all(map(operator.is_, patched, messages))
        return None if same else {"messages": Overwrite(list(patched))}
