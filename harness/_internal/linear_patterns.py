"""Linear-time regular expressions (RE2).

For expressions that anybody may write. Neither making one nor searching with it can be made to
take long or to need much memory, and searching lets other threads run meanwhile.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol, cast

__all__ = ["LinearPattern", "PatternError", "linear_pattern"]

MAX_MEMORY = 2 << 20
"""Bytes of one expression. Making one that needs more ends with an error after a few milliseconds;
the largest that fits takes forty, in which nothing else runs."""


class PatternError(ValueError):
    """RE2 does not take the expression; the text is its own, such as `missing ): (a`."""


class LinearPattern(Protocol):
    """What is used of a compiled expression. It has no groups."""

    def search(self, text: bytes) -> LinearMatch | None:
        """Return the first match in UTF-8."""
        ...

    def fullmatch(self, text: bytes) -> LinearMatch | None:
        """Return the match of the whole text, if it is one."""
        ...


class LinearMatch(Protocol):
    """A match."""

    def span(self) -> tuple[int, int]:
        """Return where it is, in bytes."""
        ...


def linear_pattern(pattern: str, *, ignore_case: bool = False) -> LinearPattern:
    r"""Return the compiled expression, in RE2's dialect: `\w`, `\d`, `\s` and `\b` are of ASCII.

    Raises:
        PatternError: It is not valid, or too large.
    """
    module: Any = import_module("re2")  # has no types; not needed to begin serving
    options = module.Options()
    options.max_mem = MAX_MEMORY
    options.never_capture = True
    options.log_errors = False
    options.case_sensitive = not ignore_case
    try:
        return cast(LinearPattern, module.compile(pattern, options))
    except UnicodeEncodeError as error:
        raise PatternError("half of a surrogate pair is not text") from error
    except module.error as error:
        said = error.args[0]
        raise PatternError(said.decode() if isinstance(said, bytes) else str(said)) from error
    finally:
        module.purge()  # it would keep the last 128, with what searching added to them
