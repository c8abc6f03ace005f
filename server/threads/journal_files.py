"""Journal files: check, copy and salvage the journal of a state directory."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue

from ...harness._internal import count_of
from ...harness.checkpoint.sqlite.salvage import (
    SalvagedThread,
    backup_journal,
    check_journal,
    salvage_journal,
)
from ..results import Answer
from ..settings.settings import Settings
from ..settings.state_dir import StateDir, StateDirError
from .journals import journal_alone, keys_of

if TYPE_CHECKING:
    from ...harness.checkpoint.keyring import Keyring

__all__ = ["backup", "check", "salvage"]

_NEXT = (
    "Stop the servers, then `deep-agent-mcp journal salvage NEWFILE` saves what can be read, and "
    "says what is lost. Or restore a backup."
)


async def check(settings: Settings) -> Answer:
    """Check the journal for damage, and return the result.

    Raises:
        StateDirError: There is no journal.
        HarnessError: It is no journal, or the settings' keys do not fit it.
    """
    path = _journal(settings)
    report = await check_journal(path, keys=_keys(settings))
    sound = not report.problems
    content = f"{count_of(report.threads, 'thread')} and {count_of(report.steps, 'step')}"
    lines = [
        f"{path} is sound: {content}."
        if sound
        else f"{path} is damaged. What can be read whole: {content}."
    ]
    lines += [f"- {one}" for one in report.problems]
    data: dict[str, JsonValue] = {
        "path": str(path),
        "sound": sound,
        "threads": report.threads,
        "steps": report.steps,
        "problems": [*report.problems],
    }
    if not sound:
        lines.append(_NEXT)
        data["next"] = _NEXT
    return Answer("\n".join(lines), data, failed=not sound)


async def backup(settings: Settings, target: Path) -> Answer:
    """Copy the journal to a new file, while servers may use it.

    Raises:
        StateDirError: There is no journal.
        HarnessError: The file exists or cannot be written, the journal is damaged, or the
            settings' keys do not fit it.
    """
    path = _journal(settings)
    size = await backup_journal(path, target, keys=_keys(settings))
    return Answer(
        f"{path} was copied to {target} ({size:,} bytes). Only you can read it.",
        {"path": str(path), "file": str(target), "bytes": size},
    )


async def salvage(settings: Settings, target: Path) -> Answer:
    """Save the readable parts of the journal to a new file, and return a summary.

    Raises:
        StateDirError: There is no journal, or somebody uses the state directory.
        HarnessError: A server with another state directory uses the journal, the file exists or
            cannot be written, or the journal is of another version.
    """
    path = _journal(settings)
    async with journal_alone(settings):
        threads = await salvage_journal(path, target, keys=_keys(settings))
    following = (
        f"{path} was not changed. To continue with {target}: move {path} and its -wal and -shm "
        f"files away, and move {target} there."
    )
    lines = [f"What can be read of {path} is in {target}:", *map(_line, threads)]
    if not threads:
        lines.append("- no thread could be read")
    return Answer(
        "\n".join([*lines, following]),
        {
            "path": str(path),
            "file": str(target),
            "threads": [cast("JsonValue", asdict(one)) for one in threads],
            "next": following,
        },
    )


def _line(one: SalvagedThread) -> str:
    lost = ", ".join(f"{kind}: {count}" for kind, count in one.lost.items() if count)
    if not one.saved:
        return f"- {one.thread_id}: lost ({one.problem})"
    if not lost:
        return f"- {one.thread_id}: saved whole, steps: {one.steps}"
    place = f"up to {one.head}, " if one.head else ""
    return f"- {one.thread_id}: saved {place}steps: {one.steps}; lost {lost} ({one.problem})"


def _journal(settings: Settings) -> Path:
    path = StateDir(settings.state_dir).journal
    if settings.journal is not None:
        from .journal_places import journal_file, journal_name

        file = journal_file(settings)
        if file is None:
            raise StateDirError(
                f"the journal is {journal_name(settings)}, not a file; nothing was done. Back it "
                "up and check it with the tools of that database; `deep-agent-mcp threads export` "
                "saves single threads."
            )
        path = file
    if not path.exists():
        raise StateDirError(
            f"there is no journal in {settings.state_dir}; nothing was done. Name the directory of "
            "the server with --state-dir DIR or DEEP_AGENT_STATE_DIR."
        )
    return path


def _keys(settings: Settings) -> Keyring | None:
    return None if settings.journal_key is None else keys_of(settings)
