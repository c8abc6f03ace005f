"""What a connection to a vendor is made for."""

from __future__ import annotations

from ..._internal.records import record

__all__ = ["Options"]


@record
class Options:
    """Credentials and address.

    Attributes:
        api_key: None where the vendor needs none, or its SDK finds its own credentials.
        base_url: Address; None for what the SDK knows.
        elsewhere: Whether somebody named the address: it may be any server with that protocol.
        region: For vendors with regions.
        timeout: Seconds the server may stay silent.
    """

    api_key: str | None
    base_url: str | None
    elsewhere: bool
    region: str | None
    timeout: float
