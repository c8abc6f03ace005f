"""What a subagent is, and the Markdown files that describe one (peers C6.1, C6.3)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from harness.frontmatter import DefinitionError, Frontmatter, decode
from harness.policy import Policy
from harness.skills.definitions import check_name

__all__ = ["GENERAL_PURPOSE", "SubAgent", "load_subagent"]

_DESCRIPTION_CHARS = 1_024
_MODEL_CHARS = 200
_KEYS = ("name", "description", "tools", "model", "skills", "mcp_servers")


@dataclass(frozen=True, slots=True)
class SubAgent:
    """An agent that another agent can hand a task to.

    Attributes:
        name: What the caller names it by.
        description: What it is good for; the caller's model chooses by it.
        system_prompt: Its instructions.
        tools: Names of the tools it gets; None for all of its caller's.
        model: Such as `anthropic:<model>`; None for its caller's.
        skills: Names of the skills it sees; None for all of its caller's.
        mcp_servers: Names of the mounted MCP servers whose tools it gets; None for all.
        policy: Further rules for its calls. The stricter verdict of these and its caller's holds,
            so they can only narrow what it may do.
    """

    name: str
    description: str
    system_prompt: str
    tools: tuple[str, ...] | None = None
    model: str | None = None
    skills: tuple[str, ...] | None = None
    mcp_servers: tuple[str, ...] | None = None
    policy: Policy | None = None

    @property
    def digest(self) -> str:
        """A SHA-256 over all of it."""
        said = {one.name: getattr(self, one.name) for one in fields(self)}
        return hashlib.sha256(json.dumps(said, default=repr).encode()).hexdigest()


GENERAL_PURPOSE = SubAgent(
    name="general-purpose",
    description=(
        "Carries out a self-contained task of several steps with the same tools as you, and "
        "reports back. Use it to research a question, search through many files, or do a piece of "
        "work whose details you do not need to see. It knows only what you write in the task."
    ),
    system_prompt="""\
You carry out one task for another agent. That agent sees nothing of your work except your last
message, and you cannot ask it anything.

- Read the whole task first. Where it leaves something open, choose the most sensible reading, say
  in your report which one you chose, and go on.
- Look before you conclude: use your tools to check facts instead of assuming them.
- Do all of the task and nothing beside it. Leave files alone that it does not concern.
- When something fails, find out why before you try again. After two failed attempts at the same
  thing, take another way or report what stands in the way.
- You are done when the task is done and you have checked the result, not when you have a plan.

End with one message that stands on its own: the answer or result first, then the evidence
(paths with line numbers, commands, figures), then which files you changed, then what you could
not do or are unsure of. Leave out the story of how you got there.""",
)
"""The subagent that is always there unless a file of the same name replaces it."""


def load_subagent(path: Path) -> SubAgent:
    """Read a subagent from a Markdown file; its body is the system prompt.

    `name` and `description` are required. `tools`, `skills` and `mcp_servers` are lists of names,
    or text split at commas and blanks; absent means all of the caller's, `[]` means none. `model`
    absent or `inherit` means the caller's.

    Raises:
        DefinitionError: A rule is broken; the text names the file, the line and the rule.
        OSError: The file cannot be read.
    """
    fields = Frontmatter.parse(decode(path.read_bytes(), path), path)
    _refuse_unknown(fields, fields.fields)
    name = check_name(fields)
    model = fields.text("model", limit=_MODEL_CHARS)
    if not fields.body.strip():
        raise DefinitionError(
            f"{path}: there is no system prompt; write the subagent's instructions below the "
            "frontmatter."
        )
    return SubAgent(
        name=name,
        description=fields.required_text("description", limit=_DESCRIPTION_CHARS),
        system_prompt=fields.body,
        tools=fields.names("tools"),
        model=None if model == "inherit" else model,
        skills=fields.names("skills"),
        mcp_servers=fields.names("mcp_servers"),
    )


def _refuse_unknown(fields: Frontmatter, given: Mapping[str, object]) -> None:
    unknown = [key for key in given if key not in _KEYS]
    if unknown:
        fields.fail(
            unknown[0],
            f"unknown {'key' if len(unknown) == 1 else 'keys'} "
            f"{', '.join(map(repr, unknown))}; allowed are {', '.join(_KEYS)}.",
        )
