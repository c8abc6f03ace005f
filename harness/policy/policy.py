"""Policy: an ordered list of rules."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, get_args

from pydantic import JsonValue

from .._internal.records import changed, record
from .access_request import STRICTNESS, AccessRequest, Action, ToolClass, Verdict, strictest
from .composite import CallPolicy, NarrowedPolicy
from .patterns import PolicyError
from .rules import Rule

if TYPE_CHECKING:
    from ..tools.tool import Tool
    from .parsing import PolicyText

__all__ = ["Decision", "Policy"]

_MAX_KNOWN_TOOLS = 1_000


@record
class Decision:
    """A verdict with the rule it comes from.

    Attributes:
        verdict: The verdict.
        rule: The rule it comes from; None for a default.
    """

    verdict: Verdict
    rule: Rule | None = None


_Candidate: TypeAlias = tuple[Sequence[Callable[[AccessRequest], bool]], Decision]
"""The conditions of a rule, and its verdict."""


class _Candidates(NamedTuple):
    """The rules about a tool, and whether any is about commands or paths."""

    rules: Sequence[_Candidate]
    commands: bool
    paths: bool


@dataclass(frozen=True, slots=True)
class Policy:
    """Policy: an ordered list of rules. The first match decides; otherwise, the defaults do.

    Attributes:
        rules: The rules.
        default: The action for a call that matches no rule and no other default.
        defaults: The action by class of tool if no rule matches; for a tool in several classes,
            the strictest.
        source: Where it was read from, for reasons.
        search_depth: How many levels below the `**` of a glob a sandbox searches for matches.
            None for all levels. Limit it for rules that should not slow commands down, nor hide
            paths from them for lack of time to search.
        files_only: Whether the rules are only about files, so that sandboxes ignore directories
            that match.
        reads_paths: Whether a rule is about paths.

    Raises:
        PolicyError: A default is unknown.
    """

    rules: Sequence[Rule] = ()
    default: Action = "allow"
    defaults: Mapping[ToolClass, Action] = field(
        default_factory=dict[ToolClass, Action], hash=False
    )
    source: str = "the policy"
    search_depth: int | None = None
    files_only: bool = False
    reads_paths: bool = field(init=False, repr=False, compare=False, default=False)
    _known: dict[str, _Candidates] = field(
        init=False, repr=False, compare=False, default_factory=dict[str, _Candidates]
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(self.rules))
        by_path = any(rule.path is not None for rule in self.rules)
        object.__setattr__(self, "reads_paths", by_path)
        for name, action in (("default", self.default), *self.defaults.items()):
            if action not in get_args(Action) or name not in ("default", *get_args(ToolClass)):
                raise PolicyError(
                    f"{name} = {action!r}: take {', '.join(get_args(Action))} for default, or in "
                    f"defaults for {', '.join(get_args(ToolClass))}"
                )

    @staticmethod
    def of(texts: Sequence[PolicyText]) -> Policy:
        """Combine the rules of several files in order; the first file with a default sets it."""
        defaults: dict[ToolClass, Action] = {}
        for one in texts:
            defaults = {**one.defaults, **defaults}
        others: list[Action] = [one.other for one in texts if one.other is not None]
        everything: Action = "allow"
        return Policy(
            [rule for one in texts for rule in one.rules],
            others[0] if others else everything,
            defaults,
            " and ".join(one.name for one in texts) or "the policy",
        )

    @staticmethod
    def from_toml(*paths: str | os.PathLike[str]) -> Policy:
        """Read a policy from files; the rules of the first file come first.

        Raises:
            PolicyError: A file cannot be read or is not valid; the text names file and line.
        """
        from .parsing import read_texts

        return Policy.of(read_texts(paths))

    @staticmethod
    def parse(text: str, name: str = "policy.toml") -> Policy:
        """Read a policy from the text of a file; see `docs/policy.md`.

        Raises:
            PolicyError: It is not valid; the text names the line.
        """
        from .parsing import parse_text

        return Policy.of([parse_text(text, name)])

    @staticmethod
    def from_rules(
        data: Sequence[Mapping[str, object]], source: str, *, default: Action = "allow"
    ) -> Policy:
        """Read a policy from plain data, such as the front matter of an agent's file.

        Args:
            data: One mapping per rule, with the keys of `[[rule]]` tables; see `docs/policy.md`.
            source: Where the rules come from, for reasons and errors.
            default: The action when no rule matches.

        Raises:
            PolicyError: It is not valid; the text names the source and the number of the rule.
        """
        from .parsing import read_rules

        return Policy.of([read_rules(data, source, default)])

    def judge(
        self,
        tool: str,
        args: Mapping[str, JsonValue],
        definition: Tool | None = None,
        *,
        agent: Sequence[str] = (),
        principal: str = "",
    ) -> Verdict:
        """Return the verdict on a call, with the rule it comes from.

        Each simple command of a command line is judged, and the strictest verdict counts.

        Args:
            tool: The tool's name.
            args: The arguments.
            definition: The tool itself, for rules about hints and servers; see `Rule.matches`.
            agent: Names of the agents from the main one to the caller.
            principal: On whose behalf the call is made.
        """
        call = AccessRequest(tool, args, definition, agent, principal)
        decided = self.decide(call)
        if len(decided) == 1:
            return decided[0].verdict
        return strictest(one.verdict for one in decided)

    def decide(self, call: AccessRequest) -> Sequence[Decision]:
        """Return the decisions on a call, one for each different command of its command line."""
        candidates = self._candidates(call.tool)
        line = call.line if candidates.commands else None
        if line is None:
            return (self._first(candidates, call),)
        if line.doubt:
            decided = self._first(candidates, call)
            return (_doubted(decided, line.doubt),)
        if len(line.commands) < 2:
            return (self._first(candidates, call),)
        commands = dict.fromkeys(line.commands)
        return [self._first(candidates, call.of_command(argv)) for argv in commands]

    def hides(
        self,
        path: str,
        definition: Tool | None = None,
        *,
        contents: bool = False,
        agent: Sequence[str] = (),
        principal: str = "",
    ) -> bool:
        """Tell whether listings omit a path, because `read_file` would be refused.

        Nothing is hidden unless a rule about paths applies to `read_file`.

        Args:
            path: A canonical path.
            definition: The tool `read_file`, or another tool that reads.
            contents: Whether the listing shows the contents of files; then files that need approval
                to read are omitted too.
            agent: Names of the agents from the main one to the caller.
            principal: On whose behalf.
        """
        candidates = self._candidates("read_file")
        if not candidates.paths:
            return False
        call = AccessRequest("read_file", {"path": path}, definition, agent, principal)
        decided = self._first(candidates, call)
        if decided.verdict.action != "ask":
            return decided.verdict.action == "deny"
        return contents and decided.rule is not None and decided.rule.path is not None

    def narrowed(self, other: CallPolicy) -> CallPolicy:
        """Return the policy whose verdict is the stricter one of this and another."""
        return NarrowedPolicy((self, other))

    def _first(self, candidates: _Candidates, call: AccessRequest) -> Decision:
        for conditions, decision in candidates.rules:
            for condition in conditions:
                if not condition(call):
                    break
            else:
                return decision
        return Decision(self._default(call.definition))

    def _candidates(self, tool: str) -> _Candidates:
        """Return the rules about a tool with their verdicts, in order."""
        known = self._known.get(tool)
        if known is None:
            if len(self._known) >= _MAX_KNOWN_TOOLS:
                self._known.clear()
            spoken = [one for one in enumerate(self.rules, start=1) if one[1].speaks_of(tool)]
            rules: list[_Candidate] = [
                (rule.conditions, Decision(_verdict(at, rule), rule)) for at, rule in spoken
            ]
            if not self.defaults:  # conditions that every call meets
                rules.append(((), Decision(self._default(None))))
            known = self._known[tool] = _Candidates(
                rules,
                any(rule.command is not None for _, rule in spoken),
                any(rule.path is not None for _, rule in spoken),
            )
        return known

    def _default(self, tool: Tool | None) -> Verdict:
        if not self.defaults:
            return Verdict(self.default, f"{self.source}'s default")
        found = [
            Verdict(action, f"{self.source}'s default for {name} tools")
            for name, action in self.defaults.items()
            if tool is None or getattr(tool, name)
        ]
        if tool is None or not found:
            found.append(Verdict(self.default, f"{self.source}'s default"))
        return max(found, key=lambda one: STRICTNESS[one.action])


def _verdict(number: int, rule: Rule) -> Verdict:
    why = rule.source or f"rule {number} of the policy"
    reason = f"{why}: {rule.reason}" if rule.reason else why
    return Verdict(rule.action, reason, each_time=rule.each_time)


def _doubted(decided: Decision, doubt: str) -> Decision:
    """Explain why no rule that allows commands applied, if the call is not allowed."""
    verdict = decided.verdict
    if verdict.action == "allow":
        return decided
    reason = f"{verdict.reason}; the command line cannot be judged part by part: {doubt}"
    return Decision(changed(verdict, reason=reason), decided.rule)
