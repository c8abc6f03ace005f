"""Every snippet of these pages runs as it is written, without a key or a network."""

from pathlib import Path

import pytest

from tests.doc_pages import DocPage

MOST_LINES = {
    "backends.md": 150,
    "background-subagents.md": 260,
    "journals.md": 320,
    "library.md": 420,
    "middleware.md": 240,
    "policy.md": 150,
    "subagents.md": 220,
}
"""How long each page may become."""

PAGES = {name: DocPage(name) for name in MOST_LINES}


@pytest.mark.parametrize(
    ("name", "title"), [(name, title) for name, page in PAGES.items() for title in page.titles]
)
def test_the_snippets_of_a_section_run(
    name: str, title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    PAGES[name].run(title)


@pytest.mark.parametrize("name", PAGES)
def test_every_section_has_a_snippet_and_the_page_stays_short(name: str) -> None:
    assert PAGES[name].without_snippet() == []
    assert PAGES[name].lines <= MOST_LINES[name]
