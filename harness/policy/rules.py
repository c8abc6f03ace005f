"""Rule: one entry of a policy.

If in doubt, a rule errs on the safe side: it applies if it denies or asks, and does not apply if it
allows. Doubts are unknown facts, and paths and commands that may not be what they seem. In a call
with several paths or values, a rule that allows must match all of them, and a rule that denies any.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, get_args

from pydantic import JsonValue

from .access_request import AccessRequest, Action
from .patterns import (
    PolicyError,
    StepsPattern,
    any_of,
    folded,
    literal_in,
    name_pattern,
    steps_pattern,
)

if TYPE_CHECKING:
    from ..tools.tool import Tool
    from .command_rules import CommandPattern

__all__ = ["Patterns", "Rule"]

Patterns: TypeAlias = str | Sequence[str]
"""One pattern, or several of which one must match."""

_Condition: TypeAlias = Callable[[AccessRequest], bool]
_Glob: TypeAlias = tuple[str, StepsPattern]
"""A text that every match contains, and the expression."""

_Expressions: TypeAlias = Sequence[re.Pattern[str]]
RUNNERS = frozenset({"execute", "shell"})
"""Tools of our own that run commands."""

_MARKS = ("read_only", "destructive", "open_world")


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule of a policy: an action for the calls that meet all of its conditions.

    Attributes:
        action: The action for a call that matches.
        tool: Glob over tool names.
        path: Glob (`**`, `*`, `?`, braces) over the paths among the call's arguments, in canonical
            form; `/docs/**` covers `/docs` too. A call without a path does not match a rule that
            has one. None matches every call.
        reason: A reason for the model that is refused, or the person who is asked.
        read_only: Whether the tool declares this; None matches both. Hints of an MCP server's tool
            come from the server: use them to make a policy stricter, not laxer, unless you trust
            the server.
        destructive: The same.
        open_world: The same.
        server: Glob over the name of the MCP server a tool comes from; other tools don't match.
        args: Patterns by name of argument, with dots for nested values: a glob for its whole text,
            or a compiled expression, which an allowed text must match as a whole. Look-around and
            references are not allowed, so that matching is fast for any text. Text is compared as
            it is, everything else as JSON.
        command: The first words of a simple command in the call's command line, such as
            `git status` or `npm run *`. A rule that allows applies to a line if each of its
            commands is allowed and nothing in it could run another one.
        agent: Glob over the names of the agents from the main one to the caller: `main` for only
            the main agent, `*/reader`, `**/reader`, `main/**` for it and all below.
        principal: Glob over the user on whose behalf the call is made; empty for nobody.
        each_time: For a rule that asks: whether a person decides each call, without remembered
            decisions.
        source: Where the rule comes from, such as `rule 3 of policy.toml`; by default its number.

    Raises:
        PolicyError: A pattern or the action is not valid.
    """

    action: Action
    tool: Patterns = "*"
    path: Patterns | None = None
    reason: str = ""
    read_only: bool | None = None
    destructive: bool | None = None
    open_world: bool | None = None
    server: Patterns | None = None
    args: Mapping[str, str | re.Pattern[str]] = field(
        default_factory=dict[str, str | re.Pattern[str]], hash=False
    )
    command: Patterns | None = None
    agent: Patterns | None = None
    principal: Patterns | None = None
    each_time: bool = False
    source: str = ""
    _tools: _Expressions = field(init=False, repr=False, compare=False)
    _conditions: Sequence[_Condition] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.action not in get_args(Action):
            raise PolicyError(
                f"action {self.action!r} is not known; take {', '.join(get_args(Action))}"
            )
        for name in ("tool", "path", "server", "command", "agent", "principal"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                object.__setattr__(self, name, _several(name, value))
        if self.path is not None and self.server is None and RUNNERS.issuperset(_each(self.tool)):
            raise PolicyError(
                f"a rule with tool {self.tool!r} and path never matches: commands have no path. "
                "Leave tool out (what read_file or write_file is refused, commands are too), or "
                "take command instead of path"
            )
        object.__setattr__(self, "_tools", [name_pattern(one) for one in _each(self.tool)])
        object.__setattr__(self, "_conditions", tuple(_conditions(self)))

    def matches(
        self,
        tool: str,
        args: Mapping[str, JsonValue],
        definition: Tool | None = None,
        *,
        agent: Sequence[str] = (),
        principal: str = "",
    ) -> bool:
        """Tell whether the rule applies to this call.

        Args:
            tool: The tool's name.
            args: The arguments.
            definition: The tool itself. Without it, a rule about hints or the server errs on the
                safe side: it matches if it denies or asks, and doesn't if it allows.
            agent: Names of the agents from the main one to the caller; the same without it.
            principal: On whose behalf.
        """
        return self.speaks_of(tool) and self.fits(
            AccessRequest(tool, args, definition, agent, principal)
        )

    def speaks_of(self, tool: str) -> bool:
        """Whether the rule is about a tool of this name."""
        return any(pattern.match(tool) for pattern in self._tools)

    @property
    def conditions(self) -> Sequence[Callable[[AccessRequest], bool]]:
        """The conditions for a call, apart from the tool's name."""
        return self._conditions

    def fits(self, call: AccessRequest) -> bool:
        """Whether a call of a tool the rule is about meets its other conditions."""
        for condition in self._conditions:  # noqa: SIM110 - a generator would double what it costs
            if not condition(call):
                return False
        return True


def _several(name: str, value: Sequence[str]) -> tuple[str, ...]:
    patterns = tuple(value)
    if not patterns or not all(isinstance(one, str) for one in patterns):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PolicyError(f"{name} must be a pattern, or a list of at least one; got {value!r}")
    return patterns


def _each(patterns: Patterns) -> Sequence[str]:
    return (patterns,) if isinstance(patterns, str) else patterns


def _conditions(rule: Rule) -> Sequence[_Condition]:
    """Return the rule's conditions beside the tool's name, cheap ones first."""
    allows = rule.action == "allow"
    found: list[_Condition] = []
    marks = {name: getattr(rule, name) for name in _MARKS if getattr(rule, name) is not None}
    if marks:
        found.append(_about_marks(marks, allows))
    if rule.path is not None:
        found.append(_about_paths(_each(rule.path), allows))
    if rule.server is not None:
        found.append(_about_server(any_of(_each(rule.server), name_pattern), allows))
    if rule.agent is not None:
        found.append(_about_agent(any_of(_each(rule.agent), steps_pattern), allows))
    if rule.principal is not None:
        names = any_of(_each(rule.principal), name_pattern)
        found.append(lambda call: names(call.principal))
    if rule.command is not None:
        from .command_rules import CommandPattern  # few rules have one

        patterns = [CommandPattern(one, allows=allows) for one in _each(rule.command)]
        found.append(_about_commands(patterns, allows))
    for name, pattern in rule.args.items():
        found.append(_about_argument(name, pattern, allows))
    return found


def _about_marks(marks: Mapping[str, bool], allows: bool) -> _Condition:
    wanted = tuple(marks.items())

    def fits(call: AccessRequest) -> bool:
        tool = call.definition
        if tool is None:
            return not allows
        for name, value in wanted:  # noqa: SIM110 - a generator would double what it costs
            if getattr(tool, name) != value:
                return False
        return True

    return fits


def _about_server(names: Callable[[str], bool], allows: bool) -> _Condition:
    def fits(call: AccessRequest) -> bool:
        if call.definition is None:
            return not allows
        origin = getattr(call.definition, "server", None)  # see `MCPTool`
        return isinstance(origin, str) and names(origin)

    return fits


def _about_agent(names: Callable[[str], bool], allows: bool) -> _Condition:
    return lambda call: names(call.agent) if call.agent else not allows


def _about_paths(globs: Sequence[str], allows: bool) -> _Condition:
    for one in globs:
        if not one.startswith(("/", "**", "{")) or ".." in one.split("/"):
            raise PolicyError(
                f"path {one!r} must start with / at the root of the files, or with **, and cannot "
                "climb with '..'"
            )
        if one.endswith("/") and one != "/":
            raise PolicyError(
                f"path {one!r} would be the directory alone; write {one + '**'!r} for it and all "
                f"it holds, or {one.rstrip('/')!r} for itself"
            )
    exact = [(literal_in(one), steps_pattern(one)) for one in globs]
    if allows:
        return partial(_allowed_paths, exact)
    loose = [(literal_in(folded(one)), steps_pattern(folded(one))) for one in globs]
    if len(globs) > 1:
        each = [partial(_refused_paths, *pair) for pair in zip(exact, loose, strict=True)]
        return lambda call: any(one(call) for one in each)
    return partial(_refused_paths, exact[0], loose[0])


def _allowed_paths(globs: Sequence[_Glob], call: AccessRequest) -> bool:
    text = call.path_text
    if not any(literal in text for literal, _ in globs):
        return False
    return bool(call.paths) and all(
        path.sure and any(one.match(path.exact) for _, one in globs) for path in call.paths
    )


def _refused_paths(exact: _Glob, loose: _Glob, call: AccessRequest) -> bool:
    text = call.path_text
    if loose[0] in text and any(loose[1].match(path.folded) for path in call.paths):
        return True
    return exact[0] in text and any(exact[1].match(path.exact) for path in call.paths)


def _about_commands(patterns: Sequence[CommandPattern], allows: bool) -> _Condition:
    def allowed(call: AccessRequest) -> bool:
        for argv in call.certain:
            for one in patterns:
                if one.allows(argv):
                    break
            else:
                return False
        return bool(call.certain)

    def refused(call: AccessRequest) -> bool:
        for one in patterns:  # noqa: SIM110 - a generator would double what it costs
            if one.may_be(call.possible_commands):
                return True
        return False

    return allowed if allows else refused


def _about_argument(name: str, pattern: str | re.Pattern[str], allows: bool) -> _Condition:
    if isinstance(pattern, str):
        literal, test = literal_in(pattern), name_pattern(pattern).match
    else:
        from .patterns import argument_test  # few rules have one

        literal = ""
        try:
            test = argument_test(pattern, whole=allows)
        except PolicyError as error:
            raise PolicyError(f"args.{name}: {error}") from error

    def allowed(call: AccessRequest) -> bool:
        if call.partial and call.leaves_open(name):
            return False
        values = call.values(name)
        return bool(values) and all(
            any(all(map(test, reading)) for reading in value) for value in values
        )

    def refused(call: AccessRequest) -> bool:
        for text in call.texts(name):
            if literal in text and test(text):
                return True
        return call.partial and call.leaves_open(name)

    return allowed if allows else refused
