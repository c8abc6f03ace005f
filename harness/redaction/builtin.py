"""The detectors that ship, by the name of what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import ModuleType

from .._internal.records import record
from .detector import Span
from .detectors import (
    api_key,
    credit_card,
    email_address,
    iban,
    ip_address,
    mac_address,
    phone,
    private_key,
    url,
)

__all__ = ["BUILTIN", "BuiltIn", "last_four"]


def last_four(value: str) -> str:
    """Return the value with all but its last four characters hidden."""
    return "****" + value[-4:] if len(value) > 8 else "****"


@record
class BuiltIn:
    """One detector.

    Attributes:
        find: See `Detector.find`.
        open_from: See `Detector.open_from`.
        mask: What a match becomes when part of it may stay.
    """

    find: Callable[[str], Iterable[Span]]
    open_from: Callable[[str], int]
    mask: Callable[[str], str] = last_four


def _built_in(module: ModuleType) -> BuiltIn:
    return BuiltIn(module.find, module.open_from, getattr(module, "mask", last_four))


BUILTIN: Mapping[str, BuiltIn] = {
    "email": _built_in(email_address),
    "credit_card": _built_in(credit_card),
    "ip": _built_in(ip_address),
    "mac_address": _built_in(mac_address),
    "url": _built_in(url),
    "phone": _built_in(phone),
    "iban": _built_in(iban),
    "api_key": _built_in(api_key),
    "private_key": _built_in(private_key),
}
