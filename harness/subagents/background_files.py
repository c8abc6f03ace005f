"""Brings what a background task did to its copy of the files into the thread that started it.

Three states of each file decide: what it was when the task began, what the task made of it, and
what it is in the thread now. Nothing is overwritten that the thread has changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.backends.state import FileData

__all__ = ["MergedFiles", "merge_changes"]

_SHOWN = 20

Files = Mapping[str, FileData]


@dataclass(frozen=True, slots=True)
class MergedFiles:
    """What comes of a merge.

    Attributes:
        writes: For the thread's `files`; None deletes.
        taken: Paths whose new content, or deletion, was taken over.
        kept: Path of each file that both changed, with the path under which the task's version is
            kept; None if the task deleted it. The thread's own version stays in its place.
    """

    writes: dict[str, FileData | None] = field(default_factory=dict[str, FileData | None])
    taken: list[str] = field(default_factory=list[str])
    kept: dict[str, str | None] = field(default_factory=dict[str, str | None])

    def describe(self, task_id: str) -> str:
        """Say what happened, for the model; empty if nothing did."""
        lines: list[str] = []
        if self.taken:
            shown = ", ".join(self.taken[:_SHOWN]) + _more(len(self.taken))
            lines.append(f"Files of {task_id} are here now: {shown}.")
        for path, aside in list(self.kept.items())[:_SHOWN]:
            what = f"its version is in {aside}" if aside else f"{task_id} deleted it"
            lines.append(f"{path} was changed here too, so it stays as it is; {what}.")
        if len(self.kept) > _SHOWN:
            lines.append(f"So do {len(self.kept) - _SHOWN} more.")
        return " ".join(lines)


def merge_changes(base: Files, child: Files, own: Files, folder: str) -> MergedFiles:
    """Return what the thread's files become.

    Args:
        base: The files as the task got them.
        child: The files as the task left them.
        own: The files of the thread now.
        folder: Where the task's version of files goes that both changed, such as
            `/conflicts/task-1f`.
    """
    merged = MergedFiles()
    present = dict(own)
    both: list[str] = []
    for path in sorted({*base, *child}):
        wanted = child.get(path)
        if _same(wanted, base.get(path)) or _same(wanted, present.get(path)):
            continue
        fits = wanted is None or not _in_the_way(path, present)
        if _same(present.get(path), base.get(path)) and fits:
            _put(merged, present, path, wanted)
            merged.taken.append(path)
        else:
            both.append(path)
    for path in both:  # after all others, so that nothing is put where something else comes or goes
        wanted = child.get(path)
        if wanted is None:
            merged.kept[path] = None
            continue
        aside = _aside(folder, path, wanted, present)
        if not _same(present.get(aside), wanted):
            _put(merged, present, aside, wanted)
        merged.kept[path] = aside
    return merged


def _more(count: int) -> str:
    return f" and {count - _SHOWN} more" if count > _SHOWN else ""


def _put(
    merged: MergedFiles, present: dict[str, FileData], path: str, file: FileData | None
) -> None:
    merged.writes[path] = file
    if file is None:
        present.pop(path, None)
    else:
        present[path] = file


def _same(one: FileData | None, other: FileData | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.content, one.encoding) == (other.content, other.encoding)


def _in_the_way(path: str, files: Files) -> bool:
    """Whether a file stands where a directory must be, or the other way round."""
    parts = path.split("/")
    above = ("/".join(parts[:end]) for end in range(2, len(parts)))
    below = path + "/"
    return any(one in files for one in above) or any(one.startswith(below) for one in files)


def _aside(folder: str, path: str, file: FileData, files: Files) -> str:
    """Return a path where the file is already, or may be put."""
    top, _, below = folder.strip("/").partition("/")
    number = 1
    while True:
        first = top if number == 1 else f"{top}-{number}"
        place = f"/{first}/{below}{path}"
        free = place not in files and not _in_the_way(place, files)
        if free or _same(files.get(place), file):
            return place
        number += 1
