"""Access request: a call as rules see it, verdicts, and the combination of several verdicts.

Rarely used facts are computed on first use.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from pydantic import BaseModel, JsonValue
from pydantic_core import to_jsonable_python

from .._internal.records import record
from .patterns import PathForms, paths_in

if TYPE_CHECKING:
    from ..tools.tool import Tool
    from .command_lines import Argv, Line
    from .command_rules import PossibleCommands

__all__ = [
    "ALLOW",
    "ALL_DECISIONS",
    "STRICTNESS",
    "AccessRequest",
    "Action",
    "ApprovalDecision",
    "ToolClass",
    "Verdict",
    "strictest",
]


Action: TypeAlias = Literal["allow", "deny", "ask"]
ApprovalDecision: TypeAlias = Literal["approve", "edit", "reject", "respond"]
ToolClass: TypeAlias = Literal["read_only", "destructive", "open_world"]
"""Classes that a tool declares; it can be in several classes, or in none."""

ALL_DECISIONS: tuple[ApprovalDecision, ...] = ("approve", "edit", "reject", "respond")
STRICTNESS: dict[Action, int] = {"allow": 0, "ask": 1, "deny": 2}


@record
class Verdict:
    """Verdict on a call: allow, ask or deny, and why.

    Attributes:
        action: `allow`, `deny`, or `ask` a person.
        reason: The reason for the model and the person, such as `rule 2: no writes to /etc`.
        decisions: For `ask`: the allowed decisions.
        edit_notice: For `ask`: text before the result of a call that the person edited, with
            `{call}` for the call as it ran. None for the default text, empty for no text.
        each_time: For `ask`: whether a person decides each call, so that no decision on an earlier
            one lets it through (`harness.policy.composite`).
    """

    action: Action
    reason: str = ""
    decisions: tuple[ApprovalDecision, ...] = ALL_DECISIONS
    edit_notice: str | None = None
    each_time: bool = False


ALLOW = Verdict("allow")


def strictest(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the strictest verdict, the first of equals; `allow` when there is none.

    Of several `ask`, only the decisions that all of them allow remain. If there are none, nobody
    can be asked, and the call is denied.
    """
    rest = iter(verdicts)
    held = next(rest, ALLOW)
    for verdict in rest:
        if STRICTNESS[verdict.action] > STRICTNESS[held.action]:
            held = verdict
        elif verdict.action == held.action == "ask":
            held = _both_asked(held, verdict)
    return held


def _both_asked(first: Verdict, second: Verdict) -> Verdict:
    common: tuple[ApprovalDecision, ...] = tuple(
        choice for choice in first.decisions if choice in second.decisions
    )
    if common:
        notice = second.edit_notice if first.edit_notice is None else first.edit_notice
        each_time = first.each_time or second.each_time
        return Verdict("ask", first.reason, common, notice, each_time)
    asked = (f"{', '.join(one.decisions) or 'nothing'} ({one.reason})" for one in (first, second))
    return Verdict(
        "deny",
        f"a person would have to decide, and two rules leave no decision: {' and '.join(asked)}",
    )


_Value: TypeAlias = Sequence[Sequence[str]]


class AccessRequest:
    """Access request: one call, as rules see it.

    Attributes:
        tool: The tool's name.
        args: The arguments.
        definition: The tool itself, or None if unknown.
        agent: Names of the agents from the main one to the caller, a slash after each; empty if
            unknown.
        principal: The user on whose behalf it is; empty for nobody in particular.
        paths: The paths in the arguments.
        path_text: All forms of the paths.
        line: The command line in the arguments, or None.
        certain: The commands of the line if there is no doubt about it; otherwise empty.
        possible_commands: The commands that the line may run.
        effective: The arguments as the tool gets them: defaults filled in, values converted.
        partial: Whether the call represents all calls with these arguments and any others.
    """

    __slots__ = (
        "_readings",
        "_texts",
        "agent",
        "args",
        "certain",
        "definition",
        "effective",
        "line",
        "partial",
        "path_text",
        "paths",
        "possible_commands",
        "principal",
        "tool",
    )  # fmt: skip

    paths: Sequence[PathForms]
    path_text: str
    line: Line | None
    certain: Sequence[Argv]
    possible_commands: PossibleCommands
    effective: Mapping[str, JsonValue]

    def __init__(
        self,
        tool: str,
        args: Mapping[str, JsonValue],
        definition: Tool | None = None,
        agent: Sequence[str] = (),
        principal: str = "",
    ) -> None:
        self.tool = tool
        self.args = args
        self.definition = definition
        self.agent = "".join(f"{name}/" for name in agent)
        self.principal = principal
        self.partial = False
        self._texts: dict[str, Sequence[str]] = {}
        self._readings: dict[str, Sequence[_Value]] = {}

    def __getattr__(self, name: str) -> Any:
        """Compute an attribute at its first use, and keep it."""
        if name not in _LAZY:
            raise AttributeError(name)
        value = _LAZY[name](self)
        setattr(self, name, value)
        return value

    def leaves_open(self, name: str) -> bool:
        """Whether a named argument of a partial call can have any value."""
        return name.partition(".")[0] not in self.args

    def of_command(self, argv: Argv) -> AccessRequest:
        """Return the call with a command line of only this command."""
        from .command_lines import Line
        from .command_rules import possible_commands_of

        one = copy(self)
        one.line = Line(self.line.text if self.line else "", (argv,))
        one.certain = (argv,)
        one.possible_commands = possible_commands_of(one.line)
        return one

    def values(self, name: str) -> Sequence[_Value]:
        """Return the values of a named argument: as given, and as the tool gets them.

        A value is a sequence of texts: its own, and for a list those of its items.
        """
        if name not in self._readings:
            self._readings[name] = [
                _readings(value)
                for args in (self.args, self.effective)
                for value in _named(args, name)
            ]
        return self._readings[name]

    def texts(self, name: str) -> Sequence[str]:
        """Return all texts of all values of a named argument."""
        if name not in self._texts:
            found = [text for value in self.values(name) for one in value for text in one]
            self._texts[name] = list(dict.fromkeys(found))
        return self._texts[name]


def _paths(call: AccessRequest) -> Sequence[PathForms]:
    return tuple(paths_in(call.args, call.definition.parameters if call.definition else None))


def _line(call: AccessRequest) -> Line | None:
    from .command_lines import line_of  # few calls have a command

    return line_of(call.args)


def _possible_commands(call: AccessRequest) -> PossibleCommands:
    from .command_rules import possible_commands_of

    return possible_commands_of(call.line)


_LAZY: Mapping[str, Callable[[AccessRequest], object]] = {
    "paths": _paths,
    "path_text": lambda call: "".join(f"{one.exact}\0{one.folded}\0" for one in call.paths),
    "line": _line,
    "certain": lambda call: call.line.commands if call.line and not call.line.doubt else (),
    "possible_commands": _possible_commands,
    "effective": lambda call: _effective(call.args, call.definition),
}


def _readings(value: JsonValue) -> _Value:
    items = [_text(one) for one in value] if isinstance(value, list) else []
    return [[_text(value)], items] if items else [[_text(value)]]


def _effective(args: Mapping[str, JsonValue], tool: Tool | None) -> Mapping[str, JsonValue]:
    if tool is None:
        return args
    properties = cast(
        Mapping[str, Mapping[str, JsonValue]], tool.parameters.get("properties") or {}
    )
    known: dict[str, JsonValue] = {
        name: about["default"]
        for name, about in properties.items()
        if name not in args and "default" in about
    }
    if tool.arguments is None:
        return {**args, **known}
    from ..tools.tool import InvalidArguments

    try:
        taken = tool.validate(args)
    except InvalidArguments:
        return {**args, **known}
    values: dict[str, object] = {}
    for name, value in taken.items():
        if isinstance(value, BaseModel) and name not in properties:
            values |= {key: getattr(value, key) for key in type(value).model_fields}
        else:
            values[name] = value
    return {**args, **known, **to_jsonable_python(values, serialize_unknown=True)}


def _named(value: JsonValue | Mapping[str, JsonValue], name: str) -> Iterator[JsonValue]:
    """Yield the values at a dotted name; in a list, those of each item."""
    if isinstance(value, list):
        for one in value:
            yield from _named(one, name)
    elif isinstance(value, Mapping):
        if name in value:
            yield value[name]
        head, dot, rest = name.partition(".")
        if dot and head in value:
            yield from _named(value[head], rest)


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
