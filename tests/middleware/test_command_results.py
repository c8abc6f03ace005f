"""What is said about the output of a job."""

from __future__ import annotations

import pytest

from deep_agent_mcp.harness.middleware.commands.results import paged
from deep_agent_mcp.harness.shell.jobs import JobPage


def told(ended: str | None, page: JobPage | None, asked: int | None = None) -> str:
    record = {"command": "c", "began": 0.0, "ended": ended, "exit_code": None, "state": "running"}
    content = paged("job_1", record, page, asked=asked).content
    assert isinstance(content, str)
    return content


@pytest.mark.parametrize(
    ("ended", "page", "text"),
    [
        (None, JobPage(b"", 0, 0), "[job_1: running; no output yet]"),
        ("exit code 0", JobPage(b"", 0, 0), "[job_1: exit code 0; it wrote nothing]"),
        ("exit code 0", None, "[job_1: exit code 0. Its output is no longer there.]"),
        ("exit code 0", JobPage(b"a\n", 0, 2), "a\n[job_1: exit code 0; bytes 0 to 2 of 2]"),
    ],
)
def test_no_output_is_told_from_none_yet_and_none_any_more(
    ended: str | None, page: JobPage | None, text: str
) -> None:
    assert told(ended, page) == text


def test_the_end_begins_with_a_whole_line_and_says_where_the_beginning_is() -> None:
    text = told("exit code 0", JobPage(b"lf\nwhole\n", 2, 11))
    assert text.startswith("whole\n[job_1: exit code 0; bytes 5 to 11 of 11; the beginning: ")
    assert '"offset": 0' in text or "offset=0" in text


def test_a_page_in_the_middle_ends_with_a_whole_character_and_says_how_to_go_on() -> None:
    text = told(None, JobPage("aé".encode()[:2], 4, 9), asked=4)
    assert text.startswith("a\n[job_1: running; bytes 4 to 5 of 9; continue with ")
    assert '"offset": 5' in text or "offset=5" in text
