"""Reading a file page by page, as a model does, gives the file: no line is skipped or doubled."""

import json
import re
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from deep_agent_mcp.harness.backends.file_tools.pages import read_page
from deep_agent_mcp.harness.backends.text import decode

PATH = "/a.txt"


def page(text: bytes, offset: int = 0, column: int = 0, *, limit: int, budget: int) -> str:
    decoded = decode(text)
    assert decoded is not None
    return read_page(PATH, decoded, offset, column, limit, budget)


def next_arguments(header: str) -> dict[str, Any] | None:
    found = re.search(r"next: read_file\((.*)\)\]$", header)
    if found is None:
        return None
    pairs = re.findall(r'(\w+)=("[^"]*"|\d+)', found[1])
    arguments = {name: json.loads(value) for name, value in pairs}
    assert arguments.pop("path") == PATH
    return arguments


def read(text: bytes, *, limit: int, budget: int) -> tuple[str, list[str]]:
    """Return what a reader puts together, and the headers it saw."""
    parts: list[str] = []
    headers: list[str] = []
    arguments: dict[str, Any] | None = {}
    while arguments is not None:
        header, _, body = page(text, **arguments, limit=limit, budget=budget).partition("\n")
        assert len(body) <= budget + 1
        headers.append(header)
        parts.append(body)
        arguments = next_arguments(header)
        assert len(headers) < 2_000
    return "".join(parts), headers


LINES = st.lists(st.text("ab \té", max_size=40), max_size=30)


@given(LINES, st.booleans(), st.integers(1, 12), st.integers(1, 60))
@example([""] * 20, True, 3, 60)
@example(["", "x" * 40, "", "y" * 40, ""], True, 2, 10)
@example(["x" * 40], False, 1, 40)
def test_pages_put_together_are_the_file_with_every_blank_line(
    lines: list[str], ends: bool, limit: int, budget: int
) -> None:
    text = "\n".join(lines) + ("\n" if ends and lines else "")
    whole, headers = read(text.encode(), limit=limit, budget=budget)
    if not text:
        assert headers == [f"[{PATH} is empty]"]
        return
    assert whole == text


@given(st.integers(1, 300), st.integers(1, 100))
def test_ranges_in_the_headers_are_without_gap_or_overlap(count: int, limit: int) -> None:
    text = "".join(f"{number}\n" for number in range(count)).encode()
    _, headers = read(text, limit=limit, budget=8_000)
    ranges = [re.search(r"lines (\d+)-(\d+) of (\d+)", one) for one in headers]
    shown = [number for one in ranges if one for number in range(int(one[1]), int(one[2]) + 1)]
    assert shown == list(range(1, count + 1))
    assert {one[3] for one in ranges if one} == {str(count)}
