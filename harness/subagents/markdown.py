"""Subagents as Markdown files: frontmatter says what one is, the body is its system prompt."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast, get_args

from ..definitions.confined_files import ConfinedFiles
from ..definitions.frontmatter import MAX_FILE_BYTES, DefinitionError, Frontmatter, decode
from ..errors import AgentBuildError
from ..limits.carried_limits import bounds
from ..limits.limits import Limits
from ..policy import Policy, PolicyError
from ..skills import check_name
from .definitions import Mode, SubAgent

__all__ = ["load_subagent"]

_DESCRIPTION_CHARS = 1_024
_MODEL_CHARS = 200
_KEYS = (
    "name", "description", "tools", "model", "skills", "mcp_servers", "permissions", "limits",
    "mode", "public",
)  # fmt: skip
_RULE = re.compile(r"rule (\d+)")
_COUNTS = ("model_calls", "tool_calls", "depth", "fan_out", "parallel_tool_calls", "tokens")
_AMOUNTS = ("cost", "seconds")


def load_subagent(path: Path, files: ConfinedFiles) -> SubAgent:
    """Read a subagent from a Markdown file.

    `name` and `description` are required. `tools`, `skills` and `mcp_servers` are lists of names,
    or text split at commas and blanks; absent means all of the caller's, `[]` means none. `model`
    absent or `inherit` means the caller's; `scripted:…` is refused, because it opens a file, and
    agents and strangers write definitions too. `permissions` is a list of rules as a policy file
    has them: they can only narrow what the caller may do. `limits` maps fields of `Limits` to
    numbers. `mode` is `fresh` or `fork`; the body of a fork may be empty. `public` is true or
    false.

    Raises:
        DefinitionError: A rule is broken; the text names the file, the line and the rule.
        OSError: The file cannot be read.
    """
    fields = Frontmatter.parse(decode(files.read(path, MAX_FILE_BYTES + 1), path), path)
    _refuse_unknown(fields)
    name = check_name(fields)
    model = _model(fields)
    mode = _mode(fields)
    if not fields.body.strip() and mode != "fork":
        raise DefinitionError(
            f"{path}: there is no system prompt; write the subagent's instructions below the "
            "frontmatter."
        )
    try:
        return SubAgent(
            name=name,
            description=fields.required_text("description", limit=_DESCRIPTION_CHARS),
            system_prompt=fields.body,
            tools=fields.names("tools"),
            model=model,
            skills=fields.names("skills"),
            mcp_servers=fields.names("mcp_servers"),
            policy=_policy(fields),
            limits=_limits(fields),
            mode=mode,
            public=_public(fields),
        )
    except AgentBuildError as error:
        fields.fail("mode", str(error))


def _refuse_unknown(fields: Frontmatter) -> None:
    unknown = [key for key in fields.fields if key not in _KEYS]
    if unknown:
        fields.fail(
            unknown[0],
            f"unknown {'key' if len(unknown) == 1 else 'keys'} "
            f"{', '.join(map(repr, unknown))}; allowed are {', '.join(_KEYS)}.",
        )


def _model(fields: Frontmatter) -> str | None:
    model = fields.text("model", limit=_MODEL_CHARS)
    provider, colon, _ = (model or "").strip().partition(":")
    if colon and provider == "scripted":
        fields.fail(
            "model",
            f"'model' must not be {model!r}: it would open a file that the definition names. Use "
            "a model's id or 'inherit', or make the subagent in code.",
        )
    return None if model == "inherit" else model


def _mode(fields: Frontmatter) -> Mode:
    mode = fields.fields.get("mode") or "fresh"
    if mode not in get_args(Mode):
        fields.fail("mode", f"'mode' must be {' or '.join(get_args(Mode))}, not {mode!r}.")
    return cast(Mode, mode)


def _public(fields: Frontmatter) -> bool | None:
    public = fields.fields.get("public")
    if public is not None and not isinstance(public, bool):
        fields.fail("public", f"'public' must be true or false, not {public!r}.")
    return public


def _policy(fields: Frontmatter) -> Policy | None:
    rules = fields.fields.get("permissions")
    if rules is None:
        return None
    if not isinstance(rules, list):
        fields.fail(
            "permissions",
            f"'permissions' must be a list of rules such as '- {{action: deny, tool: write_file, "
            f"path: /docs/**}}', not {rules!r}.",
        )
    source = f"{fields.path}: permissions"
    try:
        return Policy.from_rules(rules, source)  # type: ignore[arg-type]
    except PolicyError as error:
        problem = str(error).removeprefix(f"{source}: ")
        number = _RULE.match(problem)
        key = f"permissions.{int(number[1]) - 1}" if number else "permissions"
        fields.fail(key, f"permissions: {problem}")


def _limits(fields: Frontmatter) -> Limits | None:
    given = fields.fields.get("limits")
    if given is None:
        return None
    allowed = ", ".join((*_COUNTS, *_AMOUNTS))
    if not isinstance(given, dict) or not given:
        fields.fail("limits", f"'limits' must map names to numbers; allowed are {allowed}.")
    for name, value in given.items():
        key = f"limits.{name}"
        if name not in (*_COUNTS, *_AMOUNTS):
            fields.fail(key, f"unknown limit {name!r}; allowed are {allowed}.")
        whole = name in _COUNTS
        number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        least = 0 if name == "depth" else 1 if whole else None
        if not number or (value <= 0 if least is None else value < least):  # type: ignore[operator]
            kind = f"a whole number, {least} or more" if whole else "a number above 0"
            fields.fail(key, f"the limit {name!r} must be {kind}; got {value!r}.")
    return bounds(**given)
