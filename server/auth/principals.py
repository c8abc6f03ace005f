"""Remembers which principal an owner in an id is, so that recovered runs act for the same one."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from server.auth.caller import Caller, owner_of

__all__ = ["Principals"]

logger = logging.getLogger(__name__)


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
        line = json.dumps([caller.owner, caller.principal]) + "\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._known[caller.owner] = caller.principal

    def of(self, id_: str) -> str:
        """Return the principal a thread or run belongs to; empty for the local user.

        One that is not known any more gets a name that no rule allows anything.
        """
        owner = owner_of(id_)
        if owner and owner not in self._known:
            self._read()  # another server may have met it
        return self._known.get(owner, f"unknown principal {owner}") if owner else ""

    def _read(self) -> None:
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        except OSError as error:
            logger.error("%s cannot be read: %s", self._path, error)
            return
        for line in text.splitlines():
            try:
                owner, principal = json.loads(line)
            except ValueError:  # cut off in the middle; its caller is noted again
                continue
            self._known[str(owner)] = str(principal)
