"""Takes the picture in docs/viewer.md, of a real run: `python -m tests.viewer.screenshot FILE`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.viewer.browser import browsing
from tests.viewer.conftest import Served, ViewerSetup
from tests.viewer.scripts import give, run, todos, write

GOAL = "Write the release note for version 1.1"
NOTE = "# Version 1.1\n\n- Search is twice as fast\n- Dark mode\n"


def used(tokens: int) -> dict[str, Any]:
    return {"input_tokens": tokens, "output_tokens": tokens // 20}


SCRIPT = {
    "name": "release",
    "runs": [
        run(
            GOAL,
            {
                "text": "First the changes, then the note.",
                "tool_calls": [todos("Read the changes", "Write the note", "Have it reviewed")],
                "usage": used(2_310),
            },
            {
                "tool_calls": [
                    {"name": "grep", "args": {"pattern": "Status: final", "path": "/"}},
                    give("Look for changes that nobody has written down"),
                    give("Collect what users asked for since version 1.0"),
                ],
                "usage": used(2_640),
            },
            {"tool_calls": [write("/release/NOTE.md", NOTE)], "usage": used(3_980)},
            {"text": "The note is written."},
            general_purpose=[
                {
                    "tool_calls": [{"name": "glob", "args": {"pattern": "**/*.md"}}],
                    "usage": used(1_120),
                },
                {"text": "Search is twice as fast; there is a dark mode.", "usage": used(1_530)},
            ],
        )
    ],
}


def main(target: Path) -> None:
    """Begin a run, open it in a browser, and take its picture once it waits for an approval."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        setup = ViewerSetup(place, flags=["--approve", "write_file"], script=SCRIPT)
        with setup.serving() as server, browsing(place / "browser") as browser:
            served = Served(setup, server)
            browser.size(1000, 980)
            run_id = served.begin(GOAL)
            served.status(run_id)
            browser.go(f"{served.page}#{run_id}")
            browser.until_text("Approve", "Have it reviewed", "tokens")
            target.write_bytes(browser.screenshot())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
