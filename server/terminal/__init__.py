"""Terminal: runs and conversations, in this process or on a server.

Texts of models and tools are cleaned: they cannot move the cursor, change colours, or hide text.
"""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime

__all__ = ["ago", "clean", "dollars", "forget_output", "one_line", "seconds_of"]

_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e0fff]"
)
"""Characters that control a terminal, or are invisible."""


def clean(text: str) -> str:
    """Replace invisible and control characters of a text by their code points."""
    return _ODD.sub(lambda found: f"[U+{ord(found[0]):04X}]", text.replace("\r\n", "\n"))


def one_line(text: str, most: int = 100) -> str:
    """Return the beginning of a text as a single, clean line."""
    line = " ".join(clean(text[: 4 * most]).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def forget_output(*descriptors: int) -> None:
    """Let what is still to be written go nowhere, such as the interpreter's last flush.

    Args:
        descriptors: The outputs to forget; by default both.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in descriptors or (1, 2):
        os.dup2(nowhere, descriptor)


def dollars(cost: float) -> str:
    """Return an amount with as many digits as it needs."""
    return f"${cost:.2f}" if cost >= 1 or cost == 0 else f"${cost:.4f}"


def ago(then: float, now: float | None = None) -> str:
    """Return how long ago a Unix time was, such as `5 min ago`."""
    passed = max(0.0, (time.time() if now is None else now) - then)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if passed >= size:
            return f"{passed // size:.0f} {unit} ago"
    return f"{passed:.0f} s ago" if passed >= 1 else "now"


def seconds_of(text: str) -> float:
    """Return a time of a server's result, such as `2026-01-31T12:00:00Z`, as Unix time.

    Raises:
        ValueError: It is not a time in this form.
    """
    found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
