"""Sealed records of a damaged journal: whether they open, and whether the keys fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...._internal.records import changed
from ....errors import CheckpointError
from ...base import Record, Run
from ...record_encryption import RecordCipher, is_sealed

if TYPE_CHECKING:
    from ...keyring import Keyring

__all__ = ["SealedRecords"]


class SealedRecords:
    """Opens records to see that they are whole; without keys every one passes.

    Args:
        keys: Those the journal was sealed with; None if it is not encrypted, or nobody has them.

    Raises:
        CheckpointError: The package `cryptography` is missing (extra `encryption`).
    """

    def __init__(self, keys: Keyring | None) -> None:
        self._cipher = None
        self._opened = False
        self._refusal: CheckpointError | None = None
        if keys is not None:
            from ...keyring import Cipher

            self._cipher = RecordCipher(Cipher(keys))

    def open(self, record: Record) -> None:
        """Open a record.

        Raises:
            CheckpointError: It is damaged, not sealed, or sealed with another key.
        """
        if self._cipher is None:
            return
        try:
            self._cipher.open(record)
        except CheckpointError as error:
            self._refusal = self._refusal or error
            raise
        self._opened = True

    def failed(self, run: Run, reason: str) -> Run:
        """Return a run as one that has failed; without keys nobody can say in a sealed one why."""
        if self._cipher is not None:
            opened = self._cipher.open(run)
            return self._cipher.seal(changed(opened, status="failed", owner=None, reason=reason))
        told = None if is_sealed(run) else reason
        return changed(run, status="failed", owner=None, reason=told)

    def require_right_keys(self) -> None:
        """Refuse keys that have opened nothing.

        Raises:
            CheckpointError: They are wrong, or nothing is sealed.
        """
        if self._refusal is not None and not self._opened:
            raise self._refusal
