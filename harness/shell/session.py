"""Shell session: a shell that stays open between commands, and detects the end of each.

The shell reads a script from its stdin, one command at a time. We wrap each command in our own
lines: its stdin is empty, and it cannot use the script's channel or the channel on which the shell
reports its exit code with a random mark. A second mark, in the output, marks the end of the
command's output; later output comes from processes that it left running. So nothing depends on a
command's output, a final line end, or processes that keep the pipes open.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence
from typing import Literal, TypeAlias

import anyio

from .._internal.concurrency import raising_one
from .._internal.records import record
from ..errors import ToolError
from .output import Collector, Output, Sink
from .policies import Launch, ShellLimits
from .process import ShellProcess, start_process

__all__ = ["CommandResult", "Ending", "ShellError", "ShellSession", "open_session"]

Ending: TypeAlias = Literal["done", "timeout", "ended"]
"""How a command ended: by itself, by its timeout, or with the shell."""

_SET_UP = b"""\
exec 8>&1 9>&2 1>/dev/null 2>/dev/null
[ -n "${BASH_VERSION-}${ZSH_VERSION-}" ]
"""
"""8 is the output from here on, 9 the channel for exit codes. Exit code 0 means that the shell has
`builtin`, which ignores functions of the same name."""

_CODE = 121
_GRACE = 2.0
_LEASE = 15.0
_DIAGNOSIS_BYTES = 2_000


@record
class _Kind:
    """Dialect of a shell.

    Attributes:
        eval: Runs a text, and survives a syntax error in it.
        report_with: Writes a report, with the exit code of the command before.
        code: The name of that exit code in it.
    """

    eval: str
    report_with: str
    code: str

    def report(self, mark: str) -> bytes:
        """Return the lines that report an exit code; a shell that cannot report is of no use.

        They contain no reserved words, because bash does not recognise those right after some
        syntax errors.
        """
        first, _, write = self.report_with.rpartition("\n")
        return (
            f"{first}\n{write} '%s %d\\n' {mark} {self.code} >&9 && {write} {mark} >&8 "
            f"|| exit {_CODE}\n"
        ).encode()


_BUILTIN = _Kind("builtin eval", "builtin printf", '"$?"')
_POSIX = _Kind(
    # A function of that name would be called instead of the shell's own command.
    "command eval",
    "__code=$?; unset -f command\ncommand printf",
    '"$__code"',
)


class ShellError(ToolError):
    """The shell could not be opened; nothing was run, or only startup commands."""


@record
class CommandResult:
    """Result of a command.

    Attributes:
        output: Its output, stdout and stderr in order.
        ending: How it ended. After anything but `done`, the session is over, and all its processes
            have ended.
        exit_code: Its exit code, or the shell's if the shell ended; None after a timeout.
        seconds: How long it took.
        passed: The exceeded limit, such as `more than 9 processes`, or empty.
    """

    output: Output
    ending: Ending
    exit_code: int | None
    seconds: float
    passed: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether it ended by itself, with exit code 0."""
        return self.ending == "done" and self.exit_code == 0


class ShellSession:
    """One open shell. Commands run one at a time; callers must ensure that.

    Attributes:
        launch: How it was started.
    """

    def __init__(self, launch: Launch, limits: ShellLimits, process: ShellProcess) -> None:
        self.launch = launch
        self._limits = limits
        self._process = process
        self._status = b""
        self._kind: _Kind = _POSIX

    @property
    def alive(self) -> bool:
        """Whether it accepts commands."""
        return self._process.usable and not self._process.ended

    async def run(self, command: str, timeout: float, sink: Sink | None = None) -> CommandResult:
        """Run a command.

        If the call is cancelled, the session ends with all its processes.

        Args:
            command: Shell text, of any number of lines, without NUL.
            timeout: Seconds after which it is stopped, with everything else in the session.
            sink: Receives its output; None for a collector within the limits.
        """
        limits = self._limits
        collector: Sink = sink or Collector(limits.max_file_bytes, limits.max_output_bytes)
        began = time.monotonic()
        self._process.lease(timeout + _LEASE)
        try:
            ending, code = await self._exchange(command, timeout, collector)
            seconds = time.monotonic() - began
            if ending == "done" and not self._process.passed:
                self._process.lease(limits.idle_timeout)
            else:
                await self._process.end()
                if ending == "done":  # the shell reported its killed command, and was killed next
                    ending, code = "ended", self._process.code
            passed = self._process.passed
            return CommandResult(await collector.finish(), ending, code, seconds, passed)
        except BaseException:
            await self._process.end()
            raise
        finally:
            collector.close()

    def hang_up(self) -> None:
        """Start to end everything; a running command returns as `ended`."""
        self._process.hang_up()

    async def close(self, commands: Sequence[str] = ()) -> None:
        """End the shell and everything in it.

        Args:
            commands: Commands to run first; their results are ignored. Together they may take as
                long as the start of the shell.
        """
        with anyio.CancelScope(shield=True):
            deadline = time.monotonic() + self._limits.startup_timeout
            for command in commands:
                left = deadline - time.monotonic()
                if left <= 0 or not self.alive:
                    break
                await self.run(command, left)
            await self._process.end()

    async def start(self) -> None:
        """Wait until the shell takes commands.

        Raises:
            ShellError: It did not start; the text contains its output.
        """
        mark = secrets.token_hex(16)
        timeout = self._limits.startup_timeout
        ending, code = await self._until_over(_SET_UP + _POSIX.report(mark), mark, timeout, None)
        if ending == "done":
            self._kind = _BUILTIN if code == 0 else _POSIX
            self._process.lease(self._limits.idle_timeout)
        else:
            await self._process.end()
            why = f"exit code {code}" if ending == "ended" else f"no answer for {timeout} s"
            said = self._status.decode("utf-8", "replace").strip()
            raise ShellError(
                f"The shell could not be started ({why}), so nothing was run."
                + (f" It said: {said}" if said else "")
            )

    async def prepare(self, commands: Sequence[str], deadline: float | None = None) -> None:
        """Run the startup commands.

        Args:
            commands: The commands.
            deadline: The time by which they must have ended, on the monotonic clock; None for
                `startup_timeout` from now.

        Raises:
            ShellError: One failed; the text says why.
        """
        until = time.monotonic() + self._limits.startup_timeout if deadline is None else deadline
        for command in commands:
            result = await self.run(command, max(0.001, until - time.monotonic()))
            if not result.succeeded:
                raise ShellError(_failed(command, result, self._limits))

    async def _exchange(
        self, command: str, timeout: float, collector: Sink
    ) -> tuple[Ending, int | None]:
        mark = secrets.token_hex(16)
        quoted = command.replace("'", "'\\''")
        text = f"{self._kind.eval} '{quoted}\n' </dev/null >&8 2>&1 8>&- 9>&-\n"
        script = _encoded(text) + self._kind.report(mark)
        return await self._until_over(script, mark, timeout, collector)

    async def _until_over(
        self, script: bytes, mark: str, timeout: float, collector: Sink | None
    ) -> tuple[Ending, int | None]:
        """Send a script that ends with a report; return how it ended, and the exit code.

        After the timeout, all processes are asked to end. Their output until then is included.
        """
        over: list[tuple[Ending, int | None]] = []
        read_all = anyio.Event()
        async with raising_one(), anyio.create_task_group() as group:

            async def read_output() -> None:
                await self._read_output(mark.encode(), collector)
                read_all.set()

            async def read_status() -> None:
                code = await self._read_status(mark)
                if code is not None:
                    await end("done", code)

            async def watch() -> None:
                await end("ended", await self._process.wait())

            async def expire() -> None:
                await anyio.sleep(timeout)
                if not over:
                    over.append(("timeout", None))
                    self._process.hang_up()
                    await anyio.sleep(self._process.end_seconds)
                    group.cancel_scope.cancel()

            async def end(ending: Ending, code: int) -> None:
                over.append((ending, code))
                with anyio.move_on_after(_GRACE):
                    await read_all.wait()
                group.cancel_scope.cancel()

            for one in (read_output, read_status, watch, expire):
                group.start_soon(one)
            group.start_soon(self._process.send, script)
        return over[0]

    async def _read_output(self, mark: bytes, collector: Sink | None) -> None:
        """Pass on output until the mark, or until all writers are gone."""
        held = b""
        while data := await self._process.output():
            held += data
            before, found, _ = held.partition(mark)
            certain = len(before) if found else len(held) - _begun(held, mark)
            if collector is not None and certain:
                await collector.add(held[:certain])
            held = held[certain:]
            if found:
                return
        if collector is not None:
            await collector.add(held)

    async def _read_status(self, mark: str) -> int | None:
        """Return the exit code with the mark; None if the channel was closed."""
        pattern = re.compile(mark.encode() + rb" (\d+)\n")
        while data := await self._process.status():
            self._status += data
            found = pattern.search(self._status)
            if found:
                self._status = b""
                return int(found[1])
            self._status = self._status[-_DIAGNOSIS_BYTES:]
        return None


def _encoded(text: str) -> bytes:
    """Return a script's bytes; file names may contain bytes that are not UTF-8."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # other halves of pairs, which no name has
        return text.encode("utf-8", "replace")


def _begun(data: bytes, mark: bytes) -> int:
    """Return how many bytes at the end may be the beginning of the mark."""
    longest = min(len(data), len(mark) - 1)
    return next((n for n in range(longest, 0, -1) if data.endswith(mark[:n])), 0)


async def open_session(
    launch: Launch, limits: ShellLimits, commands: Sequence[str] = ()
) -> ShellSession:
    """Start a shell and run its startup commands.

    Raises:
        ShellError: It did not start, or a startup command failed; the text says why.
    """
    deadline = time.monotonic() + limits.startup_timeout
    try:
        process = await start_process(
            launch,
            grace=limits.termination_timeout,
            lease=limits.startup_timeout + _LEASE,
        )
    except OSError as error:
        raise ShellError(f"The shell could not be started, so nothing was run: {error}") from error
    session = ShellSession(launch, limits, process)
    try:
        await session.start()
        if launch.kept:
            await _keep_mounts(process, launch.kept)
        await session.prepare(commands, deadline)
    except BaseException:
        await session.close()
        raise
    return session


async def _keep_mounts(process: ShellProcess, places: Sequence[str]) -> None:
    try:
        await process.keep_mounts(places)
    except OSError as error:
        raise ShellError(
            "The command was not run: files that the policy guards were replaced or moved at that "
            f"moment, or the mounts of commands cannot be watched here ({error}). Try again when "
            "nothing else changes them."
        ) from error


def _failed(command: str, result: CommandResult, limits: ShellLimits) -> str:
    if result.ending == "timeout":
        how = f"took longer than the {limits.startup_timeout} s that starting may take"
    else:
        how = f"ended with exit code {result.exit_code}"
    said = result.output.head[-_DIAGNOSIS_BYTES:].decode("utf-8", "replace").strip()
    return (
        f"The shell could not be set up: its startup command {command!r} {how}. The call's own "
        "command was not run, and calling again will not help until that is fixed."
        + (f" Output: {said}" if said else "")
    )
