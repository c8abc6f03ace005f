"""Signatures of webhooks, as https://www.standardwebhooks.com describes them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets as random
from collections.abc import Sequence

from ..settings.agenda_settings import SECRET_PREFIX

__all__ = ["new_secret", "signed_headers"]


def new_secret() -> str:
    """Return a new secret, such as `whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw…`."""
    return SECRET_PREFIX + base64.b64encode(random.token_bytes(32)).decode()


def signed_headers(id_: str, timestamp: int, body: bytes, keys: Sequence[bytes]) -> dict[str, str]:
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
