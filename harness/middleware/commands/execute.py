"""Commands in a sandbox of their own: the tools `execute` and `job`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import anyio.to_thread
from pydantic import JsonValue

from ...backends.base import Backend
from ...errors import ToolError
from ...loop.hooks.middleware import AgentMiddleware
from ...loop.hooks.requests import (
    HookResult,
    ModelHandler,
    ModelRequest,
    ModelResponse,
    Runtime,
    ToolCallOutcome,
    ToolCallRequest,
    ToolHandler,
)
from ...shell.bubblewrap import BubblewrapExecutionPolicy
from ...shell.jobs import JobLimits
from ...shell.output import preview
from ...shell.policies import ExecutionPolicy, Layout
from ...shell.sandbox import sandbox_of
from ...shell.session import CommandResult, ShellSession
from ...state.channels import State
from ...tools.tool import Tool, ToolResult, ToolRuntime
from .changed_files import changes, listing
from .jobs import JobsState, ThreadJobs
from .results import EXECUTE_SCHEMA, Kept, finished, keep_output, started

__all__ = ["ExecuteMiddleware"]

DESCRIPTION = """\
Run a shell command in {workdir}. Each call has {where} of its own: of one call only the files it \
wrote are there for the next. No input, no terminal. It is stopped after {command_timeout:g} s, or \
after `timeout`, and what it leaves running ends with it. Returns stdout and stderr as they came \
and the exit code; of long output the beginning, the end and the path of the rest."""

_WITHOUT_NETWORK = (
    "This call had no network: the policy does not allow commands that reach beyond this machine."
)
_MADE = (
    "The policy guards {}, which the command made or something else did meanwhile. Commands cannot "
    "change it any more; if you did not mean to make it, tell the user."
)
_NO_MORE_CPU = (
    "A process here may use {} s of CPU time and is killed when it takes more, which may be what "
    "happened. Do less at a time."
)
_KILLED = (128 + 9, 128 + 24)
"""Exit codes of commands that were killed for their CPU time."""


class ExecuteMiddleware(AgentMiddleware):
    """Adds `execute` and `job`: commands on the files that the file tools see.

    Commands see directories of the backend at the same paths as file tools, and nothing else of the
    backend. Paths that the policy makes read-only or hides for file tools are mounted accordingly,
    anew for each call. Commands are checked like those of `shell`, by rules with `command`.

    Jobs belong to the thread. They continue when the run ends, and end with the thread or with this
    process.

    Args:
        backend: The backend of the files; directories must have a path for commands, see
            `with_workspace`.
        execution_policy: The sandbox of commands, and their limits; by default bubblewrap, without
            network.
        env: Variables for commands, in addition to those of the execution policy.
        jobs: Limits of background jobs; None for no jobs.
        job_directory: Directory for the output of jobs, readable only by this user and not
            redacted; by default below the system's temporary directory.
        max_kept_bytes: The most bytes of a long output that can be read later.
        fixed: Files and directories of this machine that commands in a sandbox can never write,
            whatever the rules say, such as the agent's own instructions.

    Raises:
        AgentBuildError: The execution policy cannot be used here, or not with this backend.
    """

    state_schema: ClassVar[type | None] = JobsState
    supplies_tools: ClassVar[bool] = False

    def __init__(
        self,
        backend: Backend,
        *,
        execution_policy: ExecutionPolicy | None = None,
        env: Mapping[str, str] | None = None,
        jobs: JobLimits | None = JobLimits(),  # noqa: B008 - it cannot change
        job_directory: str | os.PathLike[str] | None = None,
        max_kept_bytes: int = 1 << 20,
        fixed: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        self.backend = backend
        self._sandbox = sandbox_of(
            backend,
            execution_policy or BubblewrapExecutionPolicy(),
            env=env,
            fixed=[Path(one) for one in fixed],
        )
        self._limits = self._sandbox.policy.limits
        self._max_kept_bytes = max_kept_bytes
        self._jobs = None if jobs is None else ThreadJobs(jobs, job_directory)
        self._execute = self._tool()
        # The gate checks a command as a local one; network access is checked afterwards.
        self._inside = replace(self._execute, open_world=not self._sandbox.policy.confines)
        self.tools = (self._execute, *((self._jobs.tool(),) if self._jobs else ()))
        self._section = self._prompt()

    async def before_model(self, state: State, runtime: Runtime) -> HookResult:
        """Announce jobs that have ended."""
        if self._jobs is None:
            return None
        await self._jobs.begin(state, runtime)
        return self._jobs.news(state, runtime)

    async def after_model(self, state: State, runtime: Runtime) -> None:
        """End jobs of an earlier thread with this id before a driving client's first calls."""
        if self._jobs is not None:
            await self._jobs.begin(state, runtime)

    async def thread_deleted(self, thread_id: str) -> None:
        """End the jobs of the thread."""
        if self._jobs is not None:
            await self._jobs.forget(thread_id)

    async def wrap_model_call(self, request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        """Explain in the system prompt which files commands see."""
        return await handler(request.with_section("commands", self._section))

    async def wrap_tool_call(
        self, request: ToolCallRequest, handler: ToolHandler
    ) -> ToolCallOutcome:
        """Have `execute` checked as a call without network access."""
        if request.tool is self._execute:
            request = request.override(tool=self._inside)
        return await handler(request)

    async def aclose(self) -> None:
        """End all jobs."""
        if self._jobs is not None:
            await self._jobs.aclose()

    def _tool(self) -> Tool:
        limits = self._limits
        sandbox = self._sandbox
        text = DESCRIPTION.format(
            workdir=sandbox.places[0] if sandbox.places else "an empty directory",
            where="a sandbox" if sandbox.policy.confines else "a shell",
            command_timeout=limits.command_timeout,
        )
        properties: dict[str, Any] = {
            "command": {"type": "string", "minLength": 1},
            "timeout": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": limits.max_command_timeout,
                "description": f"Seconds; {limits.command_timeout:g} by default",
            },
        }
        if self._jobs is not None:
            properties["background"] = {
                "type": "boolean",
                "description": "Start a job and return its id at once; see `job`. It may run "
                f"{self._jobs.limits.seconds:g} s",
            }
        return Tool.from_schema(
            "execute",
            text,
            {
                "type": "object",
                "properties": properties,
                "required": ["command"],
                "additionalProperties": False,
            },
            self._call,
            title="Run a command",
            destructive=True,
            open_world=sandbox.policy.network_enabled,
            once=True,
            output_schema=EXECUTE_SCHEMA,
        )

    def _prompt(self) -> str:
        policy, places = self._sandbox.policy, self._sandbox.places
        if not policy.confines:
            return "## Commands\n`execute` runs on this machine; its paths are those of the files."
        shared = " and ".join(places)
        what = (
            f"sees {shared} as the file tools do, and no other path of theirs"
            if places
            else "sees none of the files of the file tools"
        )
        network = "" if policy.network_enabled else " It has no network."
        return f"## Commands\n`execute` {what}.{network}"

    async def _call(self, args: dict[str, Any], runtime: ToolRuntime) -> ToolResult:
        command: str = args["command"]
        if "\0" in command:
            raise ToolError("execute was not run: a command cannot contain NUL.")
        timeout: float = args.get("timeout", self._limits.command_timeout)
        if not timeout > 0:  # NaN passes the schema
            raise ToolError("execute was not run: `timeout` must be a number of seconds above 0.")
        if args.get("background", False) and self._jobs is not None:
            if "timeout" in args:
                raise ToolError(
                    "execute was not run: `timeout` is for commands that are waited for. Leave it "
                    "out; end a job with `job`."
                )
            self._jobs.pool.require_room(runtime.thread_id)
        try:
            layout = await self._sandbox.layout(runtime)
            session = await self._sandbox.open(layout)
        except OSError as error:
            raise ToolError(f"execute was not run: {error}") from error
        notes = self._notes(layout)
        if args.get("background", False):
            return await self._start(session, runtime, command, layout, notes)
        directories = self._sandbox.directories
        try:
            before = await anyio.to_thread.run_sync(listing, directories)
            result = await session.run(command, timeout)
        except OSError as error:
            raise ToolError(f"execute failed, perhaps after the command ran: {error}") from error
        finally:
            await session.close()
        after = None if before is None else await anyio.to_thread.run_sync(listing, directories)
        made = await self._sandbox.made(runtime, layout)
        if made:
            notes.append(_MADE.format(", ".join(made[:5]) + (" …" if len(made) > 5 else "")))
        changed = changes(before, after, layout)
        return await self._finished(result, runtime, layout, notes, changed)

    async def _start(
        self,
        session: ShellSession,
        runtime: ToolRuntime,
        command: str,
        layout: Layout,
        notes: list[str],
    ) -> ToolResult:
        assert self._jobs is not None
        try:
            job = await self._jobs.start(session, runtime, command)
        except OSError as error:
            await session.close()
            raise ToolError(f"No job was started: {error}") from error
        except BaseException:
            await session.close()
            raise
        return started(job, notes, network=layout.network)

    def _notes(self, layout: Layout) -> list[str]:
        refused = self._sandbox.policy.network_enabled and not layout.network
        return [*layout.notes, *([_WITHOUT_NETWORK] if refused else [])]

    async def _finished(
        self,
        result: CommandResult,
        runtime: ToolRuntime,
        layout: Layout,
        notes: list[str],
        changed: list[JsonValue] | None,
    ) -> ToolResult:
        limits = self._limits
        cpu_seconds: int | None = getattr(self._sandbox.policy, "cpu_time_seconds", None)
        if cpu_seconds is not None and result.exit_code in _KILLED:
            notes.append(_NO_MORE_CPU.format(cpu_seconds))
        shown = await anyio.to_thread.run_sync(
            preview, result.output, (), limits.max_output_lines, limits.max_output_bytes
        )
        kept = Kept()
        if shown.kept is not None:
            kept = await keep_output(
                self.backend,
                runtime,
                shown.kept,
                self._max_kept_bytes,
                whole=result.output.whole,
            )
        return finished(result, shown, kept, notes, changed, network=layout.network)
