"""Profiles: prompts, tools and settings that differ between models, as data.

An error in a file is reported with its file and line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, cast

from .._internal.patterns import fits
from .._internal.records import record
from ..definitions.confined_files import ConfinedFiles
from ..definitions.frontmatter import MAX_FILE_BYTES, DefinitionError, decode, line_of, parse_toml
from ..errors import AgentBuildError
from ..models.names import canonical_name
from .profile import EXTRAS, GeneralPurpose, Profile, extra_middleware

__all__ = ["BUILTIN", "GeneralPurpose", "Profile", "ProfileRegistry", "load_profile", "profile_for"]


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
                    ("models",), f"{place!r} is not a model; write 'provider' or 'provider:model'."
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


BUILTIN = Path(__file__).parent / "builtin"
"""Where the profiles that ship are."""

_WILD = frozenset("*?[")


class ProfileRegistry:
    """Profiles from directories of TOML files, read once.

    All profiles that fit a model are merged (`Profile.refined`): those of a later directory over
    those of an earlier one, within a directory the specific over the general: a provider, then
    globs by the number of letters they fix, then a whole name. A file replaces one of the same
    name in an earlier directory, built-in ones too, so an empty profile of that name removes it.

    Args:
        directories: Holds `*.toml` files each; later ones win. One need not exist.
        builtin: Whether the profiles that ship come before them.
        untrusted: Directories that agents can write: a link there that leads out of them is an
            error.

    Raises:
        DefinitionError: A file breaks a rule; the text names the file, the line and the rule.
    """

    def __init__(
        self,
        directories: Sequence[Path] = (),
        *,
        builtin: bool = True,
        untrusted: Sequence[Path] = (),
    ) -> None:
        self._directories = tuple(directories)
        self._builtin = builtin
        self._files = ConfinedFiles().also(untrusted)
        sources = [BUILTIN, *directories] if builtin else [*directories]
        found: dict[str, tuple[int, ProfileFile]] = {}
        for place, directory in enumerate(sources):
            found |= {one.name: (place, one) for one in load_profiles(directory, self._files)}
        self._found = tuple(found.values())

    def distrusting(self, paths: Sequence[Path]) -> ProfileRegistry:
        """Return the same profiles, read with these directories among the untrusted. Blocks.

        Raises:
            DefinitionError: A file is a link that is refused now, or breaks a rule.
        """
        wider = self._files.also(paths)
        if wider is self._files or not self._directories:
            return self
        return ProfileRegistry(self._directories, builtin=self._builtin, untrusted=wider.roots)

    @property
    def profiles(self) -> Mapping[str, ProfileFile]:
        """The profiles by name."""
        return MappingProxyType({one.name: one for _, one in self._found})

    def for_model(self, name: str) -> Profile:
        """Return one profile, merged from all that fit a model; an empty one if none fits.

        Args:
            name: Such as `anthropic:claude-opus-5`, or a bare Claude id; any usual spelling.
        """
        full = canonical_name(name)
        fitting = [
            (source, max(ranks), one)
            for source, one in self._found
            if (ranks := [_rank(key) for key in _keys(one) if _fits(key, full)])
        ]
        fitting.sort(key=lambda entry: (entry[0], entry[1], entry[2].name))
        return reduce(Profile.refined, (one.profile for *_, one in fitting), Profile())


def profile_for(name: str) -> Profile:
    """Return the built-in profile of a model's name; an empty one for a model none is for."""
    return _builtin().for_model(name)


@cache
def _builtin() -> ProfileRegistry:
    return ProfileRegistry()


def _keys(file: ProfileFile) -> Sequence[str]:
    return [canonical_name(one) for one in file.models]


def _fits(key: str, name: str) -> bool:
    if ":" not in key:
        return name.partition(":")[0] == key
    return fits(name, key)


def _rank(key: str) -> tuple[bool, bool, int]:
    """Return how specific a key is."""
    exact = ":" in key and not _WILD & set(key)
    return ":" in key, exact, sum(char not in _WILD for char in key)
