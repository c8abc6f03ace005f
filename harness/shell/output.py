"""Command output: limited in memory, stored on disk, shown with its start and end."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import IO, Protocol

import anyio.to_thread

from .._internal.records import record

__all__ = [
    "Collector",
    "Output",
    "Preview",
    "Sink",
    "keep",
    "preview",
    "shown",
    "whole_characters",
    "whole_lines",
]

_IN_MEMORY = 1 << 20
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)")
"""Escape sequences for a terminal's colours, cursor and title."""
_UNSHOWN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters that are unsafe in journals and terminals; not tabs and line ends."""
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


@record
class Output:
    """Output of a command.

    Attributes:
        head: Its bytes from the beginning, up to the collector's bound.
        tail: Its last bytes, if `head` is not all of it.
        size: Bytes in all.
    """

    head: bytes
    tail: bytes
    size: int

    @property
    def whole(self) -> bool:
        """Whether it is complete."""
        return len(self.head) == self.size


class Sink(Protocol):
    """Receives a command's output while it runs."""

    async def add(self, data: bytes) -> None:
        """Take the next bytes."""
        ...

    async def finish(self) -> Output:
        """Return the collected output."""
        ...

    def close(self) -> None:
        """Release all resources; also called after a failure."""
        ...


class Collector:
    """Receives a command's output, of any size.

    Args:
        head_bytes: How much is kept from the start, on disk if it is large.
        tail_bytes: How much is kept from the end beyond that.
    """

    def __init__(self, head_bytes: int, tail_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._memory = bytearray()
        self._tail = bytearray()
        self._file: IO[bytes] | None = None
        self._size = 0

    async def add(self, data: bytes) -> None:
        """Take the next bytes."""
        room = max(0, self._head_bytes - self._size)
        self._size += len(data)
        self._memory += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._tail_bytes + _IN_MEMORY:
            del self._tail[: -self._tail_bytes]
        if len(self._memory) > _IN_MEMORY:
            await anyio.to_thread.run_sync(self._spill)

    async def finish(self) -> Output:
        """Return the collected output."""
        if self._file is None:
            return self._output(bytes(self._memory))
        return await anyio.to_thread.run_sync(self._reread)

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._file.write(self._memory)
        self._memory.clear()

    def _reread(self) -> Output:
        assert self._file is not None
        self._file.seek(0)
        head = self._file.read() + self._memory
        self.close()
        return self._output(head)

    def _output(self, head: bytes) -> Output:
        return Output(head, bytes(self._tail[-self._tail_bytes :]), self._size)

    def close(self) -> None:
        """Release the file on disk."""
        if self._file is not None:
            self._file.close()
            self._file = None


@record
class Preview:
    """Part of an output that a model sees.

    Attributes:
        head: Text from the start; all of it if nothing is left out.
        tail: Text from the end.
        lines: Lines left out between them.
        size: Bytes left out, approximately, counted in UTF-8.
        kept: The output for a file, in which the rest can be read; None if nothing is left out.
    """

    head: str
    tail: str = ""
    lines: int = 0
    size: int = 0
    kept: bytes | None = None


def preview(
    output: Output, redact: Sequence[Callable[[str], str]], max_lines: int, max_bytes: int
) -> Preview:
    """Return the text for a model: all of a short output, start and end of a long one.

    Rules see the text before it is cut, so a cut hides nothing from them. Only if the middle of a
    very long output was dropped, they see its ends separately.

    Args:
        output: The output.
        redact: Functions that return a text without secrets.
        max_lines: The most lines to show.
        max_bytes: The most bytes to show.
    """
    head, tail = _text(output.head), "" if output.whole else _after_cut(output.tail)
    for rule in redact:
        head, tail = rule(head), rule(tail)
    text = head + tail
    if output.whole and _fits(text, max_lines, max_bytes):
        return Preview(shown(text))
    first = _ends(head, (max_lines + 1) // 2, max_bytes // 2, last=False)
    last = _ends(text[len(first) :], max_lines // 2, max_bytes // 2, last=True)
    hidden = text[len(first) : len(text) - len(last)]
    dropped = output.size - len(output.head) - len(output.tail)
    return Preview(
        shown(first),
        shown(last),
        hidden.count("\n"),
        len(hidden.encode()) + max(0, dropped),
        head.encode() if redact else output.head,
    )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").encode("utf-8", "replace").decode()


def _after_cut(tail: bytes) -> str:
    """Return the text of a tail from its first whole line, or part of a line if it has none."""
    return _text(whole_lines(tail))


def whole_lines(data: bytes) -> bytes:
    """Return the part after the first line end, or a single line without a cut character."""
    rest = data[data.find(b"\n") + 1 :]
    if len(rest) == len(data) or not rest:
        return data[_continuation(data) :]
    return rest


def _continuation(data: bytes) -> int:
    """Return how many bytes at the start belong to a cut character."""
    return next((at for at, byte in enumerate(data[:3]) if byte & 0xC0 != 0x80), 0)


def whole_characters(data: bytes) -> bytes:
    """Return bytes without the beginning of a character that continues after them (UTF-8)."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 2 if byte >> 5 == 6 else 3 if byte >> 4 == 14 else 4 if byte >> 3 == 30 else 1
        return data[:-back] if length > back and len(data) > back else data
    return data


def shown(text: str) -> str:
    """Return a text without control sequences for a terminal."""
    return _UNSHOWN.sub("\ufffd", _ESCAPES.sub("", text.replace("\r\n", "\n")))


def _fits(text: str, max_lines: int, max_bytes: int) -> bool:
    lines = text.count("\n") + (not text.endswith("\n"))
    return lines <= max_lines and len(text.encode()) <= max_bytes


def _ends(text: str, max_lines: int, max_bytes: int, *, last: bool) -> str:
    """Return whole lines from one end of a text, or part of a line if it is too long."""
    near = text[-max_bytes:] if last else text[:max_bytes]
    while len(near.encode()) > max_bytes:
        over = max(1, (len(near.encode()) - max_bytes) // 4)
        near = near[over:] if last else near[:-over]
    lines = _LINE.findall(near)
    if last:
        cut = len(near) < len(text) and not text[: len(text) - len(near)].endswith("\n")
        lines = lines[1:] if cut and len(lines) > 1 else lines
        return "".join(lines[-max_lines:] if max_lines else [])
    cut = len(near) < len(text) and not near.endswith("\n")
    lines = lines[:-1] if cut and len(lines) > 1 else lines
    return "".join(lines[:max_lines])


def keep(data: bytes, workspace: Path, directory: str, name: str) -> None:
    """Write long output to a new file in a directory of the workspace.

    Commands may have created links to other places there; links are not followed.

    Raises:
        OSError: It cannot be written.
    """
    with _opened(workspace, None) as root:
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700, dir_fd=root)
        with _opened(directory, root) as own:
            with contextlib.suppress(FileExistsError):
                _write(b"*\n", ".gitignore", own)
            _write(data, name, own)


@contextlib.contextmanager
def _opened(path: str | Path, parent: int | None) -> Generator[int]:
    assert sys.platform != "win32"
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        yield fd
    finally:
        os.close(fd)


def _write(data: bytes, name: str, directory: int) -> None:
    assert sys.platform != "win32"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(name, flags, 0o600, dir_fd=directory), "wb") as file:
        file.write(data)
