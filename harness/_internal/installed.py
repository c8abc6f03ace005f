"""Optional names: the public names of a package that the installed extras allow."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib import import_module

__all__ = ["importable"]


def importable(package: str, names: Sequence[str], optional: Collection[str]) -> list[str]:
    """Return the names that `from package import *` gives: all whose extra is installed.

    Asked for by its name, one that is left out raises the `ImportError` that says what to install.

    Args:
        package: The package; it loads a name when it is asked for.
        names: Its public names.
        optional: Those of them that need an extra.
    """
    return [one for one in names if one not in optional or _is_there(package, one)]


def _is_there(package: str, name: str) -> bool:
    try:
        getattr(import_module(package), name)
    except ImportError:
        return False
    return True
