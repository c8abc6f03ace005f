"""Every snippet of docs/stores.md runs as it is written."""

from pathlib import Path

import pytest

from tests.doc_pages import DocPage

PAGE = DocPage("stores.md")
CONNINFO = "postgresql://me@localhost/mine"


@pytest.mark.parametrize("title", PAGE.titles)
def test_the_snippets_of_a_section_run(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    conninfo = CONNINFO
    if title == "Postgres":
        conninfo = request.getfixturevalue("database").conninfo
    PAGE.run(title, lambda code: code.replace(CONNINFO, conninfo))


def test_every_section_has_a_snippet_and_the_page_stays_short() -> None:
    assert PAGE.without_snippet() == []
    assert CONNINFO in PAGE.text("Postgres")
    assert PAGE.lines <= 240
