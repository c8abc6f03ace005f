"""Every snippet of docs/background-subagents.md runs as it is written."""

from pathlib import Path

import pytest

from tests.doc_pages import DocPage

PAGE = DocPage("background-subagents.md")


@pytest.mark.parametrize("title", PAGE.titles)
def test_the_snippets_of_a_section_run(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    PAGE.run(title)


def test_every_section_has_a_snippet_and_the_page_stays_short() -> None:
    assert PAGE.without_snippet() == []
    assert PAGE.lines <= 260
