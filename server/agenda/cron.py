"""Times of schedules, as five cron fields in a time zone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice, takewhile
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from ...harness._internal import count_of
from ...harness.errors import HarnessError

__all__ = ["MOST_COUNTED", "next_time", "times_between"]

_FIELDS = 5

MOST_COUNTED: Final = 1_000
"""The most missed times that are counted for one schedule."""


def next_time(cron: str, timezone: str, after: float) -> float:
    """Return the next time of a schedule.

    When clocks are set back, a time of day that occurs twice counts once. When they are set
    forward, a skipped time moves to the first minute after the gap. Both only apply if neither the
    minute nor the hour begins with `*`.

    Args:
        cron: Minute, hour, day of the month, month, day of the week.
        timezone: A time zone, such as `Europe/Berlin`.
        after: Unix time in seconds.

    Raises:
        HarnessError: The fields cannot be read, or never match.
    """
    for found in _times(cron, timezone, after):
        return found
    raise HarnessError(f"cron {cron!r} names a time that never comes; nothing was stored.")


def times_between(cron: str, timezone: str, after: float, until: float) -> int:
    """Count the times of a schedule after one moment, up to another.

    It stops at `MOST_COUNTED`, because a schedule for every minute may have slept for weeks.
    """
    times = takewhile(lambda found: found <= until, _times(cron, timezone, after))
    return sum(1 for _ in islice(times, MOST_COUNTED))


def _times(cron: str, timezone: str, after: float) -> Iterator[float]:
    """Yield the times of a schedule after a moment; see `next_time`."""
    try:
        zone = ZoneInfo(timezone)
    except (OSError, ValueError, LookupError) as error:
        raise HarnessError(
            f"{timezone!r} is not a time zone that this machine knows; nothing was stored. Write "
            "one such as UTC or Europe/Berlin."
        ) from error
    if len(cron.split()) != _FIELDS:
        raise _unreadable(cron, f"it has {count_of(len(cron.split()), 'field')}")
    try:
        for found in CronSim(cron, datetime.fromtimestamp(after, zone)):
            if found.timestamp() > after:
                after = found.timestamp()
                yield after
    except (CronSimError, ValueError) as error:
        raise _unreadable(cron, str(error)) from error


def _unreadable(cron: str, why: str) -> HarnessError:
    return HarnessError(
        f"cron {cron!r} cannot be read: {why}. Nothing was stored. Write five fields: minute, "
        "hour, day of the month, month, day of the week; such as '0 7 * * MON-FRI'."
    )
