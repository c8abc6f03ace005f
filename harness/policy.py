"""The one gate in front of every tool call: rules, and how their verdicts combine.

A *judge* looks at a call and says allow, deny or ask, or has no opinion. The policy of the agent
is one judge; middleware may add others (`AgentMiddleware.judge`). The strictest verdict holds.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import JsonValue
from wcmatch import fnmatch, glob

if TYPE_CHECKING:
    from harness.tools import Tool
from harness.records import record

__all__ = ["ALLOW", "Action", "ApprovalDecision", "Policy", "Rule", "Verdict", "strictest"]

Action: TypeAlias = Literal["allow", "deny", "ask"]
ApprovalDecision: TypeAlias = Literal["approve", "edit", "reject", "respond"]

ALL_DECISIONS: tuple[ApprovalDecision, ...] = ("approve", "edit", "reject", "respond")
_STRICTNESS: dict[Action, int] = {"allow": 0, "ask": 1, "deny": 2}
_PATH_ARGS = ("path", "file_path")


@record
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
        read_only: What the tool says of itself; None matches both. Hints of an MCP server's tool
            are the server's word: let them make a policy stricter, not laxer, unless you trust it.
        destructive: The same.
        open_world: The same.
        server: Glob over the name of the MCP server a tool comes from; other tools don't match.
    """

    action: Action
    tool: str = "*"
    path: str | None = None
    reason: str = ""
    read_only: bool | None = None
    destructive: bool | None = None
    open_world: bool | None = None
    server: str | None = None

    def matches(
        self, tool: str, args: Mapping[str, JsonValue], definition: Tool | None = None
    ) -> bool:
        """Whether the rule speaks about this call.

        Args:
            tool: The tool's name.
            args: The arguments.
            definition: The tool itself. Without it, a rule about hints or the server errs on the
                safe side: it matches if it denies or asks, and doesn't if it allows.
        """
        if not fnmatch.fnmatch(tool, self.tool, flags=fnmatch.CASE):
            return False
        if not self._fits(definition):
            return False
        if self.path is None:
            return True
        flags = glob.GLOBSTAR | glob.BRACE | glob.DOTGLOB | glob.FORCEUNIX | glob.CASE
        return any(glob.globmatch(path, self.path, flags=flags) for path in _paths(args))

    def _fits(self, tool: Tool | None) -> bool:
        hints = (self.read_only, self.destructive, self.open_world)
        if self.server is None and not any(hint is not None for hint in hints):
            return True
        if tool is None:
            return self.action != "allow"
        facts = (tool.read_only, tool.destructive, tool.open_world)
        if any(hint not in (None, fact) for hint, fact in zip(hints, facts, strict=True)):
            return False
        if self.server is None:
            return True
        origin = getattr(tool, "server", None)  # see `MCPTool`
        return isinstance(origin, str) and fnmatch.fnmatch(origin, self.server, flags=fnmatch.CASE)


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

    def judge(
        self, tool: str, args: Mapping[str, JsonValue], definition: Tool | None = None
    ) -> Verdict:
        """Return the verdict on a call, naming the rule it comes from.

        Args:
            tool: The tool's name.
            args: The arguments.
            definition: The tool itself, for rules about hints and servers; see `Rule.matches`.
        """
        for number, rule in enumerate(self.rules, start=1):
            if rule.matches(tool, args, definition):
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
