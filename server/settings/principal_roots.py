"""A root of its own for each principal: `root = "/srv/{principal}"`.

The name of a principal becomes a name of a directory that no other principal has, on any file
system: neither case nor Unicode forms make two of them one, and none leads elsewhere.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from pathlib import Path

from ...harness.errors import HarnessError

__all__ = ["directory_name", "is_template", "made_root", "of_principal", "parent_of_all"]

PLACEHOLDER = "{principal}"

_PLAIN = re.compile(r"[a-z0-9_-]")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")
_MOST_CHARS = 120


def is_template(path: Path) -> bool:
    """Whether a path stands for one of each principal."""
    return PLACEHOLDER in str(path)


def of_principal(path: Path, principal: str) -> Path:
    """Return the path of one principal; one that is no template is everybody's."""
    return Path(str(path).replace(PLACEHOLDER, directory_name(principal)))


def parent_of_all(path: Path) -> Path:
    """Return the directory that holds what a template stands for."""
    return next(one for one in path.parents if PLACEHOLDER not in str(one))


def directory_name(principal: str) -> str:
    """Return the name of a principal's directory.

    Lower-case ASCII letters, digits, `-`, `_` and inner dots stay as they are; everything else
    becomes `%` and the two hex digits of each of its bytes. Long names end in a digest.
    """
    raw = principal.encode("utf-8", "surrogatepass")
    reserved = _RESERVED.fullmatch(principal) is not None
    parts: list[str] = []
    for at, byte in enumerate(raw):
        char = chr(byte)
        inner = 0 < at < len(raw) - 1
        plain = _PLAIN.match(char) or (char == "." and inner)
        parts.append(char if plain and not (reserved and at == 0) else f"%{byte:02x}")
    name = "".join(parts)
    if len(name) > _MOST_CHARS:
        digest = blake2b(raw, digest_size=16).hexdigest()
        return f"{name[: _MOST_CHARS - 40]}%-{digest}"
    return name or "%-"


def made_root(path: Path, template: Path) -> Path:
    """Return a principal's root, made at its first use, for this user alone. Blocks.

    Raises:
        HarnessError: It cannot be made, or something else is there.
    """
    parent = parent_of_all(template)
    try:
        for one in reversed([path, *path.parents]):
            if one.is_relative_to(parent) and one != parent:
                one.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise HarnessError(
            f"your directory {path} cannot be made: {error.strerror or error}. Nothing was done. "
            "Whoever runs the server can correct that."
        ) from error
    return path
