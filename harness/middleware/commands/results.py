"""Command results of `execute`, jobs and a shell, as text and as data."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from pydantic import JsonValue

from ..._internal import in_file_name
from ..._internal.records import record
from ...backends.base import Backend, FileError, artifact_path
from ...backends.file_tools.pages import call_text
from ...shell.jobs import Job, JobPage
from ...shell.output import Preview, shown, whole_characters, whole_lines
from ...shell.session import CommandResult
from ...tools.tool import ToolResult, ToolRuntime

__all__ = [
    "EXECUTE_SCHEMA",
    "JOB_SCHEMA",
    "LOST",
    "OUTPUT_SCHEMA",
    "Kept",
    "closed",
    "ending_of",
    "ending_text",
    "finished",
    "keep_output",
    "listed",
    "opened",
    "paged",
    "record_of",
    "result_of",
    "started",
]


LOST = "Its working directory, variables, functions and background processes are gone"
"""What is lost when a shell ends, for notices."""

OUTPUT_SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {
        "output": {"type": "string"},
        "exit_code": {"type": ["integer", "null"]},
        "timed_out": {"type": "boolean"},
        "shell_ended": {"type": "boolean"},
        "new_shell": {"type": "boolean"},
        "output_file": {"type": ["string", "null"]},
        "notes": {"type": "array", "items": {"type": "string"}},
        "seconds": {"type": "number"},
    },
    "required": ["output", "exit_code", "timed_out", "shell_ended", "new_shell", "notes"],
}


def result_of(
    result: CommandResult,
    output: str,
    output_file: str | None,
    notices: Sequence[str],
    ending: str,
    *,
    fresh: bool,
) -> ToolResult:
    """Return the result of a call.

    Args:
        result: The result of the command.
        output: The shown part of its output.
        output_file: The file with the rest, as the shell sees it.
        notices: Notices before the output.
        ending: How it ended.
        fresh: Whether the shell was opened for this call.
    """
    lines = (_bracketed(notices), output.removesuffix("\n"), _bracketed([ending]))
    return ToolResult(
        "\n".join(one for one in lines if one),
        artifact=_facts(output, (*notices, ending), result, output_file, fresh=fresh),
        status="success" if result.succeeded else "error",
    )


def opened(notices: Sequence[str]) -> ToolResult:
    """Return the result of a call that only opened a shell."""
    return ToolResult(_bracketed(notices), artifact=_facts("", notices, None, None, fresh=True))


def ending_of(result: CommandResult, *, startup: bool) -> str:
    """Describe how a command ended, and what ended with it.

    Args:
        result: The result of the command.
        startup: Whether new shells run startup commands.
    """
    if result.ending == "done":
        return f"exit code {result.exit_code}"
    again = ", which begins with the startup commands" if startup else ""
    next_one = f"{LOST}. The next command gets a new shell{again}."
    if result.passed:
        return (
            f"The command was stopped after {result.seconds:.1f} s, and the shell with it: "
            f"{result.passed}. {next_one}"
        )
    if result.ending == "timeout":
        return (
            f"The command was stopped after {result.seconds:.1f} s, and the shell with it; what it "
            f"wrote until then is above. {next_one}"
        )
    return (
        f"exit code {result.exit_code}: the shell itself ended, as exit, exec, a failure under "
        f"set -e, or a signal make it do. {next_one}"
    )


def closed(text: str) -> str:
    """Return a text that ends with a line end, so that another text can follow."""
    return text if not text or text.endswith("\n") else f"{text}\n"


def _bracketed(notes: Sequence[str]) -> str:
    return "\n".join(f"[{one}]" for one in notes)


def _facts(
    output: str,
    notes: Sequence[str],
    result: CommandResult | None,
    output_file: str | None,
    *,
    fresh: bool,
) -> dict[str, JsonValue]:
    return {
        "output": output,
        "exit_code": result.exit_code if result else None,
        "timed_out": result is not None and result.ending == "timeout",
        "shell_ended": result is not None and result.ending != "done",
        "new_shell": fresh,
        "output_file": output_file,
        "notes": list(notes),
        "seconds": round(result.seconds, 3) if result else 0,
    }


EXECUTE_SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {
        "output": {"type": "string"},
        "exit_code": {"type": ["integer", "null"]},
        "timed_out": {"type": "boolean"},
        "seconds": {"type": "number"},
        "output_file": {"type": ["string", "null"]},
        "job_id": {"type": ["string", "null"]},
        "network": {"type": "boolean"},
        "notes": {"type": "array", "items": {"type": "string"}},
        "changed_files": {"type": ["array", "null"], "items": {"type": "object"}},
    },
    "required": ["output", "exit_code", "timed_out", "seconds", "network", "notes"],
}

JOB_SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {
        "jobs": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "job_id": {"type": "string"},
                    "command": {"type": "string"},
                    "state": {"type": "string"},
                    "running": {"type": "boolean"},
                    "exit_code": {"type": ["integer", "null"]},
                },
                "required": ["job_id", "command", "state", "running", "exit_code"],
            },
        },
        "output": {"type": "string"},
        "offset": {"type": "integer"},
        "next_offset": {"type": "integer"},
        "size": {"type": "integer"},
    },
    "required": ["jobs"],
}


@record
class Kept:
    """The file with the whole output, if only a part is shown.

    Attributes:
        path: Its path for file tools, or None if it could not be kept.
        where: A text about that.
        update: State writes for it.
    """

    path: str | None = None
    where: str = ""
    update: Mapping[str, Any] = field(default_factory=dict[str, Any])


async def keep_output(
    backend: Backend, runtime: ToolRuntime, data: bytes, most: int, *, whole: bool
) -> Kept:
    """Write an output to the directory of evicted results.

    Args:
        backend: The backend of the files.
        runtime: The call's runtime.
        data: The output from its beginning.
        most: The most bytes to keep.
        whole: Whether the data is the whole output.
    """
    name = f"{in_file_name(runtime.tool_call_id, 60)}_{secrets.token_hex(4)}.txt"
    path = f"{artifact_path(backend, 'large_tool_results')}/{name}"
    files = backend.open(runtime)
    try:
        await files.write(path, data[:most])
    except (FileError, OSError) as error:
        return Kept(None, f"it could not be kept: {error}")
    what = "all of it is" if whole and len(data) <= most else f"the first {most >> 10} KiB are"
    return Kept(path, f"{what} in {path}", files.update())


def ending_text(result: CommandResult) -> str:
    """Describe how a command ended."""
    if result.passed:
        return f"The command was stopped after {result.seconds:.1f} s: {result.passed}"
    if result.ending == "timeout":
        return (
            f"The command was stopped after {result.seconds:.1f} s; what it wrote until then is "
            "above. Give it more time with `timeout`, or start it with `background`"
        )
    return f"exit code {result.exit_code}, {result.seconds:.1f} s"


def finished(
    result: CommandResult,
    shown: Preview,
    kept: Kept,
    notes: Sequence[str],
    changed: list[JsonValue] | None = None,
    *,
    network: bool,
) -> ToolResult:
    """Return the result of a command that ran; of `changed` see `changed_files`."""
    left_out = ""
    if shown.kept is not None:
        left_out = f"[… {shown.lines} lines, {shown.size} bytes left out; {kept.where} …]\n"
    output = f"{closed(shown.head)}{left_out}{shown.tail}"
    told = (*notes, ending_text(result))
    text = "\n".join(one for one in (output.removesuffix("\n"), _bracketed(told)) if one)
    artifact: dict[str, JsonValue] = {
        "output": output,
        "exit_code": result.exit_code,
        "timed_out": result.ending == "timeout" and not result.passed,
        "seconds": round(result.seconds, 3),
        "output_file": kept.path,
        "job_id": None,
        "network": network,
        "notes": list(told),
        "changed_files": changed,
    }
    ended_by_itself = result.ending in ("done", "ended") and not result.passed
    good = ended_by_itself and result.exit_code == 0
    return ToolResult(text, artifact, "success" if good else "error", kept.update)


def started(job: Job, notes: Sequence[str], *, network: bool) -> ToolResult:
    """Return the result of a command that was started in the background."""
    told = [
        *notes,
        f"Job {job.id} was started. It continues after this call; you are notified when it ends. "
        f"Read what it writes with {call_text('job', action='output', job_id=job.id)}",
    ]
    artifact: dict[str, JsonValue] = {
        "output": "",
        "exit_code": None,
        "timed_out": False,
        "seconds": 0.0,
        "output_file": None,
        "job_id": job.id,
        "network": network,
        "notes": [*told],
    }
    return ToolResult(_bracketed(told), artifact, update={"jobs": {job.id: record_of(job)}})


def record_of(job: Job) -> dict[str, JsonValue]:
    """Return the thread's record of a job."""
    ended = None if job.result is None else job.ending
    code = None if job.result is None else job.result.exit_code
    return {"command": job.command, "began": job.began, "ended": ended, "exit_code": code}


def listed(records: Mapping[str, Mapping[str, JsonValue]]) -> ToolResult:
    """Return the list of a thread's jobs."""
    lines = [f"{name}: {_state(one)}: {_short(one)}" for name, one in records.items()]
    return ToolResult("\n".join(lines) or "There are no jobs.", {"jobs": _job_facts(records)})


def paged(
    job_id: str, record: Mapping[str, JsonValue], page: JobPage | None, *, asked: int | None
) -> ToolResult:
    """Return a part of a job's output, with the job's status."""
    facts: dict[str, JsonValue] = {"jobs": _job_facts({job_id: record})}
    state = f"{job_id}: {_state(record)}"
    if page is None:
        return ToolResult(f"[{state}. Its output is no longer there.]", facts)
    data = page.data
    begun = page.offset
    if asked is None and begun:  # from the first complete line
        rest = whole_lines(data)
        data, begun = rest, begun + len(data) - len(rest)
    if begun + len(data) < page.size:
        data = whole_characters(data)
    after = begun + len(data)
    output = shown(data.decode("utf-8", "replace"))
    where = f"bytes {begun} to {after} of {page.size}" if page.size else "no output yet"
    if record.get("ended") is not None and not page.size:
        where = "it wrote nothing"
    if after < page.size:
        following = call_text("job", action="output", job_id=job_id, offset=after)
        where += f"; continue with {following}"
    elif asked is None and begun:
        before = call_text("job", action="output", job_id=job_id, offset=0)
        where += f"; the beginning: {before}"
    note = f"[{state}; {where}]"
    text = f"{output.removesuffix(chr(10))}\n{note}" if output else note
    facts |= {"output": output, "offset": begun, "next_offset": after, "size": page.size}
    return ToolResult(text, facts)


def _job_facts(records: Mapping[str, Mapping[str, JsonValue]]) -> JsonValue:
    return [
        {
            "job_id": name,
            "command": one["command"],
            "state": _state(one),
            "running": one.get("ended") is None,
            "exit_code": one.get("exit_code"),
        }
        for name, one in records.items()
    ]


def _state(record: Mapping[str, JsonValue]) -> str:
    ended = record.get("ended")
    return str(ended if ended is not None else record.get("state", "running"))


def _short(record: Mapping[str, JsonValue]) -> str:
    line = " ".join(str(record["command"]).split())
    return line if len(line) <= 80 else f"{line[:79]}…"
