"""Plugins: Python objects by name, `module:attribute` or an entry point of an installed package.

A package adds to five groups: `deep_agent_mcp.tools`, `.middleware`, `.models`, `.backends` and
`.checkpointers`. Packages are only searched when a name asks for it.
"""

from __future__ import annotations

import difflib
import inspect
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from types import ModuleType
from typing import Any

from ._internal.records import record
from .errors import HarnessError

__all__ = [
    "GROUPS",
    "ObjectError",
    "Plugin",
    "call_object",
    "entry_points",
    "is_object_name",
    "load_object",
    "place_of",
    "resolve",
]

GROUPS = ("tools", "middleware", "models", "backends", "checkpointers")
"""What plugins bring; each is an entry point group below `deep_agent_mcp.`."""

_PREFIX = "deep_agent_mcp."
_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_MOST_CHARS = 500

SLOW_SECONDS = 5.0
"""After so long an import is spoken of."""

logger = logging.getLogger(__name__)


class ObjectError(HarnessError):
    """Error: a name does not lead to an object of the right kind; the text says why."""


@record
class Plugin:
    """An entry point of an installed package. It is not imported yet.

    Attributes:
        name: What it is asked for by.
        group: One of `GROUPS`.
        value: The object, as `module:attribute`.
        package: Name of the distribution that brings it; empty if that is not known.
        version: Its version.
    """

    name: str
    group: str
    value: str
    package: str
    version: str

    @property
    def source(self) -> str:
        """The package in words."""
        return f"{self.package} {self.version}".strip() or "a package without a name"

    def load(self) -> Any:
        """Return the object; its module is imported.

        Raises:
            ObjectError: It cannot be imported, or the module does not have it.
        """
        try:
            return load_object(self.value, f"plugin {self.name!r} of {self.source}")
        except ObjectError as error:
            fix = f"Update or uninstall {self.package or 'that package'}."
            raise ObjectError(f"{error} {fix}") from error


def is_object_name(name: str) -> bool:
    """Whether a text is written as `module:attribute`."""
    return _NAME.fullmatch(name) is not None


def load_object(name: str, kind: str = "object") -> Any:
    """Return the object that `module:attribute` names; the module is imported.

    Args:
        name: Such as `package.module:name`; the attribute may be dotted.
        kind: What it is to be, for messages.

    Raises:
        ObjectError: The name is malformed, there is no such module or attribute, or the module
            raised when it was imported; the text has file and line where there is one.
    """
    if not is_object_name(name):
        raise ObjectError(
            f"{kind}: {name!r} names no Python object. Write it as package.module:name, such as "
            "my_app:agent."
        )
    module_name, _, attribute = name.partition(":")
    found: Any = _module(module_name, name, kind)
    done = module_name
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise ObjectError(_missing_attribute(name, kind, done, found, part)) from error
        done = f"{done}.{part}"
    return found


def entry_points(group: str) -> Mapping[str, Sequence[Plugin]]:
    """Return the installed plugins of a group by name; two packages may have the same name.

    Args:
        group: One of `GROUPS`.
    """
    from importlib import metadata  # takes milliseconds, and few ask

    found: dict[str, list[Plugin]] = {}
    for one in metadata.entry_points(group=_PREFIX + group):
        package = one.dist
        name, version = ("", "") if package is None else (package.name, package.version)
        plugin = Plugin(one.name, group, one.value, name, version)
        known = found.setdefault(one.name, [])
        if plugin not in known:  # a package may be on the path twice
            known.append(plugin)
    return {name: found[name] for name in sorted(found)}


def resolve(name: str, group: str) -> Any:
    """Return the object of a name: `module:attribute`, or the name of an entry point.

    Args:
        name: What it was asked for by.
        group: One of `GROUPS`.

    Raises:
        ObjectError: There is none, more than one, or it cannot be imported.
    """
    if is_object_name(name):
        return load_object(name, group)
    plugins = entry_points(group)
    if name not in plugins:
        raise ObjectError(_unknown(name, group, plugins))
    found = plugins[name]
    if len(found) > 1:
        raise ObjectError(
            f"{group}: {name!r} is the name of plugins of {_listed(one.source for one in found)}. "
            f"Name the one you mean as module:attribute, such as {found[0].value}."
        )
    return found[0].load()


def call_object(function: Callable[..., Any], name: str, *args: object, **options: object) -> Any:
    """Call a named function or class, and return its result.

    Args:
        function: What is called.
        name: Its name, for messages.
        *args: Positional arguments.
        **options: Keywords.

    Raises:
        ObjectError: It raised; the text has file and line where they are known.
    """
    try:
        return function(*args, **options)
    except HarnessError:
        raise
    except Exception as error:
        raise ObjectError(f"{name} raised {_told(error)}{place_of(error)}.") from error


def place_of(error: BaseException, near: str | None = None) -> str:
    """Return the file and line where an error came from, as ` (file:line)`; empty if unknown.

    Args:
        error: The error.
        near: A file. The deepest line in it, or beside it, is preferred over lines of libraries.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f" ({error.filename}:{error.lineno})"
    lines = [
        (one.filename, one.lineno)
        for one in traceback.extract_tb(error.__traceback__)
        if not one.filename.startswith("<") and one.filename != __file__
    ]
    if near is not None:
        folder = os.path.dirname(os.path.abspath(near))
        own = [one for one in lines if os.path.abspath(one[0]).startswith(folder + os.sep)]
        lines = own or lines
    return f" ({lines[-1][0]}:{lines[-1][1]})" if lines else ""


def _module(module_name: str, name: str, kind: str) -> ModuleType:
    try:
        with _saying_if_slow(module_name, name, kind):
            return import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and (module_name == missing or module_name.startswith(missing + ".")):
            raise ObjectError(
                f"{kind} {name}: there is no module {missing!r}. Install its package, or start in "
                "the directory that contains it."
            ) from error
        raise ObjectError(
            f"{kind} {name}: importing {module_name} raised {_told(error)}"
            f"{place_of(error, _file_of(module_name))}."
        ) from error


@contextmanager
def _saying_if_slow(module_name: str, name: str, kind: str) -> Generator[None]:
    """Log which module is being imported if that takes long: nothing can end an import."""
    text = "%s %s: importing %s has taken %g s so far. Check what it waits for."
    words = (text, kind, name, module_name, SLOW_SECONDS)
    timer = Timer(SLOW_SECONDS, logger.warning, words)
    timer.daemon = True
    if module_name not in sys.modules:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _file_of(module_name: str) -> str | None:
    """Return the file of a module that could not be imported; None if that is not known."""
    if "." in module_name:  # finding it would import what is above it
        return None
    try:
        spec = find_spec(module_name)
    except (ImportError, ValueError):
        return None
    return None if spec is None else spec.origin


def _told(error: BaseException) -> str:
    text = " ".join(str(error).split())[:_MOST_CHARS]
    return f"{type(error).__name__}: {text}".rstrip(": .")


def _missing_attribute(name: str, kind: str, owner: str, found: object, part: str) -> str:
    names = [one for one in dir(found) if not one.startswith("_")]
    near = difflib.get_close_matches(part, names, n=1, cutoff=0.5)
    where = ""
    if inspect.ismodule(found) and found.__file__:
        where = f" ({Path(found.__file__)})"
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{kind} {name}: {owner} has no attribute {part!r}{where}.{hint}"


def _unknown(name: str, group: str, plugins: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(name, plugins, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    there = f"Installed: {', '.join(plugins)}." if plugins else "None is installed."
    return (
        f"{group}: there is no plugin {name!r}.{hint} {there} Install the package that brings it, "
        "or name a Python object as package.module:name."
    )


def _listed(names: Any) -> str:
    return " and ".join(sorted(names))
