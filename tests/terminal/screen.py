"""A real terminal that runs a command, for tests that type into it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests import fork_server

__all__ = ["CLI", "Screen", "at_terminal", "environment", "run"]

CLI = (sys.executable, "-m", "deep_agent_mcp")
SECONDS = 60.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\r")


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return environment variables that put state and settings of a command below `home`."""
    places = {"XDG_CONFIG_HOME": str(home), "XDG_STATE_HOME": str(home)}
    return fork_server.environment(
        home, **places, TERM="xterm-256color", PROMPT_TOOLKIT_NO_CPR="1", **more
    )


def run(home: Path, *args: str, says: str | bytes = "", **more: str):
    """Run a command without a terminal until it ends."""
    given = says if isinstance(says, bytes) else says.encode()
    return fork_server.run([*CLI, *args], environment(home, **more), home, says=given)


class Screen:
    """A terminal: its output, and keys to press.

    Attributes:
        process: The command.
        seen: All output, without colours and cursor movements.
    """

    def __init__(self, process: fork_server.Process, terminal: int) -> None:
        self.process = process
        self.seen = ""
        self._terminal = terminal
        self._read_to = 0
        self._raw = ""

    def until(self, text: str) -> str:
        """Wait for a text in the output; return the output since the last wait, including it."""
        deadline = time.monotonic() + SECONDS
        while (at := self.seen.find(text, self._read_to)) < 0:
            assert self._read(deadline), f"{text!r} never came: {self.seen[self._read_to :]}"
        found = self.seen[self._read_to : at + len(text)]
        self._read_to = at + len(text)
        return found

    def types(self, keys: str) -> None:
        """Press keys."""
        os.write(self._terminal, keys.encode())

    def end(self) -> tuple[int, str]:
        """Wait for the end; return the exit code and the output since the last wait."""
        deadline = time.monotonic() + SECONDS
        while self._read(deadline):
            pass
        return self.process.wait(SECONDS), self.seen[self._read_to :]

    def _read(self, deadline: float) -> bool:
        if not select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise AssertionError(f"nothing came any more: {self.seen[self._read_to :]}")
        try:
            data = os.read(self._terminal, 65_536)
        except OSError:  # the last process that had it open has closed it
            return False
        self._raw += data.decode(errors="replace")
        done, escape, rest = self._raw.rpartition("\x1b")
        whole = not escape or _CONTROL.match(escape + rest) is not None
        text, self._raw = (self._raw, "") if whole else (done, escape + rest)
        self.seen += _CONTROL.sub("", text)
        return bool(data)


@contextmanager
def at_terminal(
    home: Path, *args: str, stdout: int | None = None, command: Sequence[str] = CLI
) -> Generator[Screen]:
    """Run a command in a terminal; kill it after the block if it has not ended."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
    try:
        process = fork_server.start(
            [*command, *args],
            environment(home),
            home,
            stdin=theirs,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs,
        )
        os.close(theirs)
        try:
            yield Screen(process, ours)
        finally:
            process.kill()
    finally:
        os.close(ours)
