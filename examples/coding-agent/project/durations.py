"""Durations as text: `1h30m` is 5,400 seconds."""

import re

UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
PART = re.compile(r"(\d+)([dhms])")


def seconds(text: str) -> int:
    """Return the seconds that a duration such as `1h30m` takes.

    Raises:
        ValueError: It is not a duration.
    """
    parts = PART.findall(text)
    if not parts:
        raise ValueError(f"{text!r} is not a duration; write one like 1h30m")
    return sum(int(number) * UNITS[unit] for number, unit in parts)
