"""The `job` tool, and notices about jobs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, NotRequired, TypedDict, cast

from pydantic import JsonValue

from ...backends.file_tools.pages import call_text
from ...errors import ToolError
from ...loop.hooks.requests import HookResult, Runtime
from ...messages.message import AIMessage, HumanMessage, Message
from ...shell.jobs import Job, JobLimits, JobPool, default_directory
from ...shell.session import ShellSession
from ...state.channels import Mark, Reducer, State, merge_keys
from ...tools.tool import Tool, ToolResult, ToolRuntime
from .results import JOB_SCHEMA, listed, paged, record_of

__all__ = ["JobsState", "ThreadJobs"]

_SOURCE = "jobs"
_LOST = "lost: it ended with its process, or with the thread that it belonged to"
_PAGE_BYTES = 8_000
_WAIT_SECONDS = 30.0
_LONGEST_WAIT = 300.0

DESCRIPTION = """\
See to jobs that `execute` started in the background. `output`: what one wrote, the end of it or \
from `offset` on. `wait`: the same, once it has ended or `seconds` are over. `stop` ends it with \
all it started. `job_id` may be left out where there is one job."""

Records = dict[str, dict[str, JsonValue]]


class JobsState(TypedDict):
    """Jobs of a thread: command, start, and how each ended, by their ids."""

    jobs: Annotated[NotRequired[Records], Reducer(merge_keys, default=Records), Mark.PRIVATE]


class ThreadJobs:
    """Jobs of all threads of this process, as tools and hooks see them.

    Args:
        limits: Limits of jobs.
        directory: Directory for output; None for this user's directory below the system's
            temporary one.
    """

    state_schema: ClassVar[type] = JobsState

    def __init__(self, limits: JobLimits, directory: str | os.PathLike[str] | None) -> None:
        self.limits = limits
        self._directory = directory
        self._pool: JobPool | None = None

    @property
    def pool(self) -> JobPool:
        """The jobs; created at the first use."""
        if self._pool is None:
            given = self._directory
            self._pool = JobPool(default_directory() if given is None else Path(given), self.limits)
        return self._pool

    async def start(self, session: ShellSession, runtime: ToolRuntime, command: str) -> Job:
        """Run a command in the background; see `JobPool.start`."""
        return await self.pool.start(session, runtime.thread_id, runtime.ns, command)

    def tool(self) -> Tool:
        """Return the tool `job`."""
        return Tool.from_schema(
            "job",
            DESCRIPTION,
            {
                "type": "object",
                "properties": {
                    "action": {"type": "string", "enum": ["output", "wait", "stop", "list"]},
                    "job_id": {"type": "string"},
                    "offset": {"type": "integer", "minimum": 0, "description": "In bytes"},
                    "limit": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": 4 * _PAGE_BYTES,
                        "description": f"Most bytes; {_PAGE_BYTES} by default",
                    },
                    "seconds": {
                        "type": "number",
                        "minimum": 0,
                        "maximum": _LONGEST_WAIT,
                        "description": f"{_WAIT_SECONDS:g} by default",
                    },
                },
                "required": ["action"],
                "additionalProperties": False,
            },
            self._call,
            title="Background jobs",
            open_world=False,
            output_schema=JOB_SCHEMA,
        )

    async def begin(self, state: State, runtime: Runtime) -> None:
        """End the jobs of an earlier thread with this id, if the thread has just begun.

        Another process may have deleted that thread, or it was rewound to its beginning.
        """
        earlier: Sequence[Message] = (state.get("messages") or ())[:-1]
        begins = not any(isinstance(one, AIMessage) for one in earlier) and not _records(state)
        if begins and not runtime.ns:
            await self.forget(runtime.thread_id)

    async def forget(self, thread_id: str) -> None:
        """End the jobs of a deleted thread; see `JobPool.forget`."""
        if self._pool is not None:
            await self._pool.forget(thread_id)

    def news(self, state: State, runtime: Runtime) -> HookResult:
        """Return a notice of the jobs that ended since the agent's last notice."""
        records = _records(state)
        ended: Records = {}
        for job_id, record in records.items():
            job = self._job(job_id)
            if record.get("ended") is None and (job is None or job.result is not None):
                ended[job_id] = _lost(record) if job is None else record_of(job)
        if not runtime.ns and self._pool is not None:  # of subagents that no longer exist
            others = [one for one in self._pool.of(runtime.thread_id) if one.id not in records]
            ended |= {one.id: record_of(one) for one in others if one.result and not one.told}
        if not ended:
            return None
        for job_id in ended:
            self._note(runtime.thread_id, job_id)
        return {"messages": [HumanMessage(_notice(ended), source=_SOURCE)], "jobs": ended}

    async def aclose(self) -> None:
        """End all jobs."""
        if self._pool is not None:
            await self._pool.aclose()

    async def _call(self, args: dict[str, Any], runtime: ToolRuntime) -> ToolResult:
        records = self._known(runtime)
        if args["action"] == "list":
            return listed(records)
        job_id: str | None = args.get("job_id")
        if job_id is None and len(records) == 1:
            (job_id,) = records
        if job_id is None or job_id not in records:
            known = ", ".join(records) or "none"
            which = "give a `job_id`" if job_id is None else f"there is no job {job_id!r}"
            raise ToolError(f"job did nothing: {which}. Jobs of this thread: {known}.")
        job = self._job(job_id)
        if job is not None and args["action"] != "output":
            if args["action"] == "stop":
                _require_own(job, runtime)
                job.stop()
            seconds: float = args.get("seconds", _WAIT_SECONDS)
            await job.wait(seconds if seconds >= 0 else 0)  # NaN passes the schema
        record = records[job_id] if job is None else record_of(job)
        if job is None and record.get("ended") is None:
            record = _lost(record)
        offset: int | None = args.get("offset")
        page = await self.pool.page(job_id, offset, args.get("limit", _PAGE_BYTES))
        if job is not None and job.result is None:
            record = {**record, "state": job.ending}
            return paged(job_id, record, page, asked=offset)
        self._note(runtime.thread_id, job_id)
        result = paged(job_id, record, page, asked=offset)
        return ToolResult(result.content, result.artifact, update={"jobs": {job_id: record}})

    def _known(self, runtime: ToolRuntime) -> Records:
        """Return the current records of a thread's jobs."""
        records = dict(_records(runtime.state))
        own = () if self._pool is None else self._pool.of(runtime.thread_id)
        for job_id in dict.fromkeys([*records, *(one.id for one in own)]):
            job = self._job(job_id)
            if job is not None:
                running = {"state": job.ending} if job.result is None else {}
                records[job_id] = {**record_of(job), **running}
            elif records[job_id].get("ended") is None:
                records[job_id] = _lost(records[job_id])
        return records

    def _job(self, job_id: str) -> Job | None:
        """Return a job of this process: of the thread, or of the one that it was copied from."""
        return None if self._pool is None else self._pool.get(job_id)

    def _note(self, thread_id: str, job_id: str) -> None:
        job = self._job(job_id)
        if job is not None and job.thread_id == thread_id:
            job.told = True


def _require_own(job: Job, runtime: ToolRuntime) -> None:
    """Raise `ToolError` if a job belongs to the thread that this one was copied from."""
    if job.thread_id != runtime.thread_id:
        raise ToolError(
            f"job did nothing: {job.id} belongs to the thread that this one was copied from, and "
            "only that thread can stop it. Here you can read its output and wait for it."
        )


def _records(state: State) -> Records:
    return cast(Records, state.get("jobs") or {})


def _lost(record: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {**record, "ended": _LOST}


def _notice(ended: Records) -> str:
    lines = ["[Notice from the system, not from the user: background jobs have ended.]"]
    for job_id, record in ended.items():
        read = call_text("job", action="output", job_id=job_id)
        lines.append(f"{job_id}: {record['ended']}. What it wrote: {read}")
    return "\n".join(lines)
