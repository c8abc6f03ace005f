"""Errors of commands: one readable message on stderr, and an exit code."""

from __future__ import annotations

import sys
from typing import Any

import click

from ..terminal.texts import clean

__all__ = ["Failed", "Refused"]


class Failed(click.ClickException):
    """A command that failed; exit code 1."""

    def show(self, file: Any = None) -> None:
        """Print the message without the frame click would draw."""
        click.echo(f"deep-agent-mcp: {clean(self.message)}", file=file or sys.stderr)


class Refused(Failed):
    """A command that began nothing, as it was given wrong options or settings; exit code 2."""

    exit_code = 2
