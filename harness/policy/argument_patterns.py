"""Regular expressions over arguments, which are whatever a model or a stranger wrote."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from .._internal.linear_patterns import PatternError
from .._internal.python_expressions import linear_test
from .errors import PolicyError

__all__ = ["argument_test"]

_ADVICE = (
    r"Rules take no look-around such as (?=…) or (?<!…), no references such as \1, no atomic or "
    "possessive repeats, no counts above 1000: these can take for ever on an argument that is made "
    "for it. Write a simpler expression, or several rules, of which the first that matches decides"
)


@lru_cache(1_024)
def argument_test(pattern: re.Pattern[str], *, whole: bool) -> Callable[[str], bool]:
    """Return a test of texts.

    Args:
        pattern: The expression.
        whole: Whether it must match all of a text, as in rules that allow.

    Raises:
        PolicyError: It cannot be matched in linear time; the text says what to write instead.
    """
    try:
        return linear_test(pattern, whole=whole)
    except PatternError as error:
        raise PolicyError(
            f"the regular expression {pattern.pattern!r} cannot be used: {error}. {_ADVICE}"
        ) from error
