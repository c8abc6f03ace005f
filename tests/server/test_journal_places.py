"""A server whose threads and long-term memory are in a database that a URL names."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest
import redis
from click.testing import CliRunner
from mcp import Client

from deep_agent_mcp.harness.checkpoint.keyring import Keyring
from deep_agent_mcp.harness.errors import HarnessError
from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.doctor.state import examine_journal, examine_store
from deep_agent_mcp.server.settings.settings import SettingsError
from deep_agent_mcp.server.settings.sources import load_settings
from tests.databases import SERVER as POSTGRES
from tests.databases import made_database
from tests.fork_server import environment
from tests.pipe_client import piped
from tests.redis_server import SERVER as REDIS
from tests.redis_server import keys

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
TODOS = {"todos": [{"content": "Buy bread"}]}


@pytest.fixture(scope="module")
def database():
    yield from made_database()


@pytest.fixture
def postgres(database) -> str:
    """The URL of a journal that nobody uses."""
    name = database.execute("SELECT current_database()")[0][0]
    parts = urlsplit(POSTGRES)._replace(path=f"/{name}", query=f"schema=s{uuid4().hex}")
    return parts.geturl()


@pytest.fixture
def in_redis() -> Iterator[str]:
    with keys() as found:
        yield f"{REDIS}?schema={found.prefix[:-1]}"
        client = redis.Redis.from_url(REDIS)
        client.delete(f"deep-agent-lease:{found.prefix}")
        client.close()


@pytest.fixture(params=["postgres", "redis", "sqlite"])
def place(request, tmp_path) -> str:
    if request.param == "sqlite":
        return f"sqlite://{tmp_path.as_posix()}/elsewhere/threads.db"
    return request.getfixturevalue({"redis": "in_redis"}.get(request.param, request.param))


@asynccontextmanager
async def serving(state: Path, **flags):
    settings = load_settings({"state_dir": str(state), **flags}, {})
    with anyio.fail_after(30):
        async with create_app(settings) as app, Client(app.server) as client:
            yield client


def threads(state: Path, url: str, *args: str):
    options = ["threads", "--state-dir", str(state), "--journal", url, *args]
    return CliRunner().invoke(cli, options, catch_exceptions=False)


def schedules(state: Path, url: str, *args: str):
    options = ["schedules", "--state-dir", str(state), "--journal", url, *args]
    return CliRunner().invoke(cli, options, catch_exceptions=False)


def refusal(raised) -> str:
    error = raised.value
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    return str(error)


async def thread_of(client: Client) -> str:
    """Write a thread."""
    answer = await client.call_tool("write_todos", TODOS)
    assert not answer.is_error
    return answer.structured_content["thread_id"]


def work(state: Path, url: str) -> str:
    """Serve for a moment, in which a thread is written."""

    async def main() -> str:
        async with serving(state, journal=url) as client:
            return await thread_of(client)

    return anyio.run(main)


def test_threads_are_kept_there_and_found_again(tmp_path, place):
    thread = work(tmp_path / "state", place)
    assert not (tmp_path / "state" / "journal.sqlite3").exists()
    listed = threads(tmp_path / "other", place, "list", "--json")
    assert listed.exit_code == 0, listed.output
    assert [one["thread_id"] for one in json.loads(listed.stdout)["threads"]] == [thread]
    assert threads(tmp_path / "other", place, "delete", thread, "--yes").exit_code == 0
    assert json.loads(threads(tmp_path, place, "list", "--json").stdout)["threads"] == []


async def test_a_second_server_is_refused_until_the_first_has_ended(tmp_path, place, monkeypatch):
    monkeypatch.setattr("deep_agent_mcp.server.threads.journal_places.WAIT_SECONDS", 0.2)
    async with serving(tmp_path / "one", journal=place):
        for state in ("one", "two"):
            with pytest.raises((HarnessError, BaseExceptionGroup)) as refused:
                async with serving(tmp_path / state, journal=place):
                    pass
            text = refusal(refused)
            assert "is in use by another server" in text
            assert "One server at a time" in text
    async with serving(tmp_path / "two", journal=place) as client:
        assert await thread_of(client)


def test_commands_work_beside_a_server_of_the_same_directory_only(tmp_path, place, monkeypatch):
    monkeypatch.setattr("deep_agent_mcp.server.threads.journal_places.WAIT_SECONDS", 0.2)

    async def main() -> None:
        async with serving(tmp_path / "one", journal=place) as client:
            thread = await thread_of(client)

            def both():
                return [threads(tmp_path / one, place, "list", "--json") for one in ("one", "two")]

            beside, elsewhere = await anyio.to_thread.run_sync(both)
            assert beside.exit_code == 0, beside.output
            assert thread in beside.stdout
            assert elsewhere.exit_code == 1
            assert "is in use by another server" in elsewhere.stderr

    anyio.run(main)


@pytest.fixture
def quick(monkeypatch) -> None:
    monkeypatch.setattr("deep_agent_mcp.server.threads.journal_places.WAIT_SECONDS", 0.2)


async def started_in_vain(state: Path, **flags) -> str:
    with pytest.raises((HarnessError, BaseExceptionGroup)) as refused:
        async with serving(state, **flags):
            pass
    return refusal(refused)


async def test_the_journal_of_a_state_directory_in_use_is_not_used_from_elsewhere(tmp_path, quick):
    (tmp_path / "link").symlink_to(tmp_path / "one", target_is_directory=True)
    async with serving(tmp_path / "one") as client:
        thread = await thread_of(client)
        for name in ("one", "link"):
            url = f"sqlite://{tmp_path.as_posix()}/{name}/journal.sqlite3"
            assert "is in use by another" in await started_in_vain(tmp_path / "two", journal=url)
            delete = partial(threads, tmp_path / "two", url, "delete", thread, "--yes")
            assert "is in use by another" in (await anyio.to_thread.run_sync(delete)).stderr
        # Servers of one state directory share its journal, however they name both.
        url = f"sqlite://{tmp_path.as_posix()}/one/journal.sqlite3"
        async with serving(tmp_path / "link", journal=url), serving(tmp_path / "one"):
            pass
    async with serving(tmp_path / "two", journal=url) as client:
        assert await thread_of(client)


async def test_a_state_directory_whose_journal_is_used_elsewhere_is_refused(tmp_path, quick):
    async with serving(tmp_path / "one") as client:
        thread = await thread_of(client)
    journal = tmp_path / "one" / "journal.sqlite3"
    (tmp_path / "link.db").symlink_to(journal)
    url = f"sqlite://{tmp_path.as_posix()}/link.db"

    def command(*args: str):
        options = [args[0], "--state-dir", str(tmp_path / "one"), *args[1:]]
        return CliRunner().invoke(cli, options, catch_exceptions=False)

    def commands():
        yield command("threads", "delete", thread, "--yes")
        yield command("journal", "salvage", str(tmp_path / "new"))
        key = tmp_path / "key"
        key.write_text(Keyring.generate())
        key.chmod(0o600)
        yield command("threads", "--journal-key-file", str(key), "seal", "--plain")

    async with serving(tmp_path / "two", journal=url):
        assert "is in use by another" in await started_in_vain(tmp_path / "one")
        for done in await anyio.to_thread.run_sync(lambda: [*commands()]):
            assert done.exit_code == 1
            assert "is in use by another" in done.stderr
    async with serving(tmp_path / "one"):
        pass
    salvaged = await anyio.to_thread.run_sync(
        command, "journal", "salvage", str(tmp_path / "saved")
    )
    assert salvaged.exit_code == 0 and thread in salvaged.output


def test_a_journal_elsewhere_is_not_salvaged_beside_its_server(tmp_path, quick):
    url = f"sqlite://{tmp_path.as_posix()}/elsewhere/threads.db"

    def salvage(state: str):
        options = ["journal", "--state-dir", str(tmp_path / state), "--journal", url, "salvage"]
        return CliRunner().invoke(cli, [*options, str(tmp_path / "new")])

    async def main() -> None:
        async with serving(tmp_path / "one", journal=url) as client:
            await thread_of(client)
            for state in ("one", "two"):
                done = await anyio.to_thread.run_sync(salvage, state)
                assert done.exit_code == 1 and "use" in done.stderr
                assert not (tmp_path / "new").exists()

    anyio.run(main)
    assert salvage("two").exit_code == 0


@pytest.mark.parametrize("kind", ["postgres", "in_redis"])
@pytest.mark.skipif(sys.platform == "win32", reason="processes are killed as POSIX systems do it")
def test_a_server_that_was_killed_keeps_nobody_out(tmp_path, request, kind):
    place = request.getfixturevalue(kind)
    command = [
        *(sys.executable, "-m", "deep_agent_mcp", "serve"),
        *("--state-dir", str(tmp_path / "state"), "--journal", place),
    ]
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    with piped(command, environment(tmp_path), tmp_path) as server:
        server.stdin.write(json.dumps(asked).encode() + b"\n")
        server.stdin.flush()
        assert "result" in json.loads(server.stdout.readline())
        server.process.kill()
        server.process.wait(60)
    work(tmp_path / "state", place)


def test_a_journal_in_a_database_can_be_sealed(tmp_path, postgres):
    work(tmp_path, postgres)
    key = tmp_path / "key"
    key.write_text(Keyring.generate())
    key.chmod(0o600)
    added = schedules(tmp_path, postgres, "add", "tidy", "Tidy up.", "--cron", "0 * * * *")
    assert added.exit_code == 0, added.output
    sealed = threads(tmp_path, postgres, "--journal-key-file", str(key), "seal", "--plain")
    assert sealed.exit_code == 0, sealed.output
    listed = schedules(tmp_path, postgres, "--journal-key-file", str(key), "list")
    assert "Tidy up." in listed.output
    assert "Tidy up." not in schedules(tmp_path, postgres, "list").output
    assert "encrypted" in threads(tmp_path, postgres, "list").stderr
    listed = threads(tmp_path, postgres, "--journal-key-file", str(key), "list")
    assert listed.exit_code == 0, listed.output


def test_a_journal_in_memory_is_nobody_elses(tmp_path):
    work(tmp_path, "memory:")
    listed = threads(tmp_path, "memory:", "list")
    assert listed.exit_code == 1
    assert "in the memory of the server" in listed.stderr


def test_commands_on_files_say_that_there_is_none(tmp_path, postgres):
    options = ["journal", "--state-dir", str(tmp_path), "--journal", postgres, "check"]
    checked = CliRunner().invoke(cli, options)
    assert checked.exit_code == 1
    assert "not a file" in checked.stderr


async def test_the_doctor_looks_at_both(tmp_path, postgres):
    flags = {"state_dir": str(tmp_path), "journal": postgres, "store": postgres}
    settings = load_settings(flags, {})
    found = [*await examine_journal(settings), *await examine_store(settings)]
    assert [(one.about, one.status) for one in found] == [("journal", "ok"), ("store", "ok")]
    gone = "postgresql://u:s3cret@127.0.0.1:1/d"
    settings = load_settings({**flags, "journal": gone, "store": gone}, {})
    found = [*await examine_journal(settings), *await examine_store(settings)]
    assert [one.status for one in found] == ["broken", "broken"]
    assert "s3cret" not in repr(found)


async def test_agents_are_given_the_store(tmp_path, postgres):
    settings = load_settings({"state_dir": str(tmp_path), "store": postgres}, {})
    async with create_app(settings) as app:
        store = app.agent.of().agent().definition.store
        await store.put(("a",), "k", {"text": "v"})
        assert (await store.get(("a",), "k")).value == {"text": "v"}


def secret_file(folder: Path, text: str) -> str:
    path = folder / "url"
    path.write_text(text + "\n", encoding="utf-8")
    path.chmod(0o600)
    return str(path)


@pytest.mark.parametrize("key", ["journal", "store"])
def test_the_url_is_read_from_every_source_and_shown_by_none(tmp_path, key):
    url = "postgresql://u:s3cret@h/d"
    file = secret_file(tmp_path, url)
    config = tmp_path / "config.toml"
    config.write_text(f'{key}_url_file = "url"\n', encoding="utf-8")
    for settings in (
        load_settings({key: url}, {}),
        load_settings({}, {f"DEEP_AGENT_{key.upper()}": url}),
        load_settings({f"{key}_url_file": file}, {}),
        load_settings({}, {f"DEEP_AGENT_{key.upper()}_URL_FILE": file}),
        load_settings({}, {}, config=config),
    ):
        assert getattr(settings, key).get_secret_value() == url
        assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(
    ("flags", "text", "words"),
    [
        ({"journal": "mysql://u:s3cret@h/d"}, "", "URL of 'mysql'; nothing was opened. It begins"),
        ({"store": "mysql://:s3cret@h/0"}, "", "not a URL that begins with memory:"),
        ({}, 'journal = "postgresql://u:s3cret@h/d"', "it has a password"),
        ({}, 'journal = "postgresql://u:12/s3cret@h/d"', "it has a password"),
        ({}, 'journal = "postgresql://u:12?s3cret@h/d"', "it has a password"),
        ({}, 'journal = "postgresql://u:s3cret@[::1]:1,[::2]:1/d"', "it has a password"),
        ({}, 'store = "postgresql://h/d?password=s3cret"', "it has a password"),
        ({"journal": "memory:", "journal_url_file": "x"}, "", "exclude each other"),
        ({"journal_url_file": "/no/such/file"}, "", "not an existing file"),
    ],
)
def test_a_url_that_is_refused_is_not_shown(tmp_path, flags, text, words):
    config = tmp_path / "config.toml"
    config.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError) as refused:
        load_settings(flags, {}, config=config)
    assert words in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_relative_file_counts_from_the_configuration_file(tmp_path):
    config = tmp_path / "a b" / "config.toml"
    config.parent.mkdir()
    config.write_text('journal = "sqlite:threads.db"', encoding="utf-8")
    work_in = load_settings({}, {}, config=config).journal.get_secret_value()
    assert work_in == f"sqlite://{(tmp_path / 'a%20b' / 'threads.db').as_posix()}"


async def test_a_server_stops_when_another_took_its_journal_over(tmp_path, in_redis, monkeypatch):
    monkeypatch.setattr("deep_agent_mcp.server.threads.journal_places.RENEW_SECONDS", 0.05)
    client = redis.Redis.from_url(REDIS)
    prefix = in_redis.partition("schema=")[2]
    with pytest.raises((HarnessError, BaseExceptionGroup)) as stopped:
        async with serving(tmp_path, journal=in_redis):
            client.set(f"deep-agent-lease:{prefix}:", "abc 1234 other.host")
            await anyio.sleep_forever()
    client.close()
    assert "was taken over by another server or command on other.host" in refusal(stopped)


async def test_a_lost_connection_is_made_again(tmp_path, database, postgres, monkeypatch):
    monkeypatch.setattr("deep_agent_mcp.server.threads.journal_places.RENEW_SECONDS", 0.05)
    held = (
        "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database"
        " WHERE locktype = 'advisory' AND granted AND datname = current_database()"
    )
    async with serving(tmp_path, journal=postgres) as client:
        database.terminate("application_name LIKE 'deep-agent-mcp %'")
        while database.execute(held) != [(1,)]:  # noqa: ASYNC110  no event tells
            await anyio.sleep(0.02)
        assert await thread_of(client)
