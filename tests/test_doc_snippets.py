"""Every snippet of every page runs as it stands, alone, without a key and without the network."""

import importlib.util
import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from anyio.from_thread import start_blocking_portal

from tests.databases import made_database
from tests.doc_pages import PAGES, Snippet, snippets
from tests.fake_anthropic import FakeAnthropic
from tests.redis_server import SERVER, keys
from tests.shell.support import need_bubblewrap

SNIPPETS = [one for page in PAGES for one in snippets(page)]
DATA = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}
SHOWN = {"text", "markdown", "yaml", "toml", "json", "python", "dockerfile", "sh"}
"""Languages of blocks; `text` is for output and signatures."""


def named(snippet: Snippet, language: str) -> bool:
    return snippet.language == language and not snippet.why


@pytest.fixture
def surroundings(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Give a snippet an empty directory and the services that it names."""
    code = request.getfixturevalue("snippet").code
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    if "BubblewrapExecutionPolicy" in code or "ShellToolMiddleware" in code:
        if os.name == "nt":
            pytest.skip("shells need a POSIX system")
        need_bubblewrap()
    if "pydantic_ai" in code and importlib.util.find_spec("pydantic_ai") is None:
        pytest.skip("the extra `models` is not installed")
    if "DATABASE_URL" in code:
        for database in made_database():
            monkeypatch.setenv("DATABASE_URL", database.conninfo)
            yield
    elif "REDIS_URL" in code:
        with keys():
            monkeypatch.setenv("REDIS_URL", SERVER)
            yield
    elif '"anthropic:' in code:
        with (
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(FakeAnthropic(["There are three notes."])) as fake,
        ):
            monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
            monkeypatch.setenv("ANTHROPIC_BASE_URL", fake.url)
            yield
    else:
        yield


@pytest.mark.usefixtures("surroundings")
@pytest.mark.parametrize("snippet", [one for one in SNIPPETS if named(one, "python")], ids=str)
def test_a_snippet_runs_alone(snippet: Snippet) -> None:
    assert "import *" not in snippet.code
    if "SqliteCheckpointer(" in snippet.code and "async with" not in snippet.code:
        snippet.run_as_a_program()  # its end closes the journal
    else:
        snippet.run()


@pytest.mark.parametrize("language", DATA)
def test_files_that_are_shown_are_well_formed(language: str) -> None:
    shown = [one for one in SNIPPETS if named(one, language)]
    assert shown
    for one in shown:
        try:
            DATA[language](one.code)
        except ValueError as error:
            raise AssertionError(f"{one}: {error}") from error


def test_each_block_has_a_language_and_each_fragment_a_reason() -> None:
    assert [str(one) for one in SNIPPETS if one.language not in SHOWN] == []
    assert [str(one) for one in SNIPPETS if one.why and len(one.why) < 10] == []
