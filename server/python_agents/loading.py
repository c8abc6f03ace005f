"""Finds what `serve module:attribute` names, and imports it again when its files have changed."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from importlib.util import cache_from_source
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from ...harness._internal.records import record
from ...harness.agent import Agent
from ...harness.errors import HarnessError
from ...harness.plugins import load_object
from .calling import call, place_of_function

__all__ = ["AgentFactory", "ModuleFiles", "Named", "checked"]

AgentFactory: TypeAlias = Callable[..., Any]
"""Makes an `Agent`, or an awaitable of one, of a `ServeContext` or of nothing."""

IMPORT_SECONDS = 60.0
"""How long importing a module may take."""

_INSTALLED = ("site-packages", "dist-packages")


class Named:
    """An agent, or what makes one, by name.

    Args:
        name: `module:attribute`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._before = frozenset(sys.modules)

    async def load(self) -> Agent | AgentFactory:
        """Import the module and return what is named.

        Raises:
            HarnessError: There is none, it takes too long, or it is of another kind.
        """
        found = await call(
            load_object, self.name, "agent", what=f"importing {self.name}", seconds=IMPORT_SECONDS
        )
        return checked(found, self.name)

    async def load_again(self) -> Agent | AgentFactory:
        """Import its modules anew; if that fails, those that were there stay.

        Raises:
            HarnessError: As for `load`.
        """
        old = self.modules()
        for name, module in old.items():
            del sys.modules[name]
            # Python takes what was compiled for a file of the same size that was saved in the same
            # second as up to date.
            with suppress(OSError, NotImplementedError):
                os.unlink(cache_from_source(str(module.__file__)))
        importlib.invalidate_caches()
        try:
            return await self.load()
        except BaseException:
            for name in self.modules():
                del sys.modules[name]
            sys.modules.update(old)
            raise

    def modules(self) -> Mapping[str, ModuleType]:
        """Return the modules that are imported anew: the user's own, and no installed package's."""
        module_name = self.name.partition(":")[0]
        top = module_name.partition(".")[0]
        file = getattr(sys.modules.get(module_name), "__file__", None)
        if file is None:
            return {}
        levels = module_name.count(".") + (Path(file).name == "__init__.py")
        folder = Path(file).parents[levels]
        own = set(sys.modules) - self._before
        return {
            name: module
            for name, module in [*sys.modules.items()]
            if name in own and _is_in(module, folder, name.partition(".")[0] == top)
        }


def _is_in(module: ModuleType, folder: Path, is_named: bool) -> bool:
    file = getattr(module, "__file__", None)
    if not file or not file.endswith(".py"):
        return False
    path = Path(file)
    if is_named:
        return True
    installed = any(part in _INSTALLED for part in path.parts)
    return not installed and path.is_relative_to(folder)


def checked(found: object, name: str) -> Agent | AgentFactory:
    """Return an agent, or what makes one.

    Raises:
        HarnessError: It is neither.
    """
    if isinstance(found, Agent):
        return found
    if isinstance(found, type) or not callable(found):
        what = "a class" if isinstance(found, type) else f"of type {type(found).__name__}"
        raise HarnessError(
            f"agent {name} is {what}{place_of_function(found)}. Name an Agent, as create_agent and "
            "create_deep_agent return it, or a function that returns one."
        )
    return found


@record
class _Snapshot:
    digests: Mapping[str, str]
    errors: Mapping[str, str]


class ModuleFiles:
    """The files of an agent's modules, to be watched.

    Attributes:
        errors: Why what was saved last is not in use, by path.
    """

    def __init__(self, modules: Callable[[], Mapping[str, ModuleType]]) -> None:
        self._modules = modules
        self._kept: frozenset[Path] = frozenset()
        self._digests: Mapping[str, str] = {}
        self.errors: Mapping[str, str] = {}
        self.reload()

    @property
    def roots(self) -> Sequence[Path]:
        """The files. One that was there stays, so that it is noticed when it comes back."""
        now = {Path(str(one.__file__)) for one in self._modules().values()}
        self._kept |= now
        return sorted(self._kept)

    @property
    def snapshot(self) -> _Snapshot:
        """What was in them when they were last looked at."""
        return _Snapshot(self._digests, self.errors)

    def reload(self) -> bool:
        """Look at the files again; return whether one has changed. Blocks."""
        before, self._digests = self._digests, {str(one): _digest(one) for one in self.roots}
        return before != self._digests

    def failed(self, paths: Collection[str], error: HarnessError) -> None:
        """Note that what was saved cannot be used."""
        files = sorted(one for one in paths if one in self._digests) or [*self._digests][:1]
        why = f"{str(error).rstrip('.')}. New runs have the agent as it was before that was saved."
        self.errors = {files[0] if files else "": why}

    def worked(self) -> None:
        """Note that what was saved is in use."""
        self.errors = {}


def _digest(path: Path) -> str:
    try:
        return blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        return f"not readable: {error.errno}"
