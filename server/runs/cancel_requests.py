"""Requests to cancel runs of other server processes: one small file each, in the state directory.

The process that carries a run looks for one twice a second. If it died, whoever takes the run over
finds it, so the run ends instead of going on.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from ...harness._internal.records import record
from ...harness.checkpoint.base import Run

__all__ = ["CancelRequest", "CancelRequests"]


@record
class CancelRequest:
    """What a process wishes of another one.

    Attributes:
        run_id: The run to end.
        attempt: The attempt of it that was at work. A later one was begun by somebody who knows.
        reason: What its record shall say.
    """

    run_id: str
    attempt: int
    reason: str


class CancelRequests:
    """Cancel requests of the server processes that share a state directory. All methods block.

    Args:
        directory: Where they are kept; made when the first one is stored.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def store(self, request: CancelRequest) -> None:
        """Store a request; a second one for the same run replaces it.

        Raises:
            OSError: It cannot be written.
        """
        self._directory.mkdir(mode=0o700, exist_ok=True)
        path = self._file(request.run_id)
        own = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump([request.run_id, request.attempt, request.reason], file)
        own.replace(path)

    def of(self, run: Run) -> CancelRequest | None:
        """Return the request for a run, if it concerns the attempt that its record shows."""
        found = _read(self._file(run.id))
        if found is None or (found.run_id, found.attempt) != (run.id, run.attempt):
            return None
        return found

    def asked_for(self, run_ids: Sequence[str]) -> list[str]:
        """Return those of some runs for which there are requests."""
        try:
            names = set(os.listdir(self._directory))
        except FileNotFoundError:
            return []
        return [one for one in run_ids if self._file(one).name in names]

    def all(self) -> list[CancelRequest]:
        """Return all of them."""
        found = map(_read, self._directory.glob("*.json"))
        return [one for one in found if one is not None]

    def discard(self, run_id: str) -> None:
        """Forget the request for a run; it is fine if there is none."""
        with suppress(OSError):  # somebody else may read it right now (Windows): it does no harm
            self._file(run_id).unlink()

    def _file(self, run_id: str) -> Path:
        return self._directory / f"{blake2b(run_id.encode(), digest_size=16).hexdigest()}.json"


def _read(path: Path) -> CancelRequest | None:
    try:
        run_id, attempt, reason = json.loads(path.read_text(encoding="utf-8"))
        return CancelRequest(str(run_id), int(attempt), str(reason))
    except (OSError, ValueError, TypeError):  # none, or none that a server has written
        return None
