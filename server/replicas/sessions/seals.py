"""Seals: what of a session is secret in the database, and the names of sessions and streams there.

Whoever reads the tables learns neither what was said nor the id with which one could speak.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["Seal", "name_of"]

_NONCE_BYTES: Final = 12


def name_of(secret: str) -> str:
    """Return the name under which the tables know a session id, a stream or a resource."""
    return blake2b(secret.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class Seal:
    """Seals texts with a key that all replicas share.

    A sealed text can be opened only where it was stored: it is bound to its place.

    Args:
        key: The shared key; another one is derived from it.
    """

    def __init__(self, key: bytes) -> None:
        derived = blake2b(key, digest_size=32, person=b"mcp sessions").digest()
        self._cipher = AESGCM(derived)

    def close(self, text: str, place: str) -> bytes:
        """Return a text as it is stored."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, text.encode(), place.encode())

    def open(self, sealed: bytes, place: str) -> str:
        """Return a stored text.

        Raises:
            InvalidTag: It was sealed with another key, or for another place.
        """
        nonce, secret = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        return self._cipher.decrypt(nonce, secret, place.encode()).decode()
