"""Session pool: one shell session for each agent of a run, opened on first use."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.to_thread

from .policies import Layout
from .session import ShellSession

__all__ = ["Key", "Seat", "SessionPool"]

Key: TypeAlias = tuple[str, str]
"""A run and the namespace of an agent in it."""

_MOST_SEATS = 256


class Seat:
    """The place of one agent's session, whether or not one is open.

    Attributes:
        session: The open session, if there is one; it may have ended.
        users: Calls that use it or wait for their turn.
        lock: Held by the current call; calls take turns in their order.
        layout: The layout of the open session; None if it has a directory instead.
        replaced: Whether the session replaced one with a different layout.

    Args:
        root: The working directory of its shells; None for a temporary one.
    """

    def __init__(self, root: Path | None) -> None:
        self.session: ShellSession | None = None
        self.users = 0
        self.lock = anyio.Lock()
        self.layout: Layout | None = None
        self.replaced = False
        self._root = root
        self._workspace: Path | None = None

    async def workspace(self) -> Path:
        """Return the working directory of its shells, created if missing.

        Raises:
            OSError: It cannot be made.
        """
        if self._workspace is None:
            self._workspace = await anyio.to_thread.run_sync(_made, self._root)
        return self._workspace

    @property
    def alive(self) -> bool:
        """Whether there is an open session that accepts commands."""
        return self.session is not None and self.session.alive

    async def leave(self, commands: Sequence[str] = ()) -> None:
        """End the session; see `ShellSession.close`."""
        session, self.session = self.session, None
        if session is not None:
            await session.close(commands)

    async def clear(self) -> None:
        """Remove the workspace, if it was made for the session."""
        if self._root is None and self._workspace is not None:
            remove = partial(shutil.rmtree, self._workspace, ignore_errors=True)
            await anyio.to_thread.run_sync(remove)


class SessionPool:
    """Sessions by run and agent.

    Args:
        open_session: Opens a shell in the directory or the layout of a seat.
        root: The directory of all sessions; None for a temporary one for each.
        shutdown_commands: Commands that sessions run before they are closed normally.
    """

    def __init__(
        self,
        open_session: Callable[[Seat], Awaitable[ShellSession]],
        root: Path | None,
        shutdown_commands: Sequence[str],
    ) -> None:
        self._open_session = open_session
        self._root = root
        self._shutdown_commands = shutdown_commands
        self._seats: dict[Key, Seat] = {}

    @asynccontextmanager
    async def turn(
        self,
        key: Key,
        *,
        restart: bool = False,
        look: Callable[[], Awaitable[Layout]] | None = None,
    ) -> AsyncGenerator[tuple[Seat, bool]]:
        """Wait for this call's turn on a session; yield its seat, and whether the session is new.

        Args:
            key: Whose session.
            restart: Open a new one in any case.
            look: Returns the required layout, called at this call's turn, because earlier calls may
                create files that must be guarded. A session with a different layout is replaced.

        Raises:
            ShellError: The session could not be opened.
            OSError: There is no workspace.
        """
        while True:
            seat = self._seats.setdefault(key, Seat(self._root))
            seat.users += 1
            try:
                async with seat.lock:
                    if self._seats.get(key) is seat:  # else it was closed in the meantime
                        yield seat, await self._ready(seat, restart, look)
                        return
            finally:
                seat.users -= 1

    async def _ready(
        self, seat: Seat, restart: bool, look: Callable[[], Awaitable[Layout]] | None
    ) -> bool:
        """Open a session if necessary; return whether it is new."""
        layout = None if look is None else await look()
        seat.replaced = seat.alive and seat.layout != layout
        if seat.alive and not restart and not seat.replaced:
            return False
        await seat.leave()
        await self._prune()
        seat.layout = layout
        seat.session = await self._open_session(seat)
        return True

    def users(self, key: Key) -> int:
        """Return how many calls use a session or wait for it."""
        seat = self._seats.get(key)
        return seat.users if seat is not None else 0

    async def close(self, key: Key, *, orderly: bool = True) -> None:
        """End the session of an agent, and those of its subagents that failed.

        Args:
            key: Whose.
            orderly: Run the shutdown commands. Otherwise a running command is ended, too.
        """
        run_id, ns = key
        below = f"{ns}/" if ns else ""
        for one in list(self._seats):
            if one == key or (one[0] == run_id and one[1].startswith(below)):
                await self._close(one, orderly=orderly)

    async def _close(self, key: Key, *, orderly: bool) -> None:
        seat = self._seats.pop(key, None)
        if seat is None:
            return
        with anyio.CancelScope(shield=True):
            if not orderly and seat.session is not None:
                seat.session.hang_up()
            async with seat.lock:
                await seat.leave(self._shutdown_commands if orderly else ())
                await seat.clear()

    async def aclose(self) -> None:
        """End all sessions: those in use at once, the others normally."""
        async with anyio.create_task_group() as group:
            for key, seat in list(self._seats.items()):
                group.start_soon(partial(self._close, key, orderly=not seat.users))

    async def _prune(self) -> None:
        """Forget sessions that have ended in the meantime, and the oldest idle ones of too many."""
        for key, seat in list(self._seats.items()):
            surplus = len(self._seats) > _MOST_SEATS
            if not seat.users and (surplus or not seat.alive):
                await self._close(key, orderly=True)


def _made(root: Path | None) -> Path:
    if root is None:
        return Path(tempfile.mkdtemp(prefix="shell-")).resolve()
    root.mkdir(parents=True, exist_ok=True)
    return root
