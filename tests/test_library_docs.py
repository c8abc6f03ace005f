"""Every snippet of docs/library.md runs as it is written, without a key or a network."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "library.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def sections() -> Iterator[tuple[str, int, str]]:
    """Yield the title, first line and text of each section."""
    page = PAGE.read_text(encoding="utf-8")
    starts = [found.start() for found in re.finditer(r"^## ", page, re.MULTILINE)]
    for start, end in zip(starts, [*starts[1:], len(page)], strict=True):
        text = page[start:end]
        yield text.splitlines()[0].removeprefix("## "), page[:start].count("\n"), text


SECTIONS = {title: (line, text) for title, line, text in sections()}
FIRST = next(iter(SECTIONS))


def run(title: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run the snippets of a section one after the other; places in errors are those of the page."""
    line, text = SECTIONS[title]
    for block in BLOCK.finditer(text):
        above = line + text[: block.start(1)].count("\n")
        code = compile("\n" * above + block[1], str(PAGE), "exec")
        exec(code, names)
    return names


@pytest.mark.parametrize("title", SECTIONS)
def test_the_snippets_of_a_section_run(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    # A section may use what the first one defines, and nothing of the others.
    names: dict[str, Any] = {"__name__": "library"}
    run(FIRST, names)
    if title != FIRST:
        run(title, names)


def test_every_section_has_a_snippet_and_the_page_stays_short() -> None:
    without = [title for title, (_, text) in SECTIONS.items() if not BLOCK.search(text)]
    assert without == []
    assert len(PAGE.read_text(encoding="utf-8").splitlines()) <= 420
