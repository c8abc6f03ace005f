"""Every snippet of docs/stores.md runs as it is written."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "stores.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONNINFO = "postgresql://me@localhost/mine"


def sections() -> Iterator[tuple[str, int, str]]:
    """Yield the title, first line and text of each section."""
    page = PAGE.read_text(encoding="utf-8")
    starts = [found.start() for found in re.finditer(r"^## ", page, re.MULTILINE)]
    for start, end in zip(starts, [*starts[1:], len(page)], strict=True):
        text = page[start:end]
        yield text.splitlines()[0].removeprefix("## "), page[:start].count("\n"), text


SECTIONS = {title: (line, text) for title, line, text in sections()}
FIRST = next(iter(SECTIONS))


def run(title: str, names: dict[str, Any], conninfo: str = CONNINFO) -> None:
    """Run the snippets of a section one after the other; places in errors are those of the page."""
    line, text = SECTIONS[title]
    for block in BLOCK.finditer(text):
        above = line + text[: block.start(1)].count("\n")
        code = compile("\n" * above + block[1].replace(CONNINFO, conninfo), str(PAGE), "exec")
        exec(code, names)


@pytest.mark.parametrize("title", SECTIONS)
def test_the_snippets_of_a_section_run(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "stores"}
    run(FIRST, names)
    if title == "Postgres":
        run(title, names, request.getfixturevalue("database").conninfo)
    elif title != FIRST:
        run(title, names)


def test_every_section_has_a_snippet_and_the_page_stays_short() -> None:
    assert [title for title, (_, text) in SECTIONS.items() if not BLOCK.search(text)] == []
    assert CONNINFO in SECTIONS["Postgres"][1]
    assert len(PAGE.read_text(encoding="utf-8").splitlines()) <= 240
