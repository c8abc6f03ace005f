"""The principals that have called the servers of one state directory, in one file of lines."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import anyio.to_thread

from ...harness.errors import HarnessError
from .caller import Caller, UnknownPrincipal, owner_of

__all__ = ["PrincipalFile"]

logger = logging.getLogger(__name__)


class PrincipalFile:
    """Principals in a file of the state directory; see `Principals`.

    Args:
        path: The file; made when the first principal calls.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, str] = {}
        self._read()

    def knows(self, caller: Caller) -> bool:
        """Whether there is nothing to note."""
        return not caller.owner or caller.owner in self._known

    def add(self, caller: Caller) -> None:
        """Store a caller. Blocks.

        Raises:
            HarnessError: The file cannot be written.
        """
        # What stands before it may be a line that a crash has cut off.
        line = "\n" + json.dumps([caller.owner, caller.principal]) + "\n"
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "a", encoding="utf-8") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise HarnessError(
                f"{self._path} cannot be written: {error.strerror or error}. Nothing was done; "
                "free its disk or make it writable, and try again."
            ) from error
        self._known[caller.owner] = caller.principal

    async def note(self, caller: Caller) -> None:
        """Store a caller, unless it is known.

        Raises:
            HarnessError: The file cannot be written.
        """
        if not self.knows(caller):
            await anyio.to_thread.run_sync(self.add, caller)

    async def find(self, id_: str) -> str:
        """Return the principal of a thread or run; reads the file again if another server met it.

        Raises:
            UnknownPrincipal: The file has lost it.
        """
        owner = owner_of(id_)
        if owner and owner not in self._known:
            await anyio.to_thread.run_sync(self._read)
        return self.of(id_)

    def of(self, id_: str) -> str:
        """Return the principal of a thread or run, if this server knows it.

        Raises:
            UnknownPrincipal: It does not.
        """
        owner = owner_of(id_)
        if owner and owner not in self._known:
            raise UnknownPrincipal(
                f"{id_} belongs to a principal that {self._path} does not name any more, so it is "
                "not continued: rules about it could not be applied. It continues when that "
                "principal has called this server again."
            )
        return self._known.get(owner, "")

    def _read(self) -> None:
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return
        except OSError as error:
            logger.error("%s cannot be read: %s", self._path, error)
            return
        for line in text.splitlines():
            if not line:
                continue
            try:
                owner, principal = json.loads(line)
            except (ValueError, TypeError):  # cut off in the middle; its caller is noted again
                continue
            self._known[str(owner)] = str(principal)
