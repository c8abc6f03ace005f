"""Shell results, as text and as data."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from ...shell.session import CommandResult
from ...tools.tool import ToolResult

__all__ = ["LOST", "OUTPUT_SCHEMA", "closed", "ending_of", "opened", "result_of"]

LOST = "Its working directory, variables, functions and background processes are gone"
"""What goes with a shell."""

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
        result: What came of the command.
        output: What is shown of its output.
        output_file: Where the rest is, as the shell sees it.
        notices: What to know before reading the output.
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
    """Say how a command ended, and what it took with it.

    Args:
        result: What came of it.
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
    """Return a text whose last line ends, so that another one can follow."""
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
