"""Command path access: derives from the file rules how commands may access a path.

A sandbox mounts files accordingly: `reach` decides for one path, `patterns` returns the paths in
rules, and `boundaries` finds the existing paths where the access changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, Unpack

from pydantic import JsonValue

from .access_request import AccessRequest, Verdict, strictest
from .composite import Caller, CallPolicy, CompositePolicy
from .policy import Policy
from .rules import Patterns, Rule

if TYPE_CHECKING:
    from ..tools.tool import Tool

__all__ = [
    "FILE_WRITERS",
    "STRICTNESS",
    "WILD",
    "Access",
    "PathPattern",
    "only_globs",
    "path_verdict",
    "patterns",
    "policies_in",
    "reach",
]

Access: TypeAlias = Literal["write", "read", "hidden"]
"""`write` includes reading; a `hidden` path does not exist for commands."""

FILE_WRITERS = ("write_file", "edit_file", "delete_file")
"""The tools that change files."""

WILD = re.compile(r"[*?\[{\\]")
"""A part of a glob that is no plain text."""

STRICTNESS: Mapping[Access, int] = {"write": 0, "read": 1, "hidden": 2}
"""Access from the loosest to the strictest."""


class PathPattern(NamedTuple):
    """Path pattern: a glob over paths in a rule.

    Attributes:
        glob: The glob as written in the rule.
        prefix: The path before the first wildcard; all matches are at or below it.
        walk: Whether paths below the prefix must be checked one by one; not for `/docs` and
            `/docs/**`, which mean the same for everything below.
    """

    glob: str
    prefix: str
    walk: bool


def reach(
    policy: CallPolicy,
    path: str,
    *,
    agent: Sequence[str] = (),
    principal: str = "",
) -> Access:
    """Return the access that a command has to a path without a person's approval.

    It may read whatever `read_file` may read, and write wherever `write_file`, `edit_file` and
    `delete_file` all may, whatever their other arguments are. Rules about classes of tools are
    applied to the built-in file tools.

    Args:
        policy: The policy.
        path: A canonical path, which need not exist.
        agent: Names of the agents from the main one to the caller.
        principal: The user on whose behalf it runs.
    """
    known = _built_in()

    def may(name: str) -> bool:
        return _may(
            policy, AccessRequest(name, {"path": path}, known[name], agent, principal), agent
        )

    if not may("read_file"):
        return "hidden"
    return "write" if all(map(may, FILE_WRITERS)) else "read"


def patterns(policy: CallPolicy) -> Sequence[PathPattern]:
    """Return the path globs of the current rules, each once, in order.

    For rules that deny or ask, they match in any case and Unicode form. If not only globs
    decide about paths, `/**/*` is one of them.
    """
    found = [glob for rule in _rules(policy) for glob in _each(rule.path)]
    if not only_globs(policy):
        found.append("/**/*")
    return [_pattern(glob) for glob in dict.fromkeys(found)]


def only_globs(policy: CallPolicy) -> bool:
    """Whether only the globs of `patterns` decide about paths."""
    if any(not isinstance(one, Policy) and one.reads_paths for one in policies_in(policy)):
        return False  # its rules are unknown
    return not any("path" in rule.args for rule in _rules(policy))


def _rules(policy: CallPolicy) -> Iterator[Rule]:
    for one in policies_in(policy):
        if isinstance(one, Policy):
            yield from one.rules


def _each(globs: Patterns | None) -> Sequence[str]:
    return (globs,) if isinstance(globs, str) else globs or ()


def policies_in(policy: CallPolicy) -> Iterator[CallPolicy]:
    """Yield the current policies that a policy consists of."""
    if isinstance(policy, CompositePolicy):
        for one in policy.parts():
            yield from policies_in(one)
    else:
        yield policy


def _may(policy: CallPolicy, call: AccessRequest, agent: Sequence[str]) -> bool:
    call.partial = True
    for one in policies_in(policy):
        if isinstance(one, Policy):
            allowed = all(made.verdict.action == "allow" for made in one.decide(call))
        else:
            verdict = one.judge(
                call.tool, call.args, call.definition, agent=agent, principal=call.principal
            )
            allowed = verdict.action == "allow"
        if not allowed:
            return False
    return True


@cache
def _built_in() -> Mapping[str, Tool]:
    """Return tools with the classes of the built-in file tools."""
    from ..tools.tool import Tool  # it knows policies

    def nothing(_: dict[str, object]) -> str:
        return ""

    schema: dict[str, JsonValue] = {"type": "object", "properties": {"path": {"type": "string"}}}
    return {
        name: Tool.from_schema(
            name,
            "",
            schema,
            nothing,
            open_world=False,
            read_only=name not in FILE_WRITERS,
            destructive=name in FILE_WRITERS,
        )
        for name in ("read_file", *FILE_WRITERS)
    }


def _pattern(glob: str) -> PathPattern:
    plain = glob.removesuffix("/**") if glob != "/**" else "/"
    wild = WILD.search(plain)
    if wild is None:
        return PathPattern(glob, plain, walk=False)
    return PathPattern(glob, plain[: wild.start()].rpartition("/")[0] or "/", walk=True)


def path_verdict(
    policy: CallPolicy,
    tool: str,
    path: str,
    definition: Tool | None = None,
    **caller: Unpack[Caller],
) -> Verdict:
    """Return the verdict on a path: a refusal, or a question from a rule about paths.

    Questions that do not depend on the path, such as those for each call of a tool, count as
    allowed.

    Args:
        policy: The policy.
        tool: The name of a tool that takes a path.
        path: A canonical path.
        definition: The tool itself.
        caller: The caller.
    """
    return strictest(_verdicts(policy, tool, path, definition, caller))


def _verdicts(
    policy: CallPolicy, tool: str, path: str, definition: Tool | None, caller: Caller
) -> Iterator[Verdict]:
    call = AccessRequest(tool, {"path": path}, definition, **caller)
    for one in policies_in(policy):
        if not isinstance(one, Policy):
            verdict = one.judge(tool, call.args, definition, **caller)
            if verdict.action == "deny":
                yield verdict
            continue
        for decided in one.decide(call):
            verdict = decided.verdict
            about_path = decided.rule is not None and decided.rule.path is not None
            if verdict.action == "deny" or (verdict.action == "ask" and about_path):
                yield verdict
