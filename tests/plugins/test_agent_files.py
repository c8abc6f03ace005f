"""Plugins that an agent file names: backends, journals, and tools of subagents."""

import logging
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from mcp import Client

from deep_agent_mcp.harness.errors import HarnessError
from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.settings.settings import SettingsError
from deep_agent_mcp.server.settings.sources import load_settings
from tests.e2e.servers import call, text_of
from tests.plugins.installed import install, on_path

pytestmark = pytest.mark.anyio

PLACES = """
from urllib.parse import parse_qs, unquote, urlsplit

from deep_agent_mcp.harness import MemoryCheckpointer, SqliteCheckpointer, StateBackend
from deep_agent_mcp.harness.backends.directory import DirectoryBackend

def folder(path="/tmp", *, sure=True):
    if not sure:
        raise OSError("the share is away")
    return DirectoryBackend(path)

def vault(text):
    if text.startswith("gone"):
        raise OSError(f"no vault at {text}")
    if text.startswith("//"):
        parts = urlsplit(text)
        opened = unquote(parts.password or ""), parse_qs(parts.query)
        raise OSError(f"refused: {opened}")
    if text.startswith("kept"):
        return [text]
    return 7 if text == "none" else SqliteCheckpointer(text)

class Slate:
    def __init__(self, text):
        self._kept = MemoryCheckpointer()

    def __getattr__(self, name):
        return getattr(self._kept, name)

def count(text: str) -> int:
    "Count."
    return len(text)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site = tmp_path / "site"
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "a.txt").write_text("apples")
    plugins = {
        "backends": {"folder": "places_pack:folder", "state": "places_pack:StateBackend"},
        "checkpointers": {"vault": "places_pack:vault", "slate": "places_pack:Slate"},
        "tools": {"count": "places_pack:count"},
    }
    install(site, "places-pack", {"places_pack.py": PLACES}, plugins)
    on_path(site, monkeypatch)
    return tmp_path


def settings_of(place: Path, text: str, **flags: object):
    file = place / "deep-agent.toml"
    file.write_text(text, encoding="utf-8")
    return load_settings(
        {"agent_file": str(file), "state_dir": str(place / "state"), **flags},
        {"SHARED": str(place / "shared")},
    )


@asynccontextmanager
async def client_of(settings):
    with anyio.fail_after(60):
        async with create_app(settings) as app, Client(app.server) as client:
            yield client


SHARE = 'backend = "folder", options = { path = "${SHARED}" }'


@pytest.mark.parametrize(
    ("files", "path", "refused"),
    [
        (f'"/" = {{ {SHARE} }}', "", False),
        (f'"/share" = {{ {SHARE}, read_only = true }}', "/share", True),
        ('"/share" = { backend = "places_pack:StateBackend" }', None, False),
        ('"/share" = { backend = "state" }', None, False),
    ],
)
async def test_a_backend_of_a_plugin_is_where_files_live(place, files, path, refused) -> None:
    async with client_of(settings_of(place, f"[files]\n{files}\n")) as client:
        wrote = await client.call_tool(
            "write_file", {"path": f"{path or ''}/b.txt", "content": "x"}
        )
        assert wrote.is_error is refused
        if path is not None:
            read = await client.call_tool("read_file", {"path": f"{path}/a.txt"})
            assert "apples" in text_of(read)
            assert (place / "shared" / "b.txt").exists() is not refused


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ('backend = "foldr"', r"no plugin 'foldr'\. Did you mean 'folder'\? Installed: folder, st"),
        (
            'backend = "folder", options = { sure = false }',
            r"folder raised OSError: the share is away \(.*places_pack\.py:9\)",
        ),
        (
            'backend = "folder", options = { size = 3 }',
            r"folder raised TypeError: .*unexpected keyword argument 'size'",
        ),
        ('backend = "folder", options = { path = "${NO}" }', "options: .* variable NO is not set"),
        ('store = true, options = { path = "x" }', "these are for a backend; add backend"),
        ('store = true, backend = "folder"', "set exactly one of root"),
        ('backend = "places_pack:count"', "places_pack:count raised TypeError"),
        ('backend = { import = "places_pack:PLACE" }', "no attribute 'PLACE'"),
    ],
)
def test_a_backend_that_cannot_be_made_is_named_with_its_line(place, table, told) -> None:
    with pytest.raises(SettingsError, match=rf"deep-agent\.toml:2: files\./x.*{told}"):
        settings_of(place, f'[files]\n"/x" = {{ {table} }}\n')


async def test_a_journal_of_a_plugin_keeps_threads(place, caplog, monkeypatch) -> None:
    monkeypatch.setattr("deep_agent_mcp.server.threads.journal_places.WAIT_SECONDS", 0.1)
    kept = place / "kept" / "threads.db"
    text = f'[journal]\nurl = "vault:{kept}"\n'
    async with client_of(settings_of(place, text)) as client:
        thread = (await call(client, "write_todos", todos=[{"content": "Buy"}]))["thread_id"]
        with pytest.raises(HarnessError, match="journal vault:… is in use by another server"):
            async with client_of(settings_of(place, "", journal=f"vault:{kept}")):
                pass
    assert kept.exists() and not (place / "state" / "journal.sqlite3").exists()
    async with client_of(settings_of(place, "", journal=f"vault:{kept}")) as client:
        assert thread in text_of(await client.call_tool("threads", {}))
    assert "cannot tell" not in caplog.text
    caplog.set_level(logging.WARNING)
    async with client_of(settings_of(place, "", journal="slate")) as client:
        assert await call(client, "write_todos", todos=[{"content": "Buy"}])
    assert "journal slate:… cannot tell whether another server uses it" in caplog.text


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (
            "vualt:s3cret",
            r"URL of 'vualt'.*plugin \(installed: slate, vault\)\. Did you mean vault:",
        ),
        ("s3cret", "named by no URL"),
    ],
)
def test_a_journal_that_no_plugin_keeps_is_named_with_what_there_is(place, url, told) -> None:
    with pytest.raises(SettingsError, match=told) as refused:
        settings_of(place, f'[journal]\nurl = "{url}"\n')
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("vault:gone?password=s3cret", r"plugin 'vault' raised OSError: no vault at …"),
        ("vault://ann:s3cret%21@host/x", "plugin 'vault' raised OSError: refused: ('…'"),
        ("vault://host/x?key=s3cret%2B1", "plugin 'vault' raised OSError: refused: ('', {'key'"),
        ("vault:kept/s3cret", "plugin 'vault' returned an object of type list, which is no"),
        ("vault:none", "plugin 'vault' returned an object of type int, which is not a journal"),
    ],
)
async def test_a_journal_that_a_plugin_does_not_make_starts_nothing(place, url, told) -> None:
    settings = settings_of(place, f'[journal]\nurl = "{url}"\n')
    with pytest.raises(HarnessError) as refused:
        async with client_of(settings):
            pass
    text = str(refused.value)
    assert told in text and "s3cret" not in text


def test_a_subagent_is_given_a_tool_of_a_plugin_by_its_name(place) -> None:
    text = '[agents.counter]\ndescription = "Counts"\ntools = ["ls", "count"]\n'
    (counter,) = settings_of(place, text).definition.parts.subagents
    assert counter.tools[0] == "ls" and counter.tools[1].name == "count"
    text = f'[agent]\ntools = ["count"]\n{text}'
    (counter,) = settings_of(place, text).definition.parts.subagents
    assert counter.tools == ["ls", "count"]  # its caller's


@pytest.mark.parametrize(
    "table",
    [
        '[files]\n"/x" = { backend = "folder" }',
        '[agents.a]\ndescription = "A"\ntools = ["count"]',
        '[agent]\ntools = ["count"]',
    ],
)
def test_a_file_in_the_root_names_no_plugin(place, table) -> None:
    root = place / "root"
    root.mkdir()
    (root / "deep-agent.toml").write_text(table + "\n")
    with pytest.raises(SettingsError, match="where agents and strangers"):
        load_settings({"root": str(root), "trust_root": True}, {})
