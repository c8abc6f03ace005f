"""Putting files back: from recorded changes to the contents before them.

A change is recorded before it is made, so a crash can leave a record of a change that never
happened. Such a record is recognised (the file is still as it was before) and does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from ..._internal.records import record
from ...checkpoint.base import FileChange
from ...errors import ToolError
from ..base import FileError
from .tree import Present, Tree

__all__ = ["Undo", "apply", "plan"]


@record
class Undo:
    """One file to put back: what is there now, and the content it had (None: it did not exist)."""

    present: Present
    target: bytes | None


def plan(tree: Tree, changes: Sequence[FileChange], limit: int, force: bool) -> list[Undo]:
    """Return what to do to undo `changes`, given newest first.

    Raises:
        FileError: `changed`, naming every file that somebody else changed, unless `force`.
    """
    by_path: dict[str, list[FileChange]] = {}
    for change in changes:
        by_path.setdefault(change.path, []).append(change)
    steps: list[Undo] = []
    foreign: list[str] = []
    for path, history in by_path.items():
        try:
            present = tree.present(path, limit)
        except FileError as error:
            if error.code != "not_found":
                raise
            present = Present(path, None)
        if present.path != path or not _ours(present.data, history):
            foreign.append(path)
        if history[-1].before != present.data:
            steps.append(Undo(Present(path, present.data), history[-1].before))
    if foreign and not force:
        raise FileError(
            "changed",
            foreign[0],
            f"somebody else changed {', '.join(foreign)} since this thread did. Nothing was put "
            "back. To put the files back anyway, losing those changes, repeat with force.",
        )
    return steps


def _ours(present: bytes | None, history: Sequence[FileChange]) -> bool:
    """Whether nobody else's content is in the chain from the file now to the oldest change."""
    current = _digest(present)
    for change in history:
        before = _digest(change.before)
        if current not in (change.after_digest, before):
            return False
        current = before
    return True


def _digest(data: bytes | None) -> str | None:
    return None if data is None else sha256(data).hexdigest()


def apply(tree: Tree, steps: Sequence[Undo]) -> list[str]:
    """Put the files back and return their paths.

    Raises:
        ToolError: One could not be put back; the text says which were.
    """
    done: list[str] = []
    for step in steps:
        try:
            if step.target is None:
                tree.remove(step.present)
            else:
                tree.replace(step.present, step.target)
        except ToolError as error:
            raise ToolError(
                f"{error} Put back before that: {', '.join(done) or 'nothing'}."
            ) from error
        done.append(step.present.path)
    return done
