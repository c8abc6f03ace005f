"""Redis committer: sends the commits of a process together, each as an atomic step of its own.

Of all who wait, one sends what is queued; what the others queue meanwhile is the next group.
Commits that wait for the server's disk have a queue of their own, so that they hold up no others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import anyio

from ...errors import CheckpointError
from ..base import Batch
from .batches import refusal
from .connections import Server, ServerFailed, Session
from .scripts import COMMIT, Argument

__all__ = ["Commits", "write_failed"]

_GROUP = 128
_GROUP_BYTES = 4_194_304


class _Commit:
    """A batch on its way to the server.

    Attributes:
        batch: The batch.
        arguments: As the script takes it.
        size: Bytes of the arguments.
        wanted: False once the caller is gone; a batch still queued then is dropped.
        finished: Whether its fate is decided.
        answered: Whether the server has said what became of it.
        error: Why it was refused.
    """

    __slots__ = ("answered", "arguments", "batch", "error", "finished", "size", "wanted")

    def __init__(self, batch: Batch, arguments: Sequence[Argument]) -> None:
        self.batch = batch
        self.arguments = arguments
        self.size = sum(len(one) for one in arguments if isinstance(one, bytes))
        self.wanted = True
        self.finished = False
        self.answered = False
        self.error: Exception | None = None


class Commits:
    """The queues.

    Args:
        server: Where the commits go.
        place: The journal, for errors.
        timeout: Seconds that the server's disk may take.
    """

    def __init__(self, server: Server, place: str, timeout: float) -> None:
        self._server = server
        self._place = place
        self._sync_ms = max(int(timeout * 500), 1)  # less than the connection waits
        self._queues: dict[bool, deque[_Commit]] = {True: deque(), False: deque()}
        self._rounds: dict[bool, anyio.Event] = {}

    async def commit(self, batch: Batch, arguments: Sequence[Argument], *, waits: bool) -> None:
        """Commit a batch.

        Args:
            batch: The batch.
            arguments: As the script takes it.
            waits: Whether to return only when it is on the server's disk.

        Raises:
            StaleThread: Somebody else moved the thread; nothing was stored.
            CheckpointError: It cannot be stored, or the server failed.
        """
        commit = _Commit(batch, arguments)
        self._queues[waits].append(commit)
        try:
            while not commit.finished:
                await self._round(waits)
        finally:
            commit.wanted = False
        if commit.error is not None:
            raise commit.error
        if not commit.answered:
            raise CheckpointError(
                f"a commit to {self._place} was given up, and it is not known whether it was "
                f"stored. Load the thread, then go on."
            )

    async def _round(self, waits: bool) -> None:
        """Have a queue committed, or wait until somebody else has."""
        others = self._rounds.get(waits)
        if others is not None:
            await others.wait()
            return
        done = self._rounds[waits] = anyio.Event()
        group: list[_Commit] = []
        try:
            async with self._server.session() as session:
                group = self._dequeue(waits)
                await self._send(session, group, waits)
                for commit in group:
                    commit.answered = True
        except ServerFailed as error:
            group = group or self._dequeue(waits)
            for commit in group:
                commit.error = commit.error or write_failed(self._place, error)
        finally:
            for commit in group:
                commit.finished = True
            del self._rounds[waits]
            done.set()

    async def _send(self, session: Session, group: Sequence[_Commit], waits: bool) -> None:
        """Commit a group, and have the server's disk wait for it if need be."""
        if not group:
            return
        replies = await session.run(*((COMMIT, commit.arguments) for commit in group))
        for commit, reply in zip(group, replies, strict=True):
            commit.error = self._refusal(commit.batch, reply)
        if waits:
            await self._wait_for_disk(session, [each for each in group if each.error is None])

    async def _wait_for_disk(self, session: Session, stored: Sequence[_Commit]) -> None:
        if not stored:
            return
        (reply,) = await session.exchange(("WAITAOF", 1, 0, self._sync_ms))
        if not isinstance(reply, list) or reply[0] != 1:
            for commit in stored:
                commit.error = CheckpointError(
                    f"{self._place} has stored a commit, but its disk did not confirm it: "
                    f"{reply!r:.80}. Every process sees it, a crash of the server may lose it; "
                    f"check the server's disk, load the thread, then go on."
                )

    def _refusal(self, batch: Batch, reply: Any) -> Exception | None:
        if reply == [b"stored"]:
            return None
        if not isinstance(reply, Exception):
            return refusal(batch, reply)
        said = str(reply).rstrip(".")
        outcome = "Nothing was stored; check the server, then try again"
        if "user_script" in said:  # in the middle of it
            outcome = "Its keys are damaged; restore a backup, or delete the thread"
        return CheckpointError(f"{self._place} could not be written: {said}. {outcome}.")

    def _dequeue(self, waits: bool) -> list[_Commit]:
        queue, group, size = self._queues[waits], list[_Commit](), 0
        while queue and len(group) < _GROUP and size < _GROUP_BYTES:
            commit = queue.popleft()
            if commit.wanted:
                group.append(commit)
                size += commit.size
        return group


def write_failed(place: str, error: ServerFailed) -> CheckpointError:
    """Return the error for a write during which the server failed."""
    outcome = "Nothing was stored; check the server, then try again"
    if error.sent:
        outcome = "It is not known whether it was stored; load the thread, then go on"
    return CheckpointError(f"{place} could not be written: {error}. {outcome}.")
