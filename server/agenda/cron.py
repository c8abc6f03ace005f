"""Times of schedules: five fields of cron, in a time zone."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from ...harness.errors import HarnessError

__all__ = ["next_time"]

_FIELDS = 5


def next_time(cron: str, timezone: str, after: float) -> float:
    """Return the next time of a schedule.

    When clocks are set back, a time of day that comes twice counts once; when they are set forward,
    a time that is left out counts at the first minute after it.

    Args:
        cron: Minute, hour, day of the month, month, day of the week.
        timezone: Such as `Europe/Berlin`.
        after: Unix time in seconds.

    Raises:
        HarnessError: They cannot be read, or there is no such time.
    """
    try:
        zone = ZoneInfo(timezone)
    except (OSError, ValueError, LookupError) as error:
        raise HarnessError(
            f"{timezone!r} is not a time zone that this machine knows; nothing was stored. Write "
            "one such as UTC or Europe/Berlin."
        ) from error
    if len(cron.split()) != _FIELDS:
        raise _unreadable(cron, f"it has {len(cron.split())} fields")
    try:
        for moment in CronSim(cron, datetime.fromtimestamp(after, zone)):
            if moment.timestamp() > after:
                return moment.timestamp()
    except (CronSimError, ValueError) as error:
        raise _unreadable(cron, str(error)) from error
    raise HarnessError(f"cron {cron!r} names a time that never comes; nothing was stored.")


def _unreadable(cron: str, why: str) -> HarnessError:
    return HarnessError(
        f"cron {cron!r} cannot be read: {why}. Nothing was stored. Write five fields: minute, "
        "hour, day of the month, month, day of the week; such as '0 7 * * MON-FRI'."
    )
