"""Python objects that an agent file names: `module:attribute`, or plugins of installed packages.

The work is done by `harness.plugins`, because models can be plugins too.
"""

from __future__ import annotations

from ..plugins import (
    GROUPS,
    ObjectError,
    Plugin,
    entry_points,
    is_object_name,
    load_object,
    resolve,
)

__all__ = [
    "GROUPS",
    "ObjectError",
    "Plugin",
    "entry_points",
    "is_object_name",
    "load_object",
    "resolve",
]
