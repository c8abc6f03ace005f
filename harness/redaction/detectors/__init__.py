"""Built-in detectors, one for each kind of value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

from ..._internal.records import record
from .. import Span
from . import addresses, keys, numbers

__all__ = ["BUILTIN", "BuiltIn", "last_four"]


def last_four(value: str) -> str:
    """Return the value with all but its last four characters hidden."""
    return "****" + value[-4:] if len(value) > 8 else "****"


@record
class BuiltIn:
    """A built-in detector.

    Attributes:
        find: See `Detector.find`.
        open_from: See `Detector.open_from`.
        mask: Returns the replacement of a match for the strategy `mask`.
    """

    reads_numbers: ClassVar[bool] = False

    find: Callable[[str], Iterable[Span]]
    open_from: Callable[[str], int]
    mask: Callable[[str], str] = last_four


BUILTIN: Mapping[str, BuiltIn] = {
    "email": BuiltIn(addresses.find_email, addresses.open_email, addresses.mask_email),
    "credit_card": BuiltIn(numbers.find_card, numbers.open_card, numbers.mask_card),
    "ip": BuiltIn(addresses.find_ip, addresses.open_ip, addresses.mask_ip),
    "mac_address": BuiltIn(addresses.find_mac, addresses.open_mac, addresses.mask_mac),
    "url": BuiltIn(addresses.find_url, addresses.open_url, addresses.mask_url),
    "phone": BuiltIn(numbers.find_phone, numbers.open_phone),
    "iban": BuiltIn(numbers.find_iban, numbers.open_iban),
    "api_key": BuiltIn(keys.find_api_key, keys.open_api_key),
    "private_key": BuiltIn(keys.find_private_key, keys.open_private_key, keys.mask_private_key),
}
