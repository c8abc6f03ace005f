"""Profile registry: finds the profile for a model's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, reduce
from pathlib import Path
from types import MappingProxyType

from .._internal.patterns import fits
from ..definitions.confined_files import ConfinedFiles
from .files import ProfileFile, load_profiles
from .profile import Profile

__all__ = ["BUILTIN", "ProfileRegistry", "profile_for"]

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
        """Return what all fitting profiles say together; an empty profile if none fits.

        Args:
            name: Such as `anthropic:claude-opus-5`, or a bare Claude id.
        """
        full = _full(name)
        fitting = [
            (source, max(ranks), one)
            for source, one in self._found
            if (ranks := [_rank(key) for key in map(_full, one.models) if _fits(key, full)])
        ]
        fitting.sort(key=lambda entry: (entry[0], entry[1], entry[2].name))
        return reduce(Profile.refined, (one.profile for *_, one in fitting), Profile())


def profile_for(name: str) -> Profile:
    """Return the built-in profile of a model's name; an empty one for a model none is for."""
    return _builtin().for_model(name)


@cache
def _builtin() -> ProfileRegistry:
    return ProfileRegistry()


def _full(name: str) -> str:
    return f"anthropic:{name}" if name.startswith("claude") else name


def _fits(key: str, name: str) -> bool:
    if ":" not in key:
        return name.partition(":")[0] == key
    return fits(name, key)


def _rank(key: str) -> tuple[bool, bool, int]:
    """Return how specific a key is."""
    exact = ":" in key and not _WILD & set(key)
    return ":" in key, exact, sum(char not in _WILD for char in key)
