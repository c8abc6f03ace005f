"""A shell that stays open for a run: one tool, over the sessions of `harness.shell`."""

from __future__ import annotations

import os
import re
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from ..._internal import in_file_name
from ...backends.base import Backend
from ...checkpoint.base import Run
from ...errors import AgentBuildError, HarnessError, ToolError
from ...loop.hooks.middleware import AgentMiddleware
from ...loop.hooks.requests import Runtime, ToolCallOutcome, ToolCallRequest, ToolHandler
from ...messages.message import Message, ToolMessage
from ...shell.bubblewrap import BubblewrapExecutionPolicy
from ...shell.output import Preview, keep, preview
from ...shell.policies import ExecutionPolicy
from ...shell.pool import Key, Seat, SessionPool
from ...shell.sandbox import Sandbox, sandbox_of
from ...shell.session import CommandResult, ShellSession, open_session
from ...state.channels import State
from ...tools.tool import Tool, ToolResult, ToolRuntime
from .results import LOST, OUTPUT_SCHEMA, Kept, closed, ending_of, keep_output, opened, result_of

__all__ = ["OUTPUT_DIRECTORY", "ShellToolMiddleware"]

OUTPUT_DIRECTORY = ".shell_output"
"""Directory below the workspace for output that is too long."""

TOOL_DESCRIPTION = """\
Run a command in a shell that stays open: working directory, variables and functions last from \
call to call, as long as the run. Calls take turns. A command has no input and no terminal; \
use options such as `--yes` so that programs don't ask. It is stopped after {command_timeout:g} s \
or after `timeout` (at most {max_command_timeout:g} s); then everything in the shell ends, and a \
new shell is opened. To keep a program running, start it with `&` and send its output to a file. \
Returns stdout and stderr in the order they came, and the exit code; long output is cut in the \
middle, with the path of a file that has all of it. `restart` opens a new shell, before `command` \
if there is one."""

_MOST_KEPT = 1 << 20
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ShellToolMiddleware(AgentMiddleware):
    """Adds a tool that runs commands in a persistent shell.

    Each agent of a run, and each subagent, has its own session. The first call opens it, and it is
    ended with all its processes when the run ends, fails or is cancelled. While a run waits for an
    answer, its session stays open, for the policy's `idle_timeout` at most. Sessions are not
    stored: after that time, or in another process, the next call opens a new shell, and its result
    says what is lost. The same happens after a timeout, and if a command ends the shell. A call
    runs at most once, even if the process dies in the middle of it (`Tool.once`).

    With `backend`, the shell sees the backend's directories at the same paths as file tools, and
    the policy's rules about paths apply to it; see `ExecuteMiddleware`. When they change, the next
    call gets a new shell, and its result says so.

    By default, commands run in a bubblewrap sandbox, which must be installed. To run them with all
    rights of this process, pass `HostExecutionPolicy()`.

    Args:
        workspace_root: The working directory of shells; created if missing. None for a temporary
            directory, which is removed with the session, or for the backend's directories.
        backend: The backend of the file tools; not together with `workspace_root`.
        startup_commands: Commands that every new shell runs first, also after a restart. If one
            fails, so does the call that needed the shell.
        shutdown_commands: Commands that a shell runs last if a run ends normally; not after a
            timeout, a cancellation or a crash.
        execution_policy: The sandbox of shells, and their limits.
        redaction_rules: Functions that return a text without its secrets. They get all output
            before it is shown or kept.
        tool_description: The description of the tool for the model.
        tool_name: The tool's name.
        shell_command: Command line of a POSIX shell that reads commands from stdin, such as
            `dash` or `["bash", "--norc"]`. None for the policy's choice, which is bash if it is
            installed.
        env: Variables for the shell, in addition to those of the policy; on this machine, see
            `base_environment`.

    Raises:
        AgentBuildError: An argument makes no sense, or the policy cannot be used here.
    """

    supplies_tools = False

    def __init__(
        self,
        workspace_root: str | os.PathLike[str] | None = None,
        *,
        startup_commands: str | Sequence[str] | None = None,
        shutdown_commands: str | Sequence[str] | None = None,
        execution_policy: ExecutionPolicy | None = None,
        redaction_rules: Sequence[Callable[[str], str]] | None = None,
        tool_description: str | None = None,
        tool_name: str = "shell",
        shell_command: str | Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        backend: Backend | None = None,
    ) -> None:
        self._policy = execution_policy or BubblewrapExecutionPolicy()
        self._policy.check()
        self._limits = self._policy.limits
        self._redact = _functions(redaction_rules or ())
        self._startup = _lines("startup_commands", startup_commands)
        if isinstance(shell_command, str):
            shell_command = shlex.split(shell_command)
        self._shell = _lines("shell_command", shell_command) or None
        self._env = _variables(env or {})
        self._temporary = workspace_root is None and backend is None
        self._backend = backend
        self._sandbox: Sandbox | None = None
        if backend is not None:
            if workspace_root is not None:
                raise AgentBuildError("a shell takes workspace_root or backend, not both")
            self._sandbox = sandbox_of(backend, self._policy, self._shell, self._env)
        shutdown = _lines("shutdown_commands", shutdown_commands)
        self._pool = SessionPool(self._open, _directory(workspace_root), shutdown)
        self._tool_name = tool_name
        tool = self._tool(tool_description)
        # The gate checks a command as a local one; network access is checked afterwards.
        confined = self._sandbox is not None and self._sandbox.policy.confines
        self._inside = replace(tool, open_world=False) if confined else tool
        self.tools = (tool,)

    @property
    def name(self) -> str:
        """The middleware's name, with the tool's name if an agent has several shells."""
        plain = type(self).__name__
        return plain if self._tool_name == "shell" else f"{plain}[{self._tool_name}]"

    async def wrap_tool_call(
        self, request: ToolCallRequest, handler: ToolHandler
    ) -> ToolCallOutcome:
        """Have a sandboxed shell checked as one without network access."""
        if request.tool is self.tools[0]:
            request = request.override(tool=self._inside)
        return await handler(request)

    async def after_agent(self, state: State, runtime: Runtime) -> None:
        """End the session with the run."""
        await self._pool.close(_key(runtime))

    async def run_stopped(self, run: Run) -> None:
        """End the sessions of a run, unless it waits to continue."""
        if run.status not in ("needs_approval", "paused"):
            await self._pool.close((run.id, ""), orderly=run.status == "done")

    async def aclose(self) -> None:
        """End all sessions."""
        await self._pool.aclose()

    def _tool(self, description: str | None) -> Tool:
        longest = self._limits.max_command_timeout
        values = {
            one: getattr(self._limits, one) for one in ("command_timeout", "max_command_timeout")
        }
        return Tool.from_schema(
            self._tool_name,
            description or TOOL_DESCRIPTION.format_map(values),
            {
                "type": "object",
                "properties": {
                    "command": {"type": "string", "description": "Any number of lines of shell"},
                    "restart": {"type": "boolean", "description": "Open a new shell first"},
                    "timeout": {
                        "type": "number",
                        "exclusiveMinimum": 0,
                        "maximum": longest,
                        "description": f"Seconds; {self._limits.command_timeout:g} by default",
                    },
                },
                "additionalProperties": False,
            },
            self._call,
            title="Run a command",
            destructive=True,
            open_world=getattr(self._policy, "network_enabled", True),
            once=True,
            output_schema=OUTPUT_SCHEMA,
        )

    async def _call(self, args: dict[str, Any], runtime: ToolRuntime) -> ToolResult:
        command: str | None = args.get("command")
        restart: bool = args.get("restart", False)
        if command is None and not restart:
            raise ToolError(
                f"{self._tool_name} was not run: give a `command`, or `restart` for a new shell."
            )
        if command is not None and "\0" in command:
            raise ToolError(f"{self._tool_name} was not run: a command cannot contain NUL.")
        timeout: float = args.get("timeout", self._limits.command_timeout)
        if not timeout > 0:  # NaN passes the schema
            raise ToolError(f"{self._tool_name} was not run: `timeout` must be above 0 seconds.")
        return await self._in_turn(_key(runtime), runtime, command, timeout, restart=restart)

    async def _in_turn(
        self, key: Key, runtime: ToolRuntime, command: str | None, timeout: float, *, restart: bool
    ) -> ToolResult:
        notices: list[str] = []
        others = self._pool.users(key)
        try:
            look = None if self._sandbox is None else partial(self._sandbox.layout, runtime)
            async with self._pool.turn(key, restart=restart, look=look) as (seat, fresh):
                session, layout = seat.session, seat.layout
                assert session is not None
                if others:
                    notices.append(
                        "This call waited for other calls of the shell: they take turns."
                    )
                if seat.replaced:
                    notices.append("What commands may reach of the files, or the network, changed.")
                if fresh and layout is not None:
                    notices += layout.notes
                if fresh and (restart or self._was_used(runtime)):
                    notices.append(self._new_shell(session.launch.workspace))
                if command is None:
                    return opened(notices)
                result = await session.run(command, timeout)
                return await self._result(result, seat, session, runtime, notices, fresh)
        except OSError as error:
            raise ToolError(
                f"{self._tool_name} failed, perhaps after the command ran: {error}"
            ) from error

    async def _open(self, seat: Seat) -> ShellSession:
        if self._sandbox is not None and seat.layout is not None:
            return await self._sandbox.open(seat.layout, self._startup)
        launch = self._policy.launch(self._shell, await seat.workspace(), self._env)
        return await open_session(launch, self._limits, self._startup)

    def _was_used(self, runtime: ToolRuntime) -> bool:
        """Whether the model has seen a result of the tool, from an earlier shell."""
        messages: Sequence[Message] = runtime.state.get("messages", ())
        return any(isinstance(one, ToolMessage) and one.name == self._tool_name for one in messages)

    def _new_shell(self, workspace: str) -> str:
        files = ", and the files of its temporary directory may be" if self._temporary else ""
        return f"This is a new shell, in {workspace}. Of an earlier one: {LOST.lower()}{files}."

    async def _result(
        self,
        result: CommandResult,
        seat: Seat,
        session: ShellSession,
        runtime: ToolRuntime,
        notices: Sequence[str],
        fresh: bool,
    ) -> ToolResult:
        shown = await self._preview(result)
        kept = Kept()
        left_out = ""
        if shown.kept is not None:
            kept = await self._keep(shown, result, seat, session, runtime)
            left_out = f"[… {shown.lines} lines, {shown.size} bytes left out; {kept.where} …]\n"
        output = f"{closed(shown.head)}{left_out}{shown.tail}"
        ending = self._ending(result)
        told = result_of(result, output, kept.path, notices, ending, fresh=fresh)
        return replace(told, update=kept.update) if kept.update else told

    async def _preview(self, result: CommandResult) -> Preview:
        limits = self._limits
        try:
            return await anyio.to_thread.run_sync(
                preview,
                result.output,
                self._redact,
                limits.max_output_lines,
                limits.max_output_bytes,
            )
        except HarnessError:
            raise
        except Exception as error:
            raise ToolError(
                f"The command ran ({self._ending(result)}), but its output cannot be shown: a "
                f"redaction rule raised {type(error).__name__}. Running it again will not help."
            ) from error

    async def _keep(
        self,
        shown: Preview,
        result: CommandResult,
        seat: Seat,
        session: ShellSession,
        runtime: ToolRuntime,
    ) -> Kept:
        """Keep a long output with evicted results, or in the directory of the shell."""
        assert shown.kept is not None
        if self._backend is not None:
            whole = result.output.whole
            return await keep_output(self._backend, runtime, shown.kept, _MOST_KEPT, whole=whole)
        name = f"{in_file_name(runtime.tool_call_id, 60)}-{secrets.token_hex(4)}.txt"
        path = f"{session.launch.workspace}/{OUTPUT_DIRECTORY}/{name}"
        try:
            workspace = await seat.workspace()
            write = partial(keep, shown.kept, workspace, OUTPUT_DIRECTORY, name)
            await anyio.to_thread.run_sync(write)
            what = "all of it is" if result.output.whole else "the beginning of it is"
        except OSError as error:
            return Kept(None, f"it could not be kept: {error}")
        return Kept(path, f"{what} in {path}")

    def _ending(self, result: CommandResult) -> str:
        return ending_of(result, startup=bool(self._startup))


def _key(runtime: Runtime | ToolRuntime) -> Key:
    return runtime.run_id, runtime.ns


def _lines(name: str, given: str | Sequence[str] | None) -> Sequence[str]:
    lines = (given,) if isinstance(given, str) else tuple(given or ())
    if not all(isinstance(one, str) and one and "\0" not in one for one in lines):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise AgentBuildError(f"{name} takes a text or a list of texts; got {given!r}")
    return lines


def _functions(given: Sequence[Callable[[str], str]]) -> Sequence[Callable[[str], str]]:
    rules = (given,) if callable(given) else tuple(given)
    if not all(callable(one) for one in rules):
        raise AgentBuildError(f"redaction_rules takes functions from text to text; got {given!r}")
    return rules


def _variables(env: Mapping[str, str]) -> dict[str, str]:
    for name, value in env.items():
        text = isinstance(value, str) and "\0" not in value  # pyright: ignore[reportUnnecessaryIsInstance]
        if not (text and _ENV_NAME.fullmatch(name)):
            raise AgentBuildError(f"env takes names of variables with text values; got {name!r}")
    return dict(env)


def _directory(given: str | os.PathLike[str] | None) -> Path | None:
    if given is None:
        return None
    path = Path(os.path.realpath(os.path.expanduser(given)))
    if path.exists() and not path.is_dir():
        raise AgentBuildError(f"workspace_root takes a directory; {path} is a file")
    return path
