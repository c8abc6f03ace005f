"""Every snippet of docs/middleware.md runs as it is written."""

from pathlib import Path

import pytest

import harness.middleware
from tests.doc_pages import DocPage

PAGE = DocPage("middleware.md")


@pytest.mark.parametrize("title", PAGE.titles)
def test_the_snippets_of_a_section_run(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    PAGE.run(title)


def test_every_middleware_is_on_the_page() -> None:
    text = PAGE.path.read_text(encoding="utf-8")
    ends = ("Middleware", "Emulator")
    named = [name for name in harness.middleware.__all__ if name.endswith(ends)]
    assert [name for name in named if f"`{name}`" not in text] == []
    assert PAGE.without_snippet() == []
    assert PAGE.lines <= 240
