"""Subagent texts: lists the subagents for clients."""

from __future__ import annotations

from collections.abc import Mapping

from ...harness.subagents.definitions import GENERAL_PURPOSE, AnySubAgent, CompiledSubAgent

__all__ = ["described", "listed"]

_EACH = 160
_ALL = 2_000
_PROBLEM = 400
_PROBLEMS = 3


def described(subagent: AnySubAgent) -> str:
    """Return a subagent as Markdown: what it is good for, what it has, and its instructions."""
    parts = [f"# {subagent.name}", subagent.description]
    if isinstance(subagent, CompiledSubAgent):
        return "\n\n".join(parts) + "\n"
    facts: list[str] = []
    if subagent.tools is not None:
        names = [one if isinstance(one, str) else _name(one) for one in subagent.tools]
        facts.append(f"- tools: {', '.join(names) or 'none'}")
    if subagent.model is not None:
        facts.append(f"- model: {_name(subagent.model)}")
    if subagent.skills is not None:
        facts.append(f"- skills: {', '.join(subagent.skills) or 'none'}")
    facts.append(f"- mode: {subagent.mode}")
    parts.append("\n".join(facts))
    if subagent.system_prompt:
        parts.append(f"## Instructions\n\n{subagent.system_prompt.strip()}")
    return "\n\n".join(parts) + "\n"


def listed(
    subagents: Mapping[str, AnySubAgent], errors: Mapping[str, str], *, every: bool = False
) -> str:
    """Return a line for each subagent of the operator, cut to what a tool's description bears.

    Args:
        subagents: By name.
        errors: What is wrong with which file; those that are left out are missed by somebody.
        every: List the general-purpose one, too.
    """
    lines: list[str] = []
    own = [one for name, one in sorted(subagents.items()) if every or name != GENERAL_PURPOSE.name]
    for one in own:
        text = " ".join(one.description.split())
        lines.append(f"- {one.name}: {text if len(text) <= _EACH else text[: _EACH - 1] + '…'}")
        if sum(map(len, lines)) > _ALL:
            left = len(own) - len(lines) + 1
            lines[-1] = f"- and {left} more, which are resources agent://NAME"
            break
    problems = [" ".join(one.split())[:_PROBLEM] for one in errors.values()][:_PROBLEMS]
    return "\n".join([*lines, *(f"- (a file has a problem) {one}" for one in problems)])


def _name(one: object) -> str:
    if isinstance(one, str):
        return one
    return str(getattr(one, "name", None) or getattr(one, "__name__", type(one).__name__))
