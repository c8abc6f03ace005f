"""Keyring: the keys of an encrypted journal, as text in settings and files.

Nothing here shows a key: not a `repr`, not an error. A key is spoken of by its id, which tells
nothing about it.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b

__all__ = ["KEY_ID_BYTES", "Keyring"]

KEY_ID_BYTES = 4

_KEY_BYTES = 32


class Keyring:
    """One or several keys: the first seals, all open.

    Attributes:
        ids: What the keys are called, the first one first: 8 hexadecimal digits each, which may
            be shown to anybody.

    Args:
        keys: 32 random bytes each, the newest first.

    Raises:
        ValueError: There is no key, one has not 32 bytes, or one comes twice.
    """

    __slots__ = ("_keys", "ids")

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys:
            raise ValueError("there is no key")
        for number, key in enumerate(keys, 1):
            if len(key) != _KEY_BYTES:
                raise ValueError(
                    f"key {number} of {len(keys)} has {len(key)} bytes, not {_KEY_BYTES}"
                )
        self._keys = tuple(bytes(key) for key in keys)
        self.ids = tuple(_derived(key, b"journal key id", KEY_ID_BYTES).hex() for key in self._keys)
        if len({*self.ids}) < len(self.ids):
            raise ValueError("a key is there twice")

    @classmethod
    def parse(cls, text: str) -> Keyring:
        """Return the keys of a setting or a file.

        Args:
            text: Keys as `generate` makes them, the newest first, with commas, spaces or line
                feeds between them.

        Raises:
            ValueError: It is something else. The error does not tell what.
        """
        parts = [part for part in re.split(r"[,\s]+", text) if part]
        keys: list[bytes] = []
        for number, part in enumerate(parts, 1):
            bare = part.rstrip("=")
            try:
                key = b64decode(bare + "=" * (-len(bare) % 4), b"-_", validate=True)
            except ValueError:
                key = b""
            if len(key) != _KEY_BYTES:
                # Without the cause, which may show what was decoded.
                raise ValueError(
                    f"key {number} of {len(parts)} is not {_KEY_BYTES} bytes as base64url, "
                    f"which are 43 characters of A-Z, a-z, 0-9, - and _; it has {len(bare)}"
                ) from None
            keys.append(key)
        return cls(keys)

    @staticmethod
    def generate() -> str:
        """Return a new random key as text: 43 characters, fit for `parse`."""
        return urlsafe_b64encode(secrets.token_bytes(_KEY_BYTES)).decode().rstrip("=")

    def cipher_keys(self) -> dict[bytes, bytes]:
        """Return for each key's id, the first one first, the 64 bytes its cipher works with."""
        return {
            bytes.fromhex(name): _derived(key, b"journal cipher", 64)
            for name, key in zip(self.ids, self._keys, strict=True)
        }

    def __repr__(self) -> str:
        return f"<Keyring of {', '.join(self.ids)}>"


def _derived(key: bytes, purpose: bytes, size: int) -> bytes:
    return blake2b(key=key, person=purpose, digest_size=size).digest()
