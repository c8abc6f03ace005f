"""Profiles as TOML files. What is wrong in one is named with its file and line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

from .._internal.records import record
from ..definitions.confined_files import ConfinedFiles
from ..definitions.frontmatter import MAX_FILE_BYTES, DefinitionError, decode
from ..definitions.toml_text import line_of, parse_toml
from ..errors import AgentBuildError
from .extras import extra_middleware
from .profile import EXTRAS, GeneralPurpose, Profile

__all__ = ["ProfileFile", "load_profile", "load_profiles"]


class _Kind(NamedTuple):
    """A kind of value, in words and as a test. Written out, as a schema costs milliseconds."""

    words: str
    fits: Callable[[object], bool]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_something(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_list(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, cast("list[object]", value)))


def _is_filled_list(value: object) -> bool:
    return _is_list(value) and bool(value)


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def _is_switch(value: object) -> bool:
    return isinstance(value, bool)


_TEXT = _Kind("text", _is_text)
_WORDS = _Kind("text that is not empty", _is_something)
_LIST = _Kind("a list of text", _is_list)
_TABLE = _Kind("a table", _is_table)

_KEYS = {
    "models": _Kind("a list of one or more names", _is_filled_list),
    "base_system_prompt": _TEXT,
    "system_prompt_suffix": _TEXT,
    "excluded_tools": _LIST,
    "excluded_middleware": _LIST,
    "tool_description_overrides": _TABLE,
    "extra_middleware": _TABLE,
    "init_kwargs": _TABLE,
    "general_purpose_subagent": _TABLE,
}
_GENERAL_KEYS = {
    "enabled": _Kind("true or false", _is_switch),
    "description": _WORDS,
    "system_prompt": _WORDS,
}
_LISTS = ("excluded_tools", "excluded_middleware")


@record
class ProfileFile:
    """A profile and what it is for.

    Attributes:
        name: The file's name without its ending.
        models: `provider`, or `provider:model` where the model's id may be a glob.
        profile: What it says.
    """

    name: str
    models: tuple[str, ...]
    profile: Profile


def load_profiles(directory: Path, files: ConfinedFiles) -> list[ProfileFile]:
    """Read every `*.toml` file of a directory, by name; one that is not there holds none.

    Raises:
        DefinitionError: A file breaks a rule; the text names the file, the line and the rule.
    """
    try:
        with files.entries(directory) as there:
            paths = [directory / one.name for one in there if one.name.endswith(".toml")]
        return [load_profile(path, files) for path in paths]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DefinitionError(
            f"{error.filename or directory}: profiles cannot be read here "
            f"({error.strerror or error}). Name a directory of readable TOML files."
        ) from error


def load_profile(path: Path, files: ConfinedFiles) -> ProfileFile:
    """Read a profile.

    Raises:
        DefinitionError: It breaks a rule; the text names the file, the line and the rule.
        OSError: It cannot be read.
    """
    text = decode(files.read(path, MAX_FILE_BYTES + 1), path)
    return _Reader(path, text).read(parse_toml(text, path))


@record
class _Reader:
    """One file; it knows where its keys are."""

    path: Path
    text: str

    def read(self, data: dict[str, Any]) -> ProfileFile:
        self._check(data)
        models = tuple(cast("list[str]", data.pop("models")))
        for place in models:
            if not all(place.split(":", 1)) or any(map(str.isspace, place)):
                self._fail(
                    ("models",), f"{place!r} is no model; write 'provider' or 'provider:model'."
                )
        return ProfileFile(self.path.stem, models, self._profile(data))

    def _check(self, data: Mapping[str, Any]) -> None:
        self._check_table((), data, _KEYS)
        if "models" not in data:
            self._fail(
                (),
                "it does not say which models it is for; write a line such as "
                'models = ["anthropic:claude-opus-*"].',
            )
        tables = {
            "tool_description_overrides": _WORDS,
            "extra_middleware": _TABLE,
        }
        for name, kind in tables.items():
            table = cast("dict[str, Any]", data.get(name, {}))
            self._check_table((name,), table, dict.fromkeys(table, kind))
        general = "general_purpose_subagent"
        self._check_table((general,), data.get(general, {}), _GENERAL_KEYS)
        if "api_key" in data.get("init_kwargs", {}):
            self._fail(
                ("init_kwargs", "api_key"),
                "keys do not belong into profiles, which are shown around; put it into the "
                "environment.",
            )

    def _check_table(
        self, above: tuple[str, ...], table: Mapping[str, Any], kinds: Mapping[str, _Kind]
    ) -> None:
        for key, value in table.items():
            if key not in kinds:
                allowed = ", ".join(kinds)
                self._fail((*above, key), f"unknown key {key!r}; allowed are {allowed}.")
            if not kinds[key].fits(value):
                name = ".".join((*above, key))
                self._fail((*above, key), f"{name} must be {kinds[key].words}; got {value!r:.80}.")

    def _profile(self, data: Mapping[str, Any]) -> Profile:
        fields = dict(data)
        fields |= {key: tuple(data[key]) for key in _LISTS if key in data}
        general = GeneralPurpose(**fields.pop("general_purpose_subagent", {}))
        try:
            profile = Profile(**fields, general_purpose_subagent=general)
        except AgentBuildError as error:
            strange = [name for name in data.get("extra_middleware", ()) if name not in EXTRAS]
            about_extras = str(error).startswith("extra_middleware")
            keys = ("extra_middleware", strange[0]) if about_extras else ("excluded_middleware",)
            self._fail(keys, f"{error}.")
        for name, arguments in profile.extra_middleware.items():
            try:
                extra_middleware({name: arguments})
            except AgentBuildError as error:
                self._fail(("extra_middleware", name), f"{error}.")
        return profile

    def _fail(self, keys: Sequence[str], problem: str) -> NoReturn:
        raise DefinitionError(f"{self.path}:{line_of(self.text, keys)}: {problem}")
