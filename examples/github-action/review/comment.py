"""Turns the result of a review into a comment: `python comment.py EVENTS > COMMENT`."""

import json
import sys
from pathlib import Path
from typing import Any

GRADES = ("blocker", "major", "minor", "question")


def plain(text: str) -> str:
    """Return a text without what would notify people, load pictures or end a table.

    Code between backticks stays as it is, as nothing in it has an effect.
    """
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    mark = "`" if len(parts) % 2 else ""
    return mark.join(one if mark and at % 2 else quiet(one) for at, one in enumerate(parts))


def quiet(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    return text.replace("@", "@<!-- -->").replace("![", "!&#91;")


def comment(verdict: dict[str, Any], cost: float) -> str:
    """Return the comment as Markdown."""
    findings = sorted(verdict["findings"], key=lambda one: GRADES.index(one["grade"]))
    bad = any(one["grade"] in ("blocker", "major") for one in findings)
    lines = [f"### Review: {'changes needed' if bad else 'no objections'}", ""]
    lines += [plain(verdict["summary"]), ""]
    if findings:
        lines += ["| Grade | Place | Finding |", "|---|---|---|"]
    for one in findings:
        place = f"`{plain(one['path']).replace('`', '')}:{one['line']}`"
        lines.append(f"| {one['grade']} | {place} | {plain(one['title'])} |")
    for one in findings:
        lines += ["", f"**{plain(one['title'])}**", "", plain(one["why"]), ""]
        lines.append(f"Fix: {plain(one['fix'])}")
    return "\n".join([*lines, "", f"<sub>Written by an agent, for ${cost:.2f}.</sub>", ""])


def main(events: Path) -> None:
    *_, last = events.read_text(encoding="utf-8").splitlines()
    result = json.loads(last)
    print(comment(json.loads(result["answer"]), result["usage"].get("cost") or 0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
