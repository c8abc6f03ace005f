"""State directory: data that must survive a server, and how servers find each other in it.

Several servers may share one directory (a host starts one per session). Each holds a lock on a file
named after its id for as long as it lives, and the operating system releases the lock when the
process ends in any way. So any server can continue a run whose `owner` is no longer alive. Work
that needs the directory exclusively uses the same locks to detect others, and to keep them out.
"""

from __future__ import annotations

import codecs
import os
import secrets
import shlex
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path

from ...harness._internal.records import record

__all__ = ["StateDir", "StateDirError", "read_private_file"]


ALONE_SECONDS = 1.0
"""How long to wait for a process with exclusive access to the directory."""

_IN_USE = (
    "a server or another command uses the state directory {path}; nothing was done. Stop the "
    "server (hosts start one for each session: close them), and try again."
)
_NOT_STARTED = (
    "the journal in {path} is being sealed or unsealed; nothing was done. Try again when that "
    "command has ended."
)


class StateDirError(Exception):
    """The state directory cannot be used; the text says why and what to do."""


@record
class StateDir:
    """Names and locks inside a state directory. Make one with `StateDir.open`.

    Attributes:
        path: The directory.
        killed: Servers that ended abnormally, as far as this process has noticed.
    """

    path: Path
    killed: set[str] = field(default_factory=set[str])

    @classmethod
    def open(cls, path: Path) -> StateDir:
        """Create the directory, private to this user, if it is missing.

        Raises:
            StateDirError: It cannot be made or written.
        """
        state = cls(path)
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            state._servers.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StateDirError(_unusable(path, error.strerror or str(error))) from error
        if not os.access(state._servers, os.W_OK | os.X_OK):
            raise StateDirError(_unusable(path, "no permission to write"))
        return state

    @property
    def journal(self) -> Path:
        """The SQLite file of the checkpoint journal."""
        return self.path / "journal.sqlite3"

    def key(self, name: str) -> bytes:
        """Return the key in a file with that name, created once, so that restarts keep it.

        The file is created atomically, so that servers that start together agree on the key.
        """
        path = self.path / name
        if not path.exists():
            own = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
            descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(32))
            with suppress(FileExistsError):
                os.link(own, path)
            own.unlink()
        return path.read_bytes()

    @property
    def _servers(self) -> Path:
        return self.path / "servers"

    @contextmanager
    def claim(self) -> Generator[str]:
        """Register as a server: yield its id, which others see as alive until the exit.

        Raises:
            StateDirError: Another process has exclusive access to the directory.
        """
        from filelock import FileLock

        owner = secrets.token_hex(8)
        try:
            with FileLock(self._lock_file(owner), mode=0o600):
                # After the lock, because `alone` checks in the opposite order: one of the two sees
                # the other.
                if self._alone_file.exists():
                    with self._held_alone(_NOT_STARTED.format(path=self.path)):
                        pass
                yield owner
        finally:
            _discard(self._lock_file(owner))

    @contextmanager
    def alone(self) -> Generator[None]:
        """Prevent all others from claiming the directory.

        Raises:
            StateDirError: Another process has claimed it, or has exclusive access.
        """
        with self._held_alone(_IN_USE.format(path=self.path)):
            if self.is_in_use():
                raise StateDirError(_IN_USE.format(path=self.path))
            yield

    @contextmanager
    def _held_alone(self, refusal: str) -> Generator[None]:
        from filelock import FileLock, Timeout

        lock = FileLock(self._alone_file, mode=0o600)
        try:
            # Processes that claim the directory hold this lock for a moment, to check that they
            # can.
            lock.acquire(timeout=ALONE_SECONDS, poll_interval=0.01)
        except Timeout:
            raise StateDirError(refusal) from None
        try:
            yield
        finally:
            lock.release()

    @property
    def _alone_file(self) -> Path:
        return self.path / "alone.lock"

    def is_alive(self, owner: str) -> bool:
        """Whether the server with that id still runs, in this process or another."""
        path = self._lock_file(owner)
        if not path.exists():
            return False
        if _is_locked(path):
            return True
        _discard(path)  # left by a dead server; ids are never reused
        self.killed.add(owner)
        return False

    def is_in_use(self) -> bool:
        """Whether a server, or a command, uses the directory."""
        return any(map(_is_locked, self._servers.glob("*.lock")))

    def has_others(self, owner: str) -> bool:
        """Whether another server, or a command, uses the directory beside this one."""
        own = self._lock_file(owner)
        return any(_is_locked(one) for one in self._servers.glob("*.lock") if one != own)

    def _lock_file(self, owner: str) -> Path:
        if not owner.isalnum():
            raise ValueError(f"not a server id: {owner!r}")
        return self._servers / f"{owner}.lock"


def _is_locked(path: Path) -> bool:
    from filelock import FileLock, Timeout

    try:
        with FileLock(path, blocking=False, mode=0o600):
            return False
    except Timeout:
        return True


def _discard(path: Path) -> None:
    with suppress(OSError):  # another process may have removed it, or have it open (Windows)
        path.unlink()


def _unusable(path: Path, why: str) -> str:
    return (
        f"state directory {path} cannot be used: {why}. Choose another with "
        "--state-dir DIR or DEEP_AGENT_STATE_DIR, or make this one writable."
    )


_MOST_BYTES = 64 * 1024


def read_private_file(path: Path) -> str:
    """Return the text of a file with a secret.

    Raises:
        ValueError: It cannot be read, or others can read or change it; the text says what to do.
    """
    try:
        # Reading a pipe would wait, and a device has no end.
        if not path.is_file():
            raise ValueError("not an existing file")
        with path.open("rb") as file:
            _require_private(path, os.fstat(file.fileno()).st_mode)
            data = file.read(_MOST_BYTES)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from error
    # The encoding that `>` of Windows PowerShell writes.
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return data.decode("utf-16" if utf16 else "utf-8-sig", "replace")


def _require_private(path: Path, mode: int) -> None:
    others = stat.S_IMODE(mode) & (stat.S_IRWXG | stat.S_IRWXO)
    if os.name == "posix" and others:
        raise ValueError(
            f"other users have access to it (mode {stat.S_IMODE(mode):04o}); run: "
            f"chmod 600 {shlex.quote(str(path))}"
        )
