"""Signatures of webhooks, as https://www.standardwebhooks.com describes them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets as random
from collections.abc import Sequence

__all__ = ["new_secret", "parse_secrets", "signed_headers"]

_PREFIX = "whsec_"
_LEAST, _MOST = 24, 64
"""Bytes of a secret."""


def new_secret() -> str:
    """Return a new secret, such as `whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw…`."""
    return _PREFIX + base64.b64encode(random.token_bytes(32)).decode()


def parse_secrets(text: str) -> list[bytes]:
    """Return the secrets in a text; a request is signed with each of them.

    Raises:
        ValueError: It holds none, or one that is none.
    """
    found = [_parsed(one) for one in text.replace(",", " ").split()]
    if not found:
        raise ValueError("it is empty")
    return found


def _parsed(text: str) -> bytes:
    try:
        secret = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if not text.startswith(_PREFIX) or not _LEAST <= len(secret) <= _MOST:
        raise ValueError(f"a secret is {_PREFIX} and base64 of {_LEAST} to {_MOST} bytes")
    return secret


def signed_headers(
    id_: str, timestamp: int, body: bytes, keys: Sequence[bytes]
) -> dict[str, str]:
    """Return the headers by which a receiver can tell that a request is ours.

    Args:
        id_: The same for each try of one event.
        timestamp: Unix time of this try.
        body: The request's body.
        keys: Secrets; two of them while one is replaced.
    """
    content = b".".join((id_.encode(), str(timestamp).encode(), body))
    signatures = [
        "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        for key in keys
    ]
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
    }
