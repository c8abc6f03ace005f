"""What commands print: texts of models, tools and files made safe, answers, and errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import click

from ..terminal import clean, forget_output

if TYPE_CHECKING:
    from ..results import Answer

__all__ = ["Commands", "Failed", "Refused", "echo", "print_answer", "while_somebody_reads"]

NO_READER = 141
"""The exit code of a command whose output nobody reads any more, as shells have it."""


def echo(text: str, *, nl: bool = True) -> None:
    """Print a text; a terminal shows its control characters by their number."""
    click.echo(clean(text) if sys.stdout.isatty() else text, nl=nl)


def print_answer(answer: Answer, as_json: bool) -> None:
    """Print an answer, as text or as JSON."""
    if as_json:
        click.echo(json.dumps(answer.data, ensure_ascii=False, indent=2))
    else:
        echo(answer.text)


@contextmanager
def while_somebody_reads() -> Generator[None]:
    """End the process silently once the program that reads the output has ended."""
    try:
        yield
        if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]
            sys.stdout.flush()
    except BaseException as error:
        if not _is_about_reader(error):
            raise
        forget_output()
        sys.exit(NO_READER)


def _is_about_reader(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return any(map(_is_about_reader, group.exceptions))
    if isinstance(error, SystemExit):  # which rich makes of it
        return isinstance(error.__context__, BrokenPipeError)
    return isinstance(error, BrokenPipeError)


class Commands(click.Group):
    """All commands. Each ends the same way when nobody reads its output any more."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the arguments, which prints the help."""
        with while_somebody_reads():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        with while_somebody_reads():
            return super().invoke(ctx)


class Failed(click.ClickException):
    """A command that failed; exit code 1."""

    def show(self, file: Any = None) -> None:
        """Print the message without the frame click would draw."""
        click.echo(f"deep-agent-mcp: {clean(self.message)}", file=file or sys.stderr)


class Refused(Failed):
    """A command that began nothing, as it was given wrong options or settings; exit code 2."""

    exit_code = 2
