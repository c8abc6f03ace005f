"""Three-way merge: merges a background task's changes of files into its caller's thread.

Three states of each file decide: when the task got it, when the task left it, and in the thread
now. A file that the thread has changed meanwhile is not overwritten.

The digests of the files that a task got are in its own state (`MergeBase`). Its first checkpoint
contains the files, but history can be pruned; the newest state cannot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field
from hashlib import blake2b
from typing import Annotated, NotRequired, TypedDict, cast

from ..._internal.records import record
from ...backends.state import FileData, same_content
from ...checkpoint.base import step_id, turn_step_id
from ...loop.hooks.middleware import AgentMiddleware
from ...loop.hooks.requests import HookResult, Runtime
from ...state.channels import Mark, Reducer, State, merge_keys
from .engine import parent_thread

__all__ = ["MergeBase", "MergeBaseState", "MergeResult", "base_of", "digest", "merge_changes"]

_SHOWN = 20

Files = Mapping[str, FileData]


@record
class MergeResult:
    """Result of a merge.

    Attributes:
        folder: Where the task's versions of conflicting files are.
        blind: Whether it is unknown what the task has changed.
        writes: Writes for the thread's `files`; None deletes.
        taken: Paths whose new content, or deletion, was accepted.
        kept: Path of each file that both changed, with the path of the task's version; None if the
            task deleted it. The thread's version stays at its path.
    """

    folder: str
    blind: bool = False
    writes: dict[str, FileData | None] = field(default_factory=dict[str, FileData | None])
    taken: list[str] = field(default_factory=list[str])
    kept: dict[str, str | None] = field(default_factory=dict[str, str | None])

    def describe(self, task_id: str) -> str:
        """Return a text about the merge for the model; empty if nothing was merged."""
        if self.blind:
            return self._described_blind(task_id)
        lines: list[str] = []
        if self.taken:
            lines.append(f"Files of {task_id} are here now: {_listed(self.taken)}.")
        for path, aside in list(self.kept.items())[:_SHOWN]:
            what = f"its version is in {aside}" if aside else f"{task_id} deleted it"
            lines.append(f"{path} was changed here too, so it stays as it is; {what}.")
        if len(self.kept) > _SHOWN:
            lines.append(f"So do {len(self.kept) - _SHOWN} more.")
        return " ".join(lines)

    def _described_blind(self, task_id: str) -> str:
        if not self.kept:
            return ""
        return (
            f"It is not known any more which files {task_id} has changed, so yours stay as they "
            f"are. Its versions that differ are below {self.folder}: {_listed([*self.kept])}."
        )


def merge_changes(
    base: Mapping[str, str] | None, child: Files, own: Files, folder: str
) -> MergeResult:
    """Merge the files, in time about linear in their number.

    Args:
        base: Digests of the files that the task got. None if unknown: then no file is changed or
            deleted, and all files that differ are put into `folder`.
        child: The files as the task left them.
        own: The files of the thread now.
        folder: Directory for the task's version of files that both changed, such as
            `/conflicts/task-1f`.
    """
    merged = MergeResult(folder, blind=base is None)
    present = _Tree(own)
    both: list[str] = []
    # Deletions come first, because they can make room.
    for path in sorted({*(base or ()), *child}, key=lambda path: (path in child, path)):
        wanted, here = child.get(path), present.files.get(path)
        if same_content(wanted, here):
            continue
        if base is None:
            both.append(path)
            continue
        given = base.get(path)
        if _is(wanted, given):
            continue
        if _is(here, given) and (wanted is None or not present.in_the_way(path)):
            _put(merged, present, path, wanted)
            merged.taken.append(path)
        else:
            both.append(path)
    for path in both:  # after all others, so that no path is used twice
        wanted = child.get(path)
        if wanted is None:
            merged.kept[path] = None
            continue
        aside = _aside(folder, path, wanted, present)
        if not same_content(present.files.get(aside), wanted):
            _put(merged, present, aside, wanted)
        merged.kept[path] = aside
    return merged


class _Tree:
    """Files, and how many are below each directory."""

    def __init__(self, files: Files) -> None:
        self.files = dict(files)
        self._below = Counter(above for path in files for above in _above(path))

    def put(self, path: str, file: FileData | None) -> None:
        if (path in self.files) != (file is not None):
            step = -1 if file is None else 1
            for above in _above(path):
                self._below[above] += step
        if file is None:
            self.files.pop(path, None)
        else:
            self.files[path] = file

    def in_the_way(self, path: str) -> bool:
        """Whether a file is in the place of a directory, or the other way round."""
        return self._below[path] > 0 or any(one in self.files for one in _above(path))


def _above(path: str) -> Iterator[str]:
    """Yield the directories above a file, without the root."""
    end = path.rfind("/")
    while end > 0:
        yield path[:end]
        end = path.rfind("/", 0, end)


def _listed(paths: list[str]) -> str:
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(paths[:_SHOWN]) + more


def _put(merged: MergeResult, present: _Tree, path: str, file: FileData | None) -> None:
    merged.writes[path] = file
    present.put(path, file)


def _is(file: FileData | None, given: str | None) -> bool:
    """Whether a file matches a digest; None means no file."""
    if file is None or given is None:
        return file is None and given is None
    return digest(file) == given


def _aside(folder: str, path: str, file: FileData, present: _Tree) -> str:
    """Return a free path for the file, or the path where it already is."""
    top, _, below = folder.strip("/").partition("/")
    number = 1
    while True:
        first = top if number == 1 else f"{top}-{number}"
        place = f"/{first}/{below}{path}"
        free = place not in present.files and not present.in_the_way(place)
        if free or same_content(present.files.get(place), file):
            return place
        number += 1


Given = dict[str, dict[str, str | None]]


class MergeBaseState(TypedDict):
    """The files at the start of each run of a task, oldest first.

    Digests by path, for each run's first checkpoint, as far as they differ from the run before;
    None for a file that is gone.
    """

    files_given: Annotated[
        NotRequired[Given], Reducer(merge_keys, default=dict), Mark.OMIT_FROM_INPUT, Mark.CONTROL
    ]


class MergeBase(AgentMiddleware):
    """Stores digests of the files whenever a task starts or continues."""

    state_schema = MergeBaseState

    async def before_agent(self, state: State, runtime: Runtime) -> HookResult:
        """Store them, once for each run."""
        if runtime.ns or parent_thread(runtime.thread_id) is None or "files" not in state:
            return None
        known = _folded(_given(state))
        files = cast(Mapping[str, FileData], state["files"])
        now = {path: digest(file) for path, file in files.items()}
        changed = {path: one for path, one in now.items() if known.get(path) != one}
        gone = {path: None for path in known if path not in now}
        return {"files_given": {runtime.checkpoint_id or "": {**changed, **gone}}}


def base_of(state: State, thread_id: str, checkpoint_id: str) -> Mapping[str, str] | None:
    """Return digests of the files of a task as its caller last saw them.

    Args:
        state: The task's newest state.
        thread_id: The task's thread.
        checkpoint_id: The task's first checkpoint, or a later one at which it ended.

    Returns:
        None if the task does not know.
    """
    given = _given(state)
    went_on = turn_step_id(checkpoint_id, thread_id)  # the run that continued from there
    for key in (checkpoint_id, went_on, step_id(checkpoint_id)):  # the last is from older versions
        if key in given:
            runs = [*given]
            return _folded({run: given[run] for run in runs[: runs.index(key) + 1]})
    return None


def digest(file: FileData) -> str:
    """Return a digest of the content of a file."""
    text = f"{file.encoding}\0{file.content}"
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _given(state: State) -> Given:
    return cast(Given, state.get("files_given") or {})


def _folded(given: Given) -> dict[str, str]:
    merged: dict[str, str | None] = {}
    for changes in given.values():
        merged.update(changes)
    return {path: one for path, one in merged.items() if one is not None}
