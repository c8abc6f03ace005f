"""What commands print: texts of models, tools and files made safe, answers, and errors."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from ..terminal import clean

if TYPE_CHECKING:
    from ..results import Answer

__all__ = ["Failed", "Refused", "echo", "print_answer"]


def echo(text: str, *, nl: bool = True) -> None:
    """Print a text; a terminal shows its control characters by their number."""
    click.echo(clean(text) if sys.stdout.isatty() else text, nl=nl)


def print_answer(answer: Answer, as_json: bool) -> None:
    """Print an answer, as text or as JSON."""
    if as_json:
        click.echo(json.dumps(answer.data, ensure_ascii=False, indent=2))
    else:
        echo(answer.text)


class Failed(click.ClickException):
    """A command that failed; exit code 1."""

    def show(self, file: Any = None) -> None:
        """Print the message without the frame click would draw."""
        click.echo(f"deep-agent-mcp: {clean(self.message)}", file=file or sys.stderr)


class Refused(Failed):
    """A command that began nothing, as it was given wrong options or settings; exit code 2."""

    exit_code = 2
