"""Pipes to the input and output of processes of the fork server."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream

from tests import fork_server

__all__ = ["Piped", "line", "open_process", "piped", "spawned"]


async def open_process(
    command: Sequence[str], env: Mapping[str, str], cwd: Path, *, stderr: int = 2
) -> anyio.abc.Process:
    """Start a process with the fork server; return it as a process of `anyio`."""
    source, its_input = os.pipe()
    its_output, sink = os.pipe()
    try:
        process = fork_server.start(command, env, cwd, stdin=source, stdout=sink, stderr=stderr)
    finally:
        os.close(source)
        os.close(sink)
    return _Opened(process, _Input(its_input), _Output(its_output))


@dataclass
class Piped:
    """A process with our ends of its pipes."""

    process: fork_server.Process
    stdin: IO[bytes]
    stdout: IO[bytes]


@contextmanager
def piped(
    command: Sequence[str], env: Mapping[str, str], cwd: Path, *, stderr: int = 2
) -> Iterator[Piped]:
    """Start a process with the fork server, without an event loop; kill it after the block."""
    source, its_input = os.pipe()
    its_output, sink = os.pipe()
    with open(its_input, "wb") as stdin, open(its_output, "rb") as stdout:
        with open(source, "rb"), open(sink, "wb"):
            process = fork_server.start(command, env, cwd, stdin=source, stdout=sink, stderr=stderr)
        try:
            yield Piped(process, stdin, stdout)
        finally:
            process.kill()


class _End:
    """An end of a pipe."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor

    def _open(self) -> int:
        if self._descriptor < 0:
            raise anyio.ClosedResourceError
        return self._descriptor

    async def aclose(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            anyio.notify_closing(descriptor)
            os.close(descriptor)


class _Input(_End, anyio.abc.ByteSendStream):
    async def send(self, item: bytes) -> None:
        rest = memoryview(item)
        while rest:
            try:
                rest = rest[os.write(self._open(), rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._open())
            except BrokenPipeError as error:
                raise anyio.BrokenResourceError from error


class _Output(_End, anyio.abc.ByteReceiveStream):
    async def receive(self, max_bytes: int = 65_536) -> bytes:
        await anyio.wait_readable(self._open())
        if data := os.read(self._open(), max_bytes):
            return data
        raise anyio.EndOfStream


class _Opened(anyio.abc.Process):
    def __init__(self, process: fork_server.Process, stdin: _Input, stdout: _Output) -> None:
        self._process = process
        self._stdin = stdin
        self._stdout = stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    @property
    def stdin(self) -> anyio.abc.ByteSendStream:
        return self._stdin

    @property
    def stdout(self) -> anyio.abc.ByteReceiveStream:
        return self._stdout

    @property
    def stderr(self) -> None:
        return None

    async def wait(self) -> int:
        while (code := self._process.poll()) is None:  # noqa: ASYNC110  no event tells
            await anyio.sleep(0.005)
        return code

    def send_signal(self, signal: int) -> None:
        self._process.send_signal(signal)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    async def aclose(self) -> None:
        await self._stdin.aclose()
        await self._stdout.aclose()
        try:
            await self.wait()
        except BaseException:
            self.kill()
            with anyio.CancelScope(shield=True):
                await self.wait()
            raise


@asynccontextmanager
async def spawned(
    module: str, *args: str, forked: bool = True
) -> AsyncGenerator[tuple[anyio.abc.Process, BufferedByteReceiveStream]]:
    """Yield a process that runs a module, and its output; kill it after the block."""
    command = [sys.executable, "-m", module, *args]
    start = open_process if forked else anyio.open_process
    async with await start(
        command, env=fork_server.environment(fork_server.ROOT), cwd=fork_server.ROOT, stderr=2
    ) as process:
        assert process.stdout is not None
        try:
            yield process, BufferedByteReceiveStream(process.stdout)
        finally:
            if process.returncode is None:
                process.kill()


async def line(stream: BufferedByteReceiveStream) -> str:
    """Return the next line."""
    return (await stream.receive_until(b"\n", 1000)).decode().strip()
