"""Where an agent keeps things is named by URLs and a table of paths."""

import socket
import sys
from contextlib import nullcontext
from urllib.parse import urlsplit

import anyio
import pytest

from deep_agent_mcp.harness.agent_file.places import (
    open_cache,
    open_checkpointer,
    open_store,
    scheme_of,
    shown_place,
    split_database_url,
)
from deep_agent_mcp.harness.agent_file.routes import RouteSpec, backend_from_routes
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import AgentBuildError, HarnessError
from deep_agent_mcp.harness.loop.run_executor import RunOptions
from deep_agent_mcp.harness.store.memory import MemoryStore
from tests.databases import SERVER as POSTGRES
from tests.databases import made_database
from tests.loop.models import Turns, call, says
from tests.mcp_servers.support import results
from tests.redis_server import SERVER as REDIS
from tests.redis_server import keys

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def postgres():
    """The URL of a database."""
    for database in made_database():
        name = database.execute("SELECT current_database()")[0][0]
        yield urlsplit(POSTGRES)._replace(path=f"/{name}").geturl()


def lengths(texts):
    return [[float(len(one)), 1.0] for one in texts]


async def meanings(texts):
    """Texts are alike if they begin alike."""
    return [[float(one[:1] == letter) for letter in "abc"] for one in texts]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "relative", "postgres"])
async def test_a_store_keeps_what_it_is_given(tmp_path, request, kind):
    url = {
        "memory": "memory:",
        "sqlite": f"sqlite://{tmp_path.as_posix()}/a%20b/store.db",
        "relative": "sqlite:new/store.db",
    }.get(kind) or request.getfixturevalue("postgres")
    async with open_store(url, base=tmp_path) as store:
        await store.put(("a",), "k", {"text": "v"})
        assert (await store.get(("a",), "k")).value == {"text": "v"}
    if kind == "sqlite":
        assert (tmp_path / "a b" / "store.db").is_file()
    if kind == "relative":
        assert (tmp_path / "new" / "store.db").is_file()


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "redis"])
async def test_a_store_finds_by_meaning_with_an_embedding_that_is_named(tmp_path, request, kind):
    with keys() if kind == "redis" else nullcontext() as found:
        url = {"memory": "memory:", "sqlite": "sqlite:vectors.db", "redis": REDIS}.get(kind)
        url = url or request.getfixturevalue("postgres")
        embed = f"{__name__}:meanings"
        url += {"postgres": "?schema=vectors", "redis": "?schema="}.get(kind, "")
        url += found.prefix[:-1] if kind == "redis" else ""
        async with open_store(url, base=tmp_path, embed=embed, dims=3) as store:
            for text in ("apple", "bread", "cheese"):
                await store.put(("food",), text, {"text": text})
            best, *_ = await store.search(("food",), query="butter")
            assert best.key == "bread"


async def test_an_embedding_may_be_an_ordinary_function():
    async with open_store("memory:", embed=f"{__name__}:lengths") as store:
        await store.put(("a",), "long", {"text": "x" * 50})
        await store.put(("a",), "short", {"text": "x"})
        best, *_ = await store.search(("a",), query="y" * 49)
        assert best.key == "long"


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "redis"])
async def test_a_journal_keeps_threads(tmp_path, request, kind):
    with keys() if kind == "redis" else nullcontext() as found:
        url = {"memory": "memory:", "sqlite": "sqlite:journal.db", "redis": REDIS}.get(kind)
        url = url or request.getfixturevalue("postgres")
        url += f"?schema={found.prefix[:-1]}" if kind == "redis" else ""
        async with open_checkpointer(url, base=tmp_path) as journal:
            agent = create_deep_agent(Turns(says("hi")), checkpointer=journal)
            await agent.ainvoke("go", thread_id="t")
            assert [one.thread_id for one in await journal.threads(limit=5)] == ["t"]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "redis"])
async def test_a_cache_keeps_what_it_is_given(tmp_path, request, kind):
    with keys() if kind == "redis" else nullcontext() as found:
        url = {"memory": "memory:", "sqlite": "sqlite:cache.db", "redis": REDIS}.get(kind)
        url = url or request.getfixturevalue("postgres")
        url += f"?schema={found.prefix[:-1]}" if kind == "redis" else ""
        cache = open_cache(url, base=tmp_path)
        await cache.set("k", b"v", None)
        assert await cache.get("k") == b"v"
        close = getattr(cache, "close", None)
        if close is not None:
            await close()
        if kind == "redis":
            assert found.all() == sorted(
                b"cache:" + key for key in (b"ages", b"meta", b"sizes", b"values")
            )


async def test_journal_store_and_cache_share_a_database_of_redis():
    with keys() as found:
        url = f"{REDIS}?schema={found.prefix[:-1]}"
        cache = open_cache(url)
        async with open_checkpointer(url) as journal, open_store(url) as store:
            agent = create_deep_agent(Turns(says("hi")), checkpointer=journal, store=store)
            await agent.ainvoke("go", thread_id="t")
            await store.put(("a",), "k", {"text": "v"})
            await cache.set("k", b"v", None)
            await cache.clear()
            await journal.delete_thread("t")
            assert [item.key for item in await store.search(query="v")] == ["k"]
            assert await cache.get("k") is None
        await cache.close()


@pytest.mark.parametrize(
    ("opener", "url", "words"),
    [
        (open_store, "mysql://:s3cret@h/0", "Accepted: memory:, sqlite:///"),
        (open_store, "rdis://:s3cret@h/0", "Did you mean redis:?"),
        (open_cache, "mongodb://u:s3cret@h/d", "Accepted: memory:, sqlite:///"),
        (open_cache, "postgresql://u:s3cret@h:port/d", "its port is not a number"),
        (open_store, "redis://u:s3cret@h:port/0", "not a URL of a Redis"),
        (open_cache, "redis://u:s3cret@h:1/0?nonsense=s3cret", "not a URL of a Redis"),
        (open_checkpointer, "mysql://u:s3cret@h/d", "redis: or the name of a plugin"),
        (open_checkpointer, "s3cret", "named by no URL"),
        (open_checkpointer, "sqlite://s3cret@host/x", "a file is expected"),
        (open_store, "sqlite:", "a file is expected"),
        (open_store, "sqlite:///x?key=s3cret", "a file is expected"),
        (open_store, "postgresql://u:s3cret@h:port/d", "its port is not a number"),
        (open_store, "postgresql://u:s3cret@h:1,h:port/d", "its port is not a number"),
        (open_store, "postgresql://u:s3cret@[::1/d", "not a URL of a Postgres"),
        (open_store, "postgresql://u:p@s3cret@h:5/d?nonsense=s3cret", "not a URL of a Postgres"),
        (open_checkpointer, "redis://u:s3cret@h:port/0", "not a URL of a Redis"),
    ],
)
def test_a_url_that_cannot_be_used_is_explained_without_its_secrets(opener, url, words):
    with pytest.raises(AgentBuildError) as refused:
        opener(url)
    assert words in str(refused.value)
    assert "Nothing was opened" in str(refused.value) or "nothing was opened" in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("embed", ["no_such_module:f", f"{__name__}:missing", "plain", "math:pi"])
def test_an_embedding_that_is_not_there_is_explained(embed):
    with pytest.raises(AgentBuildError, match="embed"):
        open_store("memory:", embed=embed)


@pytest.mark.parametrize(
    ("opener", "url", "package", "extra"),
    [
        (open_store, "postgresql://h/d", "databases.postgres", "postgres"),
        (open_checkpointer, "postgresql://h/d", "databases.postgres", "postgres"),
        (open_cache, "postgresql://h/d", "databases.postgres", "postgres"),
        (open_checkpointer, "redis://h/0", "databases.redis", "redis"),
        (open_store, "redis://h/0", "databases.redis", "redis"),
        (open_cache, "redis://h/0", "databases.redis", "redis"),
    ],
)
def test_a_missing_extra_is_named(monkeypatch, opener, url, package, extra):
    for name in [one for one in sys.modules if one.startswith("deep_agent_mcp.harness.")]:
        if ".postgres" in name or ".redis" in name:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, f"deep_agent_mcp.harness.{package}", None)
    with pytest.raises(AgentBuildError, match=rf"pip install 'deep-agent-mcp\[{extra}\]'"):
        opener(url)


@pytest.mark.parametrize("scheme", ["postgresql", "redis"])
async def test_a_database_that_does_not_answer_is_not_waited_for_forever(scheme):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"{scheme}://user:s3cret@127.0.0.1:{silent.getsockname()[1]}/0"
        with anyio.fail_after(10), pytest.raises(HarnessError) as failed:
            async with open_checkpointer(url, timeout=0.3):
                pass
    assert "s3cret" not in str(failed.value)


@pytest.mark.parametrize("scheme", ["postgresql", "redis"])
async def test_a_database_that_is_not_there_is_an_error(scheme):
    with pytest.raises(HarnessError) as failed:
        async with open_checkpointer(f"{scheme}://user:s3cret@127.0.0.1:1/0", timeout=5):
            pass
    assert "s3cret" not in str(failed.value)


@pytest.mark.parametrize(
    ("url", "scheme", "shown"),
    [
        ("postgres://u:s3cret@h:5/d?password=s3cret", "postgresql", "postgres://h:5/d"),
        ("redis://:s3cret@h/0", "redis", "redis://h/0"),
        ("sqlite:///a/b", "sqlite", "sqlite:///a/b"),
        ("sqlite:a/b", "sqlite", "sqlite:a/b"),
        ("sqlite:///home/me@work/a.db", "sqlite", "sqlite:///home/me@work/a.db"),
        ("postgres://h/d?user=u@h&password=s3cret", "postgresql", "postgres://h/d"),
        ("memory:", "memory", "memory:"),
        ("postgres://u/v:s3cret@h:5/d", "postgresql", "(a URL that cannot be read)"),
        ("postgres:///u:s3cret@h:5/d", "postgresql", "(a URL that cannot be read)"),
        ("postgres://u:s3/cret@h:5/d", "postgresql", "(a URL that cannot be read)"),
        ("postgres://u:12/s3cret@h:5/d", "postgresql", "(a URL that cannot be read)"),
        ("postgres://u:12?s3cret@h:5/d", "postgresql", "(a URL that cannot be read)"),
        ("postgres://u:s3cret@h:5/d@x", "postgresql", "postgres://h:5/d@x"),
        ("s3cret", None, "(a URL that cannot be read)"),
    ],
)
def test_places_are_shown_without_secrets(url, scheme, shown):
    assert (scheme_of(url), shown_place(url)) == (scheme, shown)


@pytest.mark.parametrize(
    ("url", "rest"),
    [
        ("postgresql:///agent?schema=x", "postgresql:///agent"),
        ("postgresql:///a?host=/tmp&schema=x&user=u", "postgresql:///a?host=/tmp&user=u"),
        ("postgresql://h1:5432,h2:5433/d?schema=x", "postgresql://h1:5432,h2:5433/d"),
        ("postgresql://[::1]:5432,[::2]/d?schema=x", "postgresql://[::1]:5432,[::2]/d"),
        ("redis://h/0?schema=x&db=1", "redis://h/0?db=1"),
    ],
)
def test_a_schema_changes_nothing_else_of_a_url(url, rest):
    assert split_database_url(url) == (rest, "x")
    open_store(url)


async def test_several_hosts_of_a_database_are_tried(postgres):
    parts = urlsplit(postgres)
    user, _, host = parts.netloc.rpartition("@")
    url = parts._replace(netloc=f"{user}@127.0.0.1:1,{host}", query="schema=several").geturl()
    assert shown_place(url) == f"{parts.scheme}://127.0.0.1:1,{host}{parts.path}"
    async with open_store(url) as store:
        await store.put(("a",), "k", {"text": "v"})


async def run(backend, *calls, principal="", **options):
    """Make calls, one turn each, and return what they came to."""
    agent = create_deep_agent(
        Turns(*(says("", one) for one in calls), says("ok")), backend=backend, **options
    )
    result = await agent.ainvoke("go", options=RunOptions(principal=principal))
    return results(result)


async def test_routes_say_where_files_live(tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("text", encoding="utf-8")
    store = MemoryStore()
    backend = backend_from_routes(
        {
            "/": {"root": "project"},
            "/memories": {"store": True},
            "/scratch": RouteSpec(thread=True),
            "/docs": {"root": "docs", "read_only": True},
        },
        base=tmp_path,
    )
    written = await run(
        backend,
        call("1", "write_file", path="/a.txt", content="on disk"),
        call("2", "write_file", path="/memories/m.md", content="remembered"),
        call("3", "write_file", path="/scratch/s.md", content="passing"),
        call("4", "read_file", path="/docs/a.md"),
        call("5", "write_file", path="/docs/a.md", content="changed"),
        call("6", "edit_file", path="/docs/a.md", old_string="text", new_string="other"),
        call("7", "grep", pattern="text", path="/docs"),
        store=store,
    )
    assert [one.status for one in written] == [*["success"] * 4, "error", "error", "success"]
    assert "/docs/a.md is read-only; nothing was changed" in written[5].content
    assert "a.md" in written[6].content
    assert (tmp_path / "project" / "a.txt").read_text(encoding="utf-8") == "on disk"
    assert [one.name for one in (tmp_path / "project").iterdir()] == ["a.txt"]
    assert (tmp_path / "docs" / "a.md").read_text(encoding="utf-8") == "text"
    again = await run(backend, call("1", "read_file", path="/memories/m.md"), store=store)
    assert "remembered" in again[0].content
    again = await run(backend, call("1", "read_file", path="/scratch/s.md"), store=store)
    assert again[0].status == "error"


async def test_each_principal_has_its_own_memories():
    store = MemoryStore()
    backend = backend_from_routes({"/memories": {"store": True}}, store=store)
    write = call("1", "write_file", path="/memories/m.md", content="of ann")
    read = call("1", "read_file", path="/memories/m.md")
    assert (await run(backend, write, principal="ann@example.com"))[0].status == "success"
    assert "of ann" in (await run(backend, read, principal="ann@example.com"))[0].content
    for other in ("", "local", "ann@example", "ann@example%2Ecom", "principal:ann"):
        assert (await run(backend, read, principal=other))[0].status == "error"


async def test_two_routes_of_one_store_keep_apart():
    backend = backend_from_routes({"/a": {"store": True}, "/b": {"store": True}})
    write = call("1", "write_file", path="/a/x", content="1")
    read = call("2", "read_file", path="/b/x")
    written, missing = await run(backend, write, read, store=MemoryStore())
    assert (written.status, missing.status) == ("success", "error")


@pytest.mark.parametrize(
    ("routes", "words"),
    [
        ({"memories": {"store": True}}, "begin with /"),
        ({"/x": {}}, "one of root = DIRECTORY"),
        ({"/x": {"store": True, "root": "."}}, "one of root = DIRECTORY"),
        ({"/x": {"stor": True}}, "Did you mean 'store'"),
        ({"/x": {"store": "yes"}}, "true or false"),
        ({"/x": {"root": 1}}, "path of a directory"),
        ({"/x": {"root": "/no/such/directory"}}, "not a directory"),
        ({"/x": {"thread": True, "read_only": True}}, "would stay empty"),
        ({"/x": {"thread": True}}, "only one part can be a StateBackend"),
    ],
)
def test_routes_that_make_no_sense_are_refused(routes, words):
    with pytest.raises(AgentBuildError, match=words):
        backend_from_routes(routes)


def test_a_journal_file_is_the_kind_the_server_uses(tmp_path):
    assert isinstance(open_checkpointer("sqlite:x.db", base=tmp_path), SqliteCheckpointer)
    assert isinstance(open_checkpointer("memory:"), MemoryCheckpointer)
