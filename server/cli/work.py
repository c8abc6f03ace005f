"""What commands have in common that work on a state directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from ..settings.settings import Settings

__all__ = ["Failed", "with_settings"]

T = TypeVar("T")


class Failed(click.ClickException):
    """One readable message on stderr and exit code 1."""

    def show(self, file: Any = None) -> None:
        """Print the message without the frame click would draw."""
        click.echo(f"deep-agent-mcp: {self.message}", file=file or sys.stderr)


def with_settings(flags: Mapping[str, str | None], work: Callable[[Settings], Awaitable[T]]) -> T:
    """Do some work with the settings that flags, environment and file name.

    Raises:
        Failed: It failed in a way that has a text of its own.
    """
    import anyio

    from ...harness.backends.base import FileError
    from ...harness.errors import HarnessError
    from ..settings.settings import SettingsError
    from ..settings.sources import load_settings
    from ..settings.state_dir import StateDirError

    given = dict(flags)
    config = given.pop("config")

    async def main() -> T:
        return await work(load_settings(given, os.environ, config=config))

    try:
        return anyio.run(main)
    except (SettingsError, StateDirError, HarnessError, FileError, OSError) as error:
        raise Failed(str(error)) from None
