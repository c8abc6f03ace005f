"""Keyring: the keys of an encrypted journal, and the cipher that uses them.

No `repr` and no error shows a key. Each key has an id that reveals nothing about it.

The cipher is AES-256 in SIV mode (RFC 5297), which needs no nonce. Equal input gives equal output,
so equal large values can still be stored once, and a sealed idempotency key can be looked up. It
takes associated data, here called *context*: data sealed in one context opens in no other.

The package `cryptography` is imported by the first `Cipher`.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from ..errors import CheckpointError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

__all__ = ["KEY_ID_BYTES", "Cipher", "Damaged", "Keyring", "UnknownKey"]


KEY_ID_BYTES = 4

_KEY_BYTES = 32


class Keyring:
    """Keys of an encrypted journal: the first one encrypts, all of them decrypt.

    Attributes:
        ids: Ids of the keys, the first one first: 8 hexadecimal digits each, which are not
            secret.

    Args:
        keys: 32 random bytes each, the newest first.

    Raises:
        ValueError: There is no key, a key does not have 32 bytes, or one is repeated.
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
            ValueError: It is something else. The error does not contain the text.
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
                # Without the cause, which may contain decoded data.
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
        """Return the 64 bytes for the cipher of each key, by id, the first key first."""
        return {
            bytes.fromhex(name): _derived(key, b"journal cipher", 64)
            for name, key in zip(self.ids, self._keys, strict=True)
        }

    def __repr__(self) -> str:
        return f"<Keyring of {', '.join(self.ids)}>"


def _derived(key: bytes, purpose: bytes, size: int) -> bytes:
    return blake2b(key=key, person=purpose, digest_size=size).digest()


class UnknownKey(Exception):
    """Error: encrypted with a key that is missing; the text is the key's id."""


class Damaged(Exception):
    """Error: the data was damaged, moved, or changed without the key."""


class Cipher:
    """Encrypts with the first key and decrypts with all keys. Safe from any thread.

    Args:
        keys: The keys.

    Raises:
        CheckpointError: The package `cryptography` is missing.
    """

    def __init__(self, keys: Keyring) -> None:
        siv, self._refusal = _imported()
        self._keys = {name: siv(key) for name, key in keys.cipher_keys().items()}
        self._first = next(iter(self._keys))
        self.key_ids = keys.ids

    def seal(self, data: bytes, context: Sequence[bytes]) -> bytes:
        """Return the id of the first key and the sealed data, 20 bytes longer than the input."""
        return self._first + self._keys[self._first].encrypt(data, [*context])

    def seal_with_each(self, data: bytes, context: Sequence[bytes]) -> list[bytes]:
        """Return the result of `seal`, then its results with each of the other keys first."""
        return [name + key.encrypt(data, [*context]) for name, key in self._keys.items()]

    def open(self, sealed: bytes, context: Sequence[bytes]) -> bytes:
        """Return the data that was sealed in this context.

        Raises:
            UnknownKey: It was sealed with a missing key.
            Damaged: It was not sealed in this context.
        """
        name = sealed[:KEY_ID_BYTES]
        if len(name) < KEY_ID_BYTES:
            raise Damaged
        key = self._keys.get(name)
        if key is None:
            raise UnknownKey(name.hex())
        try:
            return key.decrypt(sealed[KEY_ID_BYTES:], [*context])
        except self._refusal:
            raise Damaged from None


def _imported() -> tuple[type[AESSIV], type[Exception]]:
    """Return the cipher, and the error it raises for data that does not open."""
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV
    except ModuleNotFoundError as error:
        raise CheckpointError(
            "a journal is sealed by the package cryptography, which is not installed; nothing was "
            "opened. Install it with: pip install 'deep-agent-mcp[encryption]'"
        ) from error
    return AESSIV, InvalidTag
