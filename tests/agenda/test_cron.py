"""Times of schedules: time zones, changes of the clocks, and what cannot be read."""

from datetime import UTC, datetime

import pytest

from deep_agent_mcp.harness.errors import HarnessError
from deep_agent_mcp.server.agenda.cron import next_time


def following(cron: str, zone: str, after: str, count: int = 1) -> list[str]:
    """Return the next times, in UTC."""
    at = datetime.fromisoformat(after).replace(tzinfo=UTC).timestamp()
    times: list[str] = []
    for _ in range(count):
        at = next_time(cron, zone, at)
        times.append(datetime.fromtimestamp(at, UTC).strftime("%m-%d %H:%M"))
    return times


def test_times_are_those_of_the_time_zone() -> None:
    assert following("0 7 * * MON-FRI", "Europe/Berlin", "2026-07-03T12:00", 2) == [
        "07-06 05:00",
        "07-07 05:00",
    ]
    assert following("0 7 * * *", "UTC", "2026-07-03T07:00") == ["07-04 07:00"]


def test_an_hour_that_comes_twice_counts_once() -> None:
    assert following("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", 2) == [
        "10-25 00:30",
        "10-26 01:30",
    ]
    # Also for whoever asks in between.
    assert following("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10") == ["10-26 01:30"]


def test_an_hour_that_is_left_out_counts_at_its_end() -> None:
    assert following("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", 2) == [
        "03-29 01:00",
        "03-30 00:30",
    ]


@pytest.mark.parametrize(
    ("cron", "zone", "why"),
    [
        ("0 7 * *", "UTC", "it has 4 fields"),
        ("0 0 7 * * *", "UTC", "it has 6 fields"),
        ("61 * * * *", "UTC", "Bad minute"),
        ("0 0 31 2 *", "UTC", "Bad day-of-month"),
        ("0 7 * * *", "Europe/Bärlin", "not a time zone"),
        ("0 7 * * *", "../../etc/passwd", "not a time zone"),
    ],
)
def test_what_cannot_be_read_is_refused(cron: str, zone: str, why: str) -> None:
    with pytest.raises(HarnessError, match=why):
        next_time(cron, zone, 0.0)


def test_fields_with_a_star_fire_in_both_or_none_of_the_hours_of_a_change() -> None:
    assert following("*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00") == ["03-30 00:00"]
    assert following("0 * * * *", "Europe/Berlin", "2026-10-24T23:30", 3) == [
        "10-25 00:00",
        "10-25 01:00",
        "10-25 02:00",
    ]
