"""MCP over the process's standard streams, on POSIX without worker threads.

The SDK's own `stdio_server` pays two or three thread hops per message; here a line is read when the
descriptor is readable and written with `os.write`, which costs a third less per call. It
also does what the SDK's does not:

- A line that is not a message is answered with an error (`lines`); the server continues.
- When the client closes its end, requests that were read are still answered, for a short time.
- A message whose writer is cancelled is written in full or not at all.
- Descriptor 1 points at stderr and descriptor 0 at the null device while serving, and buffered
  output is flushed before they are put back, so that no stray `print` reaches the wire.

On Windows, where pipes cannot be polled, the SDK's transport is used.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
import sys
from collections import deque
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import AsyncResource
from mcp.shared.message import SessionMessage
from mcp.types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from .lines import Line, LineSplitter, Refused, parse

if TYPE_CHECKING:
    from typing import Self

assert sys.platform != "win32", "on Windows, the SDK's transport is used"

__all__ = ["LineReader", "LineWriter", "stdio_streams"]

EOF_GRACE_SECONDS: Final = 1.0
"""Seconds to answer requests that were read before the client closed its end."""

FLUSH_SECONDS: Final = 0.25
"""Seconds for which the last bytes wait for a client that does not read."""

CHUNK_BYTES: Final = 256 * 1024


class _Unanswered:
    """Ids of requests that were read but not yet answered."""

    def __init__(self) -> None:
        self._ids: set[RequestId] = set()
        self._none = anyio.Event()

    def received(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest):
            if message.method != "subscriptions/listen":  # answered when it ends, not before
                self._ids.add(message.id)
        elif isinstance(message, JSONRPCNotification) and (
            message.method == "notifications/cancelled"
        ):
            cancelled = (message.params or {}).get("requestId")
            if isinstance(cancelled, str | int):
                self.settle(cancelled)

    def settle(self, request_id: RequestId) -> None:
        self._ids.discard(request_id)
        if not self._ids:
            self._none.set()

    async def wait_until_none(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            while self._ids:
                self._none = anyio.Event()
                await self._none.wait()


class LineWriter(AsyncResource):
    """The write half: one message, one line, written in the order of the calls of `send`."""

    def __init__(self, fd: int, unanswered: _Unanswered | None = None) -> None:
        self._fd = fd
        self._unanswered = unanswered or _Unanswered()
        self._pending = bytearray()
        self._lock = anyio.Lock()
        self._closed = False

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message; waits while the client does not read.

        Raises:
            anyio.ClosedResourceError: The stream was closed by `aclose`.
            anyio.BrokenResourceError: The client is gone.
        """
        if self._closed:
            raise anyio.ClosedResourceError
        message = item.message
        line = message.model_dump_json(by_alias=True, exclude_unset=True)
        self._pending += line.encode()
        self._pending += b"\n"
        # From here on, the message counts as sent: the rest is written with the next message.
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._unanswered.settle(message.id)
        if self._lock.locked() or not self._write_some():
            await self.flush()

    async def flush(self) -> None:
        """Wait until everything sent has been handed to the system."""
        async with self._lock:
            while not self._write_some():
                await anyio.wait_writable(self._fd)

    def _write_some(self) -> bool:
        """Write as much as fits now; return whether nothing is left."""
        try:
            while self._pending:
                with memoryview(self._pending) as view:
                    written = os.write(self._fd, view)
                del self._pending[:written]
        except BlockingIOError:
            return False
        except OSError as error:
            self._closed = True
            self._pending.clear()
            raise anyio.BrokenResourceError from error
        return True

    async def aclose(self) -> None:
        """Accept no more messages. `stdio_streams` still flushes the sent ones."""
        self._closed = True


class LineReader(AsyncResource):
    """The read half: messages in order; other lines get an error through `writer`."""

    def __init__(self, fd: int, writer: LineWriter, unanswered: _Unanswered | None = None) -> None:
        self._fd = fd
        self._writer = writer
        self._unanswered = unanswered or _Unanswered()
        self._lines: deque[Line] = deque()
        self._splitter = LineSplitter()
        self._eof = False
        self._closed = False
        self._pollable = _is_pollable(fd)
        self._watched = False
        self._waiter: asyncio.Future[None] | None = None

    async def receive(self) -> SessionMessage:
        """Return the next message.

        Raises:
            anyio.EndOfStream: The client closed its end and every request read was answered, or
                the grace for that is over.
        """
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def __anext__(self) -> SessionMessage:
        while True:
            if self._closed:
                raise anyio.ClosedResourceError
            if not self._lines:
                if self._eof:
                    await self._unanswered.wait_until_none(EOF_GRACE_SECONDS)
                    raise StopAsyncIteration
                await self._read_more()
                continue
            parsed = parse(self._lines.popleft())
            if isinstance(parsed, Refused):
                with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                    await self._writer.send(SessionMessage(parsed.answer))
            else:
                self._unanswered.received(parsed)
                return SessionMessage(parsed)

    async def _read_more(self) -> None:
        if not self._pollable:  # a file or the null device never blocks for long
            chunk = await anyio.to_thread.run_sync(os.read, self._fd, CHUNK_BYTES)
            self._lines.extend(self._splitter.feed(chunk))
            if not chunk:
                self._end()
            return
        loop = asyncio.get_running_loop()
        # Watched until lines are waiting. Starting and ending that for each message, as
        # `anyio.wait_readable` does, takes longer than parsing it.
        if not self._watched:
            loop.add_reader(self._fd, self._on_readable)
            self._watched = True
        self._waiter = loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _on_readable(self) -> None:
        """Read the available bytes; while no task wants them, the client has to wait."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            self._unwatch()
            return
        try:
            chunk = os.read(self._fd, CHUNK_BYTES)
            self._lines.extend(self._splitter.feed(chunk))
            if not chunk:
                self._end()
        except BlockingIOError:
            return
        except ConnectionResetError:
            self._end()
        except (OSError, MemoryError) as error:  # a line may be large; the task must get the error
            self._unwatch()
            waiter.set_exception(error)
            return
        waiter.set_result(None)

    def _unwatch(self) -> None:
        if self._watched:
            asyncio.get_running_loop().remove_reader(self._fd)
            self._watched = False

    def _end(self) -> None:
        """Note that the client has closed its end."""
        self._unwatch()
        self._eof = True
        self._lines.extend(self._splitter.end())

    async def aclose(self) -> None:
        """Stop reading."""
        self._unwatch()
        self._closed = True

    def __aiter__(self) -> Self:
        return self


def _is_pollable(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)


@contextmanager
def _private_descriptors() -> Generator[tuple[int, int]]:
    """Yield private copies of descriptors 0 and 1, which are redirected meanwhile."""
    wire_in = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    wire_out = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    mode = os.fstat(wire_out).st_mode
    polled = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)  # a terminal is shared with the shell
    was_blocking = os.get_blocking(wire_out)
    null = os.open(os.devnull, os.O_RDONLY)
    sys.stdout.flush()
    try:
        os.dup2(null, 0)
        os.dup2(2, 1)
        if polled:
            os.set_blocking(wire_out, False)
        yield wire_in, wire_out
    finally:
        with suppress(OSError, ValueError):  # stderr may be gone or stdout closed by a handler
            sys.stdout.flush()
        if polled:
            os.set_blocking(wire_out, was_blocking)
        os.dup2(wire_in, 0)
        os.dup2(wire_out, 1)
        for fd in (null, wire_in, wire_out):
            os.close(fd)


@asynccontextmanager
async def stdio_streams() -> AsyncGenerator[tuple[LineReader, LineWriter]]:
    """Serve over the process's stdin and stdout: a pair for `Server.run(read, write, …)`."""
    with _private_descriptors() as (wire_in, wire_out):
        unanswered = _Unanswered()
        writer = LineWriter(wire_out, unanswered)
        reader = LineReader(wire_in, writer, unanswered)
        try:
            yield reader, writer
        finally:
            await reader.aclose()
            with (
                anyio.move_on_after(FLUSH_SECONDS, shield=True),
                suppress(anyio.BrokenResourceError),
            ):
                await writer.flush()
