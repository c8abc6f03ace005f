"""The cipher of sealed journals: bytes in, bytes out that nobody else can read, alter or make.

AES-256 in SIV mode (RFC 5297) needs no nonce: what goes in twice comes out the same, so equal
large values can still be stored once and a sealed idempotency key can be looked for. It takes
associated data, here called *context*: what is sealed in one context opens in no other.

The package `cryptography` is imported by the first `Cipher`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import CheckpointError
from .keyring import KEY_ID_BYTES, Keyring

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

__all__ = ["Cipher", "Damaged", "UnknownKey"]


class UnknownKey(Exception):
    """Sealed with a key that is not there; the text is its id."""


class Damaged(Exception):
    """Not what was sealed in this context, or not by anybody with the key."""


class Cipher:
    """Seals with the first of some keys and opens with each. Safe from any thread.

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
        """Return the id of the first key and the sealed data: 20 bytes more than came in."""
        return self._first + self._keys[self._first].encrypt(data, [*context])

    def seal_with_each(self, data: bytes, context: Sequence[bytes]) -> list[bytes]:
        """Return what `seal` gives now, then what it gave when other keys came first."""
        return [name + key.encrypt(data, [*context]) for name, key in self._keys.items()]

    def open(self, sealed: bytes, context: Sequence[bytes]) -> bytes:
        """Return what was sealed in this context.

        Raises:
            UnknownKey: With a key that is not there.
            Damaged: It was not.
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
    """Return the cipher, and what it raises when something does not open."""
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV
    except ModuleNotFoundError as error:
        raise CheckpointError(
            "a journal is sealed by the package cryptography, which is not installed; nothing was "
            "opened. Install it with: pip install 'deep-agent-mcp[encryption]'"
        ) from error
    return AESSIV, InvalidTag
