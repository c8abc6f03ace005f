"""Seals what replicas tell each other beside the journal, where the journal is sealed."""

from __future__ import annotations

from pydantic import SecretStr

from ...harness.checkpoint.keyring import Cipher, Damaged, Keyring, UnknownKey

__all__ = ["Sealing"]


class Sealing:
    """Seals and opens short texts; leaves them as they are without a key.

    Args:
        keys: The setting `journal_key`.
    """

    def __init__(self, keys: SecretStr | None) -> None:
        found = None if keys is None else Keyring.parse(keys.get_secret_value())
        self._cipher = None if found is None else Cipher(found)

    def seal(self, text: str, about: str) -> bytes:
        """Return a text for the database; it opens only as what it is about."""
        data = text.encode("utf-8", "surrogatepass")
        return data if self._cipher is None else self._cipher.seal(data, self._context(about))

    def open(self, data: bytes, about: str) -> str | None:
        """Return the text; None if it was sealed with another key, or is damaged."""
        if self._cipher is not None:
            try:
                data = self._cipher.open(data, self._context(about))
            except (UnknownKey, Damaged):
                return None
        return data.decode("utf-8", "replace")

    @staticmethod
    def _context(about: str) -> list[bytes]:
        return [b"replicas", about.encode("utf-8", "surrogatepass")]
