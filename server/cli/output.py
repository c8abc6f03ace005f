"""What commands print of texts that models, tools and files have written."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from ..terminal.texts import clean

if TYPE_CHECKING:
    from ..results import Answer

__all__ = ["echo", "print_answer"]


def echo(text: str, *, nl: bool = True) -> None:
    """Print a text; a terminal shows its control characters by their number."""
    click.echo(clean(text) if sys.stdout.isatty() else text, nl=nl)


def print_answer(answer: Answer, as_json: bool) -> None:
    """Print an answer, as text or as JSON."""
    if as_json:
        click.echo(json.dumps(answer.data, ensure_ascii=False, indent=2))
    else:
        echo(answer.text)
