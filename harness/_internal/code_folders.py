"""Imports from a folder outside `sys.path`: only of named modules and their own imports.

A folder in `sys.path` is used for every import of the process. If agents can write there, a file
with the name of an optional dependency would run with all rights of the process. So only explicitly
named modules are imported from the folder, and others only by code in the folder. Compiled files
next to the source are ignored, because they may differ from the source.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

__all__ = ["IMPORTED_FILES", "import_from"]

_KINDS = ((ExtensionFileLoader, EXTENSION_SUFFIXES),)


def import_from(
    folder: str | os.PathLike[str], modules: Iterable[str], *, first: bool = False
) -> None:
    """Allow the import of some modules from a folder.

    Args:
        folder: The folder.
        modules: Names of modules or packages, dotted or not.
        first: Whether they take precedence over installed modules with the same names.
    """
    place = os.path.abspath(folder)
    finder = next((one for one in _finders() if one.folder == place), None)
    if finder is None:
        finder = _FolderFinder(place)
        sys.meta_path.insert(0, finder)
    names = {one.partition(".")[0] for one in modules}
    finder.named |= names
    if first:
        finder.first |= names


class ImportedFiles:
    """Files of modules that were imported from such folders, or were about to be.

    Attributes:
        paths: The files; an immutable tuple, because it is read often and changed rarely.
    """

    __slots__ = ("paths",)

    def __init__(self) -> None:
        self.paths: tuple[Path, ...] = ()

    def add(self, file: Path) -> None:
        """Add a file."""
        if file not in self.paths:
            self.paths = (*self.paths, file)


IMPORTED_FILES: Final = ImportedFiles()
"""The imported files of this process."""


def _finders() -> list[_FolderFinder]:
    return [one for one in sys.meta_path if isinstance(one, _FolderFinder)]


class _Source(SourceFileLoader):
    """Loader that always compiles the source file."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class _FolderFinder:
    """Import finder for the modules of one folder.

    It does not inherit from `MetaPathFinder`, because that class is slow to import.

    Attributes:
        folder: The folder.
        named: Top-level modules that all code may import from it.
        first: Modules in `named` that take precedence over installed ones.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.named: set[str] = set()
        self.first: set[str] = set()
        self._found: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, dot, _ = fullname.partition(".")
        if dot:
            return self._spec(fullname, path or ()) if top in self._found else None
        if fullname in self.first:
            return self._spec(fullname, [self.folder])
        if fullname not in self.named and _importer() not in self._found:
            return None
        return None if self._is_elsewhere(fullname) else self._spec(fullname, [self.folder])

    def _spec(self, fullname: str, folders: Iterable[str]) -> ModuleSpec | None:
        for folder in folders:
            finder = FileFinder(folder, *_KINDS, (_Source, SOURCE_SUFFIXES))
            spec = finder.find_spec(fullname)
            if spec is not None:
                self._found.add(fullname.partition(".")[0])
                if spec.has_location and spec.origin is not None:
                    IMPORTED_FILES.add(Path(spec.origin))
                return spec
        return None

    def _is_elsewhere(self, name: str) -> bool:
        """Return whether the module is installed; a file in the folder must not replace it."""
        others = (one for one in sys.meta_path if not isinstance(one, _FolderFinder))
        return any(one.find_spec(name, None) is not None for one in others)


def _importer() -> str:
    """Return the top-level module whose code executes the current import."""
    frame = inspect.currentframe()
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name != __name__ and name.partition(".")[0] not in ("importlib", "_frozen_importlib"):
            return name.partition(".")[0]
        frame = frame.f_back
    return ""
