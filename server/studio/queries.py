"""Queries: parses the URIs of the studio's resources, and formats parts of the answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NoReturn
from urllib.parse import parse_qsl, unquote

from ...harness._internal.records import record
from ...harness.errors import HarnessError

__all__ = ["Address", "NotThere", "Query", "instant"]

_URI = re.compile(
    r"(?P<scheme>[a-z]+)://(?P<id>[^/?#]+)(?:/(?P<path>[^?#]*))?(?:\?(?P<query>[^#]*))?"
)
_AGO = re.compile(r"(\d{1,4})([smhdw])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class NotThere(HarnessError):
    """The resource does not exist for the caller; the text says what to read instead."""


class BadQuery(HarnessError):
    """A parameter of a URI is invalid."""


@record
class Query:
    """The parameters of a URI.

    Attributes:
        given: The parameters, by name.
    """

    given: Mapping[str, str]

    def text(self, name: str) -> str:
        """Return a parameter; empty if it is missing."""
        return self.given.get(name, "")

    def count(self, name: str, default: int, most: int) -> int:
        """Return a count from 1 to `most`.

        Raises:
            BadQuery: It is something else.
        """
        value = self.given.get(name, "")
        if not value:
            return default
        if not (re.fullmatch(r"\d{1,18}", value, re.ASCII) and 1 <= int(value) <= most):
            self.refuse(name, f"a number from 1 to {most}")
        return int(value)

    def number(self, name: str) -> int | None:
        """Return a number such as a cursor; None if it is missing.

        Raises:
            BadQuery: It is something else.
        """
        value = self.given.get(name, "")
        if not value:
            return None
        if not re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
            self.refuse(name, "a cursor of the page before")
        return int(value)

    def time(self, name: str) -> float | None:
        """Return a time in Unix seconds, from an ISO date or time, or an age such as `2d`.

        Raises:
            BadQuery: It is something else.
        """
        value = self.given.get(name, "")
        if not value:
            return None
        ago = _AGO.fullmatch(value)
        if ago is not None:
            return (datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})).timestamp()
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            self.refuse(name, "an ISO date or time, or an age such as 2d or 12h")
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()

    def refuse(self, name: str, wanted: str) -> NoReturn:
        """Refuse a parameter.

        Raises:
            BadQuery: Always.
        """
        raise BadQuery(f"{name}={self.given.get(name, '')!r} cannot be used; give {wanted}.")


@record
class Address:
    """The parts of a URI.

    Attributes:
        scheme: The scheme, such as `thread`.
        id: The part after the scheme, such as a thread's id.
        path: The rest without its first slash, decoded.
        query: The parameters.
    """

    scheme: str
    id: str
    path: str
    query: Query

    @staticmethod
    def of(uri: str) -> Address | None:
        """Return the parts of a URI, or None if it has no such parts."""
        found = _URI.fullmatch(uri)
        if found is None:
            return None
        given = dict(parse_qsl(found["query"] or "", keep_blank_values=True))
        return Address(found["scheme"], found["id"], unquote(found["path"] or ""), Query(given))


def instant(seconds: float) -> str:
    """Return Unix time as `2026-11-21T10:30:00.123Z`."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"
