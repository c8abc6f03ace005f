"""Every snippet of docs/stores.md runs as it is written."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.doc_pages import DocPage
from tests.redis_server import SERVER, keys

PAGE = DocPage("stores.md")
CONNINFO = "postgresql://me@localhost/mine"
URL, MY_KEYS = "redis://localhost:6379/0", "my-agents:"


@pytest.mark.parametrize("title", PAGE.titles)
def test_the_snippets_of_a_section_run(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    conninfo = CONNINFO
    if title == "Postgres":
        conninfo = request.getfixturevalue("database").conninfo
    with keys() if title == "Redis" else nullcontext() as found:
        prefix = MY_KEYS if found is None else found.prefix
        PAGE.run(
            title,
            lambda code: (
                code.replace(CONNINFO, conninfo).replace(URL, SERVER).replace(MY_KEYS, prefix)
            ),
        )


def test_every_section_has_a_snippet_and_the_page_stays_short() -> None:
    assert PAGE.without_snippet() == []
    assert CONNINFO in PAGE.text("Postgres")
    assert URL in PAGE.text("Redis") and MY_KEYS in PAGE.text("Redis")
    assert PAGE.lines <= 260
