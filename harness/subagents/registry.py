"""Registry of all subagents, from code and from Markdown files, which can be reloaded any time.

In a Markdown file, the frontmatter describes the subagent, and the body is its system prompt.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast, get_args
from weakref import WeakMethod

from ..definitions import no_such
from ..definitions.confined_files import ConfinedFiles, RefusedLink
from ..definitions.frontmatter import MAX_FILE_BYTES, DefinitionError, Frontmatter, decode
from ..definitions.registry import DefinitionRegistry, Objection
from ..definitions.sources import FileStat, Found, Source
from ..errors import AgentBuildError, ToolError
from ..limits.carried_limits import bounds
from ..limits.limits import Limits
from ..policy import Policy, PolicyError
from ..skills import check_name
from .definitions import GENERAL_PURPOSE, AnySubAgent, CompiledSubAgent, Mode, ModelRole, SubAgent

__all__ = ["SubAgentRegistry", "UnknownSubAgent", "load_subagent"]


_DESCRIPTION_CHARS = 1_024
_MODEL_CHARS = 200
_KEYS = (
    "name", "description", "tools", "model", "skills", "mcp_servers", "permissions", "limits",
    "mode", "public", "capabilities", "model_role", "vision",
)  # fmt: skip
_RULE = re.compile(r"rule (\d+)")
_COUNTS = ("model_calls", "tool_calls", "depth", "fan_out", "parallel_tool_calls", "tokens")
_AMOUNTS = ("cost", "seconds")


def load_subagent(path: Path, files: ConfinedFiles) -> SubAgent:
    """Read a subagent from a Markdown file.

    `name` and `description` are required. `tools`, `skills` and `mcp_servers` are lists of names,
    or text split at commas and spaces; without them, the subagent has all of its caller's, with
    `[]` none. Without `model`, or with `inherit`, it uses the caller's; `scripted:…` is refused,
    because it opens a file, and agents and strangers can write definitions. `permissions` is a list
    of rules, as in a policy file, that can only narrow the rights of the caller. `limits` maps
    fields of `Limits` to numbers. `mode` is `fresh` or `fork`; the body of a fork may be empty.
    `public` and `vision` are true or false. `capabilities` is a list of labels, and `model_role`
    big, medium or small.

    Raises:
        DefinitionError: The file is invalid; the text names the file, the line and the reason.
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
            public=_flag(fields, "public"),
            capabilities=_capabilities(fields),
            model_role=_model_role(fields),
            vision=_flag(fields, "vision") or False,
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


def _flag(fields: Frontmatter, key: str) -> bool | None:
    value = fields.fields.get(key)
    if value is not None and not isinstance(value, bool):
        fields.fail(key, f"{key!r} must be true or false, not {value!r}.")
    return value


def _capabilities(fields: Frontmatter) -> tuple[str, ...]:
    """Return the labels; unlike names they can contain spaces, so they are a list."""
    value = fields.fields.get("capabilities") or []
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        fields.fail("capabilities", "'capabilities' must be a list such as [review of patches].")
    return tuple(cast(list[str], value))


def _model_role(fields: Frontmatter) -> ModelRole | None:
    role = fields.fields.get("model_role")
    if role is not None and role not in get_args(ModelRole):
        fields.fail(
            "model_role", f"'model_role' must be {', '.join(get_args(ModelRole))}, not {role!r}."
        )
    return cast(ModelRole | None, role)


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


class UnknownSubAgent(ToolError):
    """Error: no subagent has that name; the text lists the subagents."""


class SubAgentRegistry(DefinitionRegistry[AnySubAgent]):
    """Subagents by name. Safe to read from any thread.

    Args:
        directory: A directory with one `*.md` file per subagent, which need not exist yet. None for
            no files.
        builtin: Subagents that are always included; a file, or one in `given`, with the same name
            replaces them.
        given: Additional subagents, defined in code. A file of the same name is an error.
        untrusted: Directories that agents can write. A file in one that is a link out of it is not
            read.

    Raises:
        AgentBuildError: Two of the given subagents share a name.
    """

    kind = "subagents"
    holds = "one Markdown file per subagent"

    def __init__(
        self,
        directory: Path | None,
        builtin: Sequence[AnySubAgent] = (GENERAL_PURPOSE,),
        given: Sequence[AnySubAgent] = (),
        *,
        untrusted: Sequence[Path] = (),
    ) -> None:
        self._directory = None if directory is None else directory.absolute()
        self._builtins = tuple(builtin)
        self._take(given)
        self._checks: list[WeakMethod[Callable[[SubAgent], str | None]]] = []
        self._judged: dict[str, tuple[AnySubAgent, Objection | None]] = {}
        super().__init__(untrusted)

    @property
    def subagents(self) -> Mapping[str, AnySubAgent]:
        """The subagents, sorted by name."""
        return self.snapshot.items

    @property
    def roots(self) -> Sequence[Path]:
        """The directory, if there is one."""
        return () if self._directory is None else (self._directory,)

    @property
    def given(self) -> Sequence[AnySubAgent]:
        """The subagents defined in code, without the built-in ones."""
        return tuple(one for one in self._given.values() if one != GENERAL_PURPOSE)

    def check_with(self, check: Callable[[SubAgent], str | None]) -> None:
        """Leave out files that no agent can use as a subagent, with the reason in `errors`.

        Agents that share a registry can differ in their tools: a file is left out if none of the
        living agents can use it. Blocks.

        Args:
            check: Returns the error in a definition, or None. It must be a method; its object is
                not kept alive.
        """
        with self._lock:
            self._checks = [one for one in self._checks if one() is not None]
            self._checks.append(WeakMethod(check))
            self._judged = {}
            self._publish()

    def use(self, directory: Path | None, given: Sequence[AnySubAgent] | None = None) -> bool:
        """Use the files of this directory from now on; return whether that changed anything.

        Blocks, like `reload`.

        Args:
            directory: As for the constructor.
            given: As for the constructor; None leaves them unchanged.

        Raises:
            AgentBuildError: Two of the given subagents share a name.
        """
        self._directory = None if directory is None else directory.absolute()
        if given is not None:
            self._take(given)
        return self.reload()

    def _take(self, given: Sequence[AnySubAgent]) -> None:
        _check_given(given)
        self._given = {one.name: one for one in (*self._builtins, *given)}
        self._fixed = frozenset(one.name for one in given)

    def get(self, name: str) -> AnySubAgent:
        """Return a subagent.

        Raises:
            UnknownSubAgent: There is none of that name.
        """
        subagents = self.subagents
        if name not in subagents:
            raise self.unknown(name, subagents)
        return subagents[name]

    def unknown(self, name: str, there: Collection[str]) -> UnknownSubAgent:
        """Return the error for an unknown name; it mentions the file if that is broken."""
        problems = [text for path, text in self.errors.items() if Path(path).stem == name]
        return UnknownSubAgent(" ".join([no_such("subagent", name, there), *problems]))

    def _builtin(self) -> Iterable[AnySubAgent]:
        return self._given.values()

    def _sources(self) -> Sequence[Source]:
        return [self._files.source(one, str(one)) for one in self.roots]

    def _find(self, entry: os.DirEntry[str], source: Source) -> Found | None:
        path = source.directory / entry.name
        if not entry.name.endswith(".md"):
            return None
        with suppress(RefusedLink):  # reading it reports that, and keeps the earlier version
            if self._files.is_directory(entry, path):
                return None
        return Found(path, source)

    def _signature(self, found: Found) -> tuple[FileStat, ...]:
        return (self._files.file_stat(found.path),)

    def _load(self, found: Found) -> AnySubAgent:
        loaded = load_subagent(found.path, self._files)
        if loaded.name in self._fixed:
            kind = type(self._given[loaded.name]).__name__
            raise DefinitionError(
                f"{found.path}: the name {loaded.name!r} is already taken by a {kind} given in "
                "code; rename one of them."
            )
        return loaded

    def _objection(self, item: AnySubAgent) -> Objection | None:
        known = self._judged.get(item.name)
        if known is None or known[0] is not item:
            known = self._judged[item.name] = item, self._judge(item)
        return known[1]

    def _judge(self, item: AnySubAgent) -> Objection | None:
        checks = [check for one in self._checks if (check := one()) is not None]
        if not checks or isinstance(item, CompiledSubAgent):
            return None
        problems = [check(item) for check in checks]
        if None in problems:
            return None
        return Objection(f"{problems[-1]} It is left out until this is fixed.", left_out=True)

    def _describe(self, item: AnySubAgent) -> tuple[str, str]:
        return item.name, item.digest


def _check_given(given: Sequence[AnySubAgent]) -> None:
    known: dict[str, AnySubAgent] = {}
    for one in given:
        if not isinstance(one, SubAgent | CompiledSubAgent):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise AgentBuildError(f"subagents are SubAgent(…) or CompiledSubAgent(…); got {one!r}")
        first = known.setdefault(one.name, one)
        if first is not one:
            raise AgentBuildError(
                f"two subagents are named {one.name!r}: {_named(first)}, and {_named(one)}; rename "
                "one of them"
            )


def _named(one: AnySubAgent) -> str:
    return f"the {type(one).__name__} that {one.description[:60]!r} describes"
