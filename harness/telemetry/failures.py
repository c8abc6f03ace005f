"""Span failures: tells errors from questions and from cancellations."""

from __future__ import annotations

import traceback
from typing import Literal, TypeAlias, cast

import anyio
from opentelemetry.trace import Span, Status, StatusCode

from ..errors import ModelError
from ..limits.limits import LimitReached
from ..loop.run.interrupts import Interrupted
from . import names
from .content import clean_text

__all__ = ["Ending", "error_type", "note_error", "note_raised"]

Ending: TypeAlias = Literal["error", "waiting", "cancelled"]
"""How something ended that raised."""

_MOST = 1_000
"""Characters of an error's text."""

_PLACES = 50
"""Places that an error passed, innermost ones."""


def note_raised(span: Span, raised: BaseException, *, texts: bool) -> Ending:
    """Note on a span what left its block; a question and a cancellation are no errors.

    Args:
        span: The span.
        raised: What left its block.
        texts: See `note_error`.
    """
    if _is_question(raised):
        return "waiting"
    if isinstance(raised, anyio.get_cancelled_exc_class() | GeneratorExit):
        span.set_attribute(names.CANCELLED, True)
        return "cancelled"
    note_error(span, raised, texts=texts)
    return "error"


def note_error(span: Span, error: BaseException, *, texts: bool) -> None:
    """Mark a span as failed, with the error's type and the places it passed.

    Args:
        span: The span.
        error: What failed.
        texts: Whether its text may be told too: it can hold anything that people, models, tools
            and files said. That of a limit holds numbers only, and is told in any case.
    """
    if not span.is_recording():
        return
    text = _text_of(error) if texts or isinstance(error, LimitReached) else None
    # Lines of code, no values.
    passed = "".join(traceback.format_tb(error.__traceback__, limit=-_PLACES))
    told = {"exception.type": type(error).__qualname__, "exception.stacktrace": passed}
    span.set_attribute(names.ERROR, error_type(error))
    span.set_status(Status(StatusCode.ERROR, text))
    span.add_event("exception", told if text is None else {**told, "exception.message": text})


def error_type(error: BaseException) -> str:
    """Return a word for errors of this kind, of which there are few."""
    if isinstance(error, ModelError) and error.kind != "unknown":
        return error.kind
    if isinstance(error, LimitReached):
        return f"limit_{error.limit}"
    return type(error).__qualname__


def _text_of(error: BaseException) -> str:
    return clean_text(str(error))[:_MOST]


def _is_question(raised: BaseException) -> bool:
    if isinstance(raised, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", raised)
        return all(map(_is_question, group.exceptions))
    return isinstance(raised, Interrupted)
