"""The one gate in front of every tool call: rules, and how their verdicts combine.

A *judge* looks at a call and says allow, deny or ask, or has no opinion. The policy of the agent
is one judge; middleware may add others (`AgentMiddleware.judge`). The strictest verdict holds.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import JsonValue
from wcmatch import fnmatch, glob

__all__ = ["ALLOW", "Action", "ApprovalDecision", "Policy", "Rule", "Verdict", "strictest"]

Action: TypeAlias = Literal["allow", "deny", "ask"]
ApprovalDecision: TypeAlias = Literal["approve", "edit", "reject", "respond"]

ALL_DECISIONS: tuple[ApprovalDecision, ...] = ("approve", "edit", "reject", "respond")
_STRICTNESS: dict[Action, int] = {"allow": 0, "ask": 1, "deny": 2}
_PATH_ARGS = ("path", "file_path")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge says about a call.

    Attributes:
        action: `allow`, `deny`, or `ask` a person.
        reason: Why, in words for the model and the person, such as `rule 2: no writes to /etc`.
        decisions: For `ask`: what the person may decide.
    """

    action: Action
    reason: str = ""
    decisions: tuple[ApprovalDecision, ...] = ALL_DECISIONS


ALLOW = Verdict("allow")


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a policy.

    Attributes:
        action: What follows when the rule matches.
        tool: Glob over tool names.
        path: Glob (`**`, `*`, `?`, braces) over the call's path argument, in canonical form; a
            call without a path does not match a rule that has one. None matches every call.
        reason: Shown to whoever is refused or asked.
    """

    action: Action
    tool: str = "*"
    path: str | None = None
    reason: str = ""

    def matches(self, tool: str, args: Mapping[str, JsonValue]) -> bool:
        """Whether the rule speaks about this call."""
        if not fnmatch.fnmatch(tool, self.tool, flags=fnmatch.CASE):
            return False
        if self.path is None:
            return True
        flags = glob.GLOBSTAR | glob.BRACE | glob.DOTGLOB | glob.FORCEUNIX | glob.CASE
        return any(glob.globmatch(path, self.path, flags=flags) for path in _paths(args))


def _paths(args: Mapping[str, JsonValue]) -> Iterable[str]:
    for name in _PATH_ARGS:
        value = args.get(name)
        if isinstance(value, str):
            yield posixpath.normpath("/" + value.replace("\\", "/").lstrip("/"))


@dataclass(frozen=True, slots=True)
class Policy:
    """An ordered list of rules; the first that matches decides, none means `default`."""

    rules: Sequence[Rule] = ()
    default: Action = "allow"

    def judge(self, tool: str, args: Mapping[str, JsonValue]) -> Verdict:
        """Return the verdict on a call, naming the rule it comes from."""
        for number, rule in enumerate(self.rules, start=1):
            if rule.matches(tool, args):
                why = f"rule {number} of the policy"
                return Verdict(rule.action, f"{why}: {rule.reason}" if rule.reason else why)
        return Verdict(self.default, "the policy's default")


def strictest(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the strictest verdict, the first of equals; `allow` when there is none.

    Among several `ask` only decisions that all of them accept remain.
    """
    held = ALLOW
    for verdict in verdicts:
        if _STRICTNESS[verdict.action] > _STRICTNESS[held.action]:
            held = verdict
        elif verdict.action == held.action == "ask":
            common: tuple[ApprovalDecision, ...] = tuple(
                choice for choice in held.decisions if choice in verdict.decisions
            )
            held = Verdict("ask", held.reason, common)
    return held
