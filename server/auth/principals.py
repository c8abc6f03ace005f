"""Remembers which principal an owner in an id is, so that recovered runs act for the same one."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from ...harness.errors import HarnessError
from .caller import Caller, owner_of

__all__ = ["Principals", "UnknownPrincipal"]

logger = logging.getLogger(__name__)


class UnknownPrincipal(HarnessError):
    """It is not known on whose behalf a run was."""


class Principals:
    """The principals that have called, in one file of lines in the state directory.

    Args:
        path: The file; made when the first principal calls.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, str] = {}
        self._read()

    def note(self, caller: Caller) -> None:
        """Remember a caller. Writes once per principal, before anything is done for it.

        Raises:
            OSError: The file cannot be written.
        """
        if not caller.owner or caller.owner in self._known:
            return
        # What stands before it may be a line that a crash has cut off.
        line = "\n" + json.dumps([caller.owner, caller.principal]) + "\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._known[caller.owner] = caller.principal

    def knows(self, caller: Caller) -> bool:
        """Whether there is nothing to note."""
        return not caller.owner or caller.owner in self._known

    def of(self, id_: str) -> str:
        """Return the principal a thread or run belongs to; empty for the local user.

        Raises:
            UnknownPrincipal: The file has lost it: nobody knows which rules hold for the run.
        """
        owner = owner_of(id_)
        if owner and owner not in self._known:
            self._read()  # another server may have met it
        if owner and owner not in self._known:
            raise UnknownPrincipal(
                f"{id_} belongs to a principal that {self._path} does not name any more, so it is "
                "not continued: rules about it could not be kept. It goes on when that principal "
                "has called this server again."
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
