"""An agent made in Python behind the server: offered, judged, restarted and refused."""

import importlib
import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from traceback import format_exception
from typing import Any
from uuid import uuid4

import anyio
import pytest
from click.testing import CliRunner
from mcp import Client

from deep_agent_mcp import (
    Agent,
    CompiledSubAgent,
    DirectoryBackend,
    Limits,
    Policy,
    Rule,
    ScriptedModel,
    SqliteCheckpointer,
    ToolRuntime,
    create_agent,
    create_deep_agent,
    tool,
)
from deep_agent_mcp.harness.checkpoint.encryption import EncryptedCheckpointer
from deep_agent_mcp.harness.checkpoint.keyring import Keyring
from deep_agent_mcp.harness.checkpoint.postgres import PostgresCheckpointer
from deep_agent_mcp.harness.checkpoint.redis import RedisCheckpointer
from deep_agent_mcp.harness.errors import HarnessError
from deep_agent_mcp.harness.middleware.todo_list import TodoListMiddleware
from deep_agent_mcp.harness.skills import SkillRegistry
from deep_agent_mcp.server import ServeContext
from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.operations import served_files
from deep_agent_mcp.server.python_agents import source as source_module
from deep_agent_mcp.server.python_agents.source import AgentSource
from deep_agent_mcp.server.reload import hot_reload
from deep_agent_mcp.server.settings.settings import Settings, SettingsError
from deep_agent_mcp.server.settings.sources import load_settings
from tests.databases import Database, made_database
from tests.redis_server import SERVER as REDIS
from tests.redis_server import keys

pytestmark = pytest.mark.anyio

DELEGATION = ["task", "wait", "reply", "cancel", "threads", "rewind"]
FILES = ["ls", "read_file", "write_file", "edit_file", "glob", "grep"]


def call(name: str, **args: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "args": args}]}


def says(text: str) -> dict[str, Any]:
    return {"text": text}


@tool
def order(item: str) -> str:
    """Order an item."""
    return f"ordered {item}"


def buyer(**options: Any) -> Agent:
    return create_agent(
        ScriptedModel([call("order", item="pears"), says("Done.")]), [order], **options
    )


@asynccontextmanager
async def served(given: Any, place: Path, **flags: object) -> AsyncIterator[App]:
    settings = load_settings({"state_dir": str(place / "state"), **flags}, {})
    with anyio.fail_after(60):
        async with create_app(settings, source=AgentSource(given, owns_process=True)) as app:
            yield app


@asynccontextmanager
async def client_of(given: Any, place: Path, **flags: object) -> AsyncIterator[Client]:
    async with served(given, place, **flags) as app, Client(app.server) as client:
        yield client


async def names(client: Client) -> list[str]:
    return [one.name for one in (await client.list_tools()).tools]


async def ask(client: Client, name: str, **args: Any) -> dict[str, Any]:
    result = await client.call_tool(name, args)
    return dict(result.structured_content or {}) | {"text": result.content[0].text}  # type: ignore[union-attr]


# --- what clients see --------------------------------------------------------------------


async def test_an_agent_without_files_todos_and_skills_offers_none(tmp_path: Path) -> None:
    async with client_of(buyer(), tmp_path) as client:
        assert await names(client) == DELEGATION
        assert "write_todos" not in (client.instructions or "")
        run = await ask(client, "task", goal="Buy pears.")
        assert (run["status"], run["answer"]) == ("done", "Done.")
        shown = await ask(client, "threads", thread_id=run["thread_id"])
        assert shown["todos"] == []
        for part in ("todos", "files"):
            read = await client.read_resource(f"thread://{run['thread_id']}/{part}")
            assert read.contents[0].text == "[]"  # type: ignore[union-attr]
        assert "pears" in str(await client.read_resource(f"thread://{run['thread_id']}/transcript"))
        listed = [str(one.uri) for one in (await client.list_resources()).resources]
        assert not [one for one in listed if one.startswith(("skill://", "agent://"))]


async def test_a_subagent_that_is_not_there_is_refused_in_words(tmp_path: Path) -> None:
    async with client_of(buyer(), tmp_path) as client:
        for args in ({"agent": "general-purpose"}, {"task_id": "sub-1", "thread_id": "thr_1"}):
            refused = await ask(client, "task", goal="Buy.", **args)
            assert "subagent" in refused["text"], args


async def test_only_tools_of_ours_are_driven(tmp_path: Path) -> None:
    @tool(name="grep")
    def own_grep(pattern: str) -> str:
        """Search something else."""
        return pattern

    agent = create_agent(
        ScriptedModel([says("Hi.")]), [order, own_grep], middleware=[TodoListMiddleware()]
    )
    async with client_of(agent, tmp_path) as client:
        assert await names(client) == ["write_todos", *DELEGATION]
        todos = [{"content": "Buy", "status": "pending"}]
        done = await ask(client, "write_todos", todos=todos)
        read = await client.read_resource(f"thread://{done['thread_id']}/todos")
        assert "Buy" in read.contents[0].text  # type: ignore[union-attr]


async def test_a_deep_agent_has_all_tools_its_own_files_and_its_subagents(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("apples")
    helper = create_agent(ScriptedModel([says("helped")]), name="helper")
    agent = create_deep_agent(
        ScriptedModel([says("Hi.")]),
        backend=DirectoryBackend(tmp_path / "files"),
        subagents=[CompiledSubAgent("helper", "Helps.", helper)],
    )
    async with client_of(agent, tmp_path) as client:
        assert await names(client) == ["write_todos", *FILES, "skill", *DELEGATION]
        assert "apples" in (await ask(client, "read_file", path="/a.txt"))["text"]
        run = await ask(client, "task", goal="Help.", agent="helper")
        assert "helped" in run["answer"]
        read = await client.read_resource(f"thread://{run['thread_id']}/files/a.txt")
        assert read.contents[0].text == "apples"  # type: ignore[union-attr]
        wrote = await ask(client, "write_file", path="/b.txt", content="new")
        shown = await ask(client, "threads", thread_id=wrote["thread_id"])
        first = shown["checkpoints"][-1]["checkpoint_id"]
        await ask(client, "rewind", thread_id=wrote["thread_id"], checkpoint_id=first)
        assert not (tmp_path / "files" / "b.txt").exists()


# --- the operator's rules ------------------------------------------------------------------------


async def test_the_operators_approvals_hold_and_survive_a_restart(tmp_path: Path) -> None:
    async with client_of(buyer(), tmp_path, approve=("ord*",)) as client:
        run = await ask(client, "task", goal="Buy.")
        assert run["status"] == "needs_approval"
    async with client_of(buyer(), tmp_path, approve=("ord*",)) as client:
        done = await ask(client, "reply", run_id=run["run_id"], decision="approve")
        assert (done["status"], done["answer"]) == ("done", "Done.")


async def test_the_operators_policy_holds_for_subagents_too(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text('[[rule]]\naction = "deny"\ntool = "order"\n')
    helper = create_agent(
        ScriptedModel([call("order", item="figs"), says("tried")]), [order], name="helper"
    )
    agent = create_deep_agent(
        ScriptedModel([call("task", description="x", subagent_type="helper"), says("end")]),
        subagents=[CompiledSubAgent("helper", "Helps.", helper)],
    )
    async with client_of(agent, tmp_path, policy=(str(tmp_path / "rules.toml"),)) as client:
        run = await ask(client, "task", goal="Go.", wait_seconds=20)
        assert run["status"] == "done"
        events = await ask(client, "wait", run_id=run["run_id"], events_after=0)
        assert "order was refused and did not run" in str(events)


async def test_the_agents_own_policy_still_holds(tmp_path: Path) -> None:
    agent = buyer(policy=Policy([Rule("deny", tool="order", reason="the agent's own")]))
    async with client_of(agent, tmp_path, approve=("order",)) as client:
        run = await ask(client, "task", goal="Buy.")
        events = await ask(client, "wait", run_id=run["run_id"], events_after=0)
        assert (run["status"], "the agent's own" in str(events)) == ("done", True)


async def test_what_programs_read_at_their_start_is_guarded_in_the_agents_directory(
    tmp_path: Path,
) -> None:
    (tmp_path / "files").mkdir()
    agent = create_deep_agent(
        ScriptedModel([says("Hi.")]), backend=DirectoryBackend(tmp_path / "files")
    )
    async with client_of(agent, tmp_path, protect="deny") as client:
        refused = await ask(client, "write_file", path="/.mcp.json", content="{}")
        assert "was refused" in refused["text"]
        assert "Wrote" in (await ask(client, "write_file", path="/fine.txt", content="{}"))["text"]


async def test_an_agent_that_works_in_the_state_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    agent = create_deep_agent(ScriptedModel([]), backend=DirectoryBackend(tmp_path / "state"))
    with pytest.raises(ExceptionGroup) as refused:
        async with served(agent, tmp_path):
            pass
    assert refused.group_contains(HarnessError, match="the state directory")


@pytest.mark.parametrize(("agents", "operators"), [(1, 200), (200, 1)])
async def test_the_lower_limit_holds(tmp_path: Path, agents: int, operators: int) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"[limits]\ntool_calls = {operators}\n")
    agent = create_agent(
        ScriptedModel([call("order", item="a"), call("order", item="b"), says("Done.")]),
        [order],
        limits=Limits(tool_calls=agents),
    )
    settings = load_settings({"state_dir": str(tmp_path / "state")}, {}, config=path)
    with anyio.fail_after(30):
        async with (
            create_app(settings, source=AgentSource(agent)) as app,
            Client(app.server) as client,
        ):
            run = await ask(client, "task", goal="Buy.")
            assert run["usage"]["tool_calls"] == 1


# --- journals ----------------------------------------------------------------------------


async def test_a_journal_of_the_agents_own_is_served_and_shared_by_servers(tmp_path: Path) -> None:
    path = tmp_path / "own.sqlite3"
    async with client_of(buyer(checkpointer=SqliteCheckpointer(path)), tmp_path) as client:
        run = await ask(client, "task", goal="Buy.")
    assert not (tmp_path / "state" / "journal.sqlite3").exists()
    again = buyer(checkpointer=SqliteCheckpointer(path))
    async with client_of(again, tmp_path / "elsewhere") as client:  # the locks are beside the file
        assert run["thread_id"] in (await ask(client, "threads"))["text"]
    assert (tmp_path / "own.sqlite3.server" / "servers").is_dir()


async def test_a_sealed_journal_of_the_agents_own_stays_sealed(tmp_path: Path) -> None:
    key = Keyring.parse(Keyring.generate())
    path = tmp_path / "own.sqlite3"
    async with client_of(
        buyer(checkpointer=EncryptedCheckpointer(SqliteCheckpointer(path), key)), tmp_path
    ) as client:
        run = await ask(client, "task", goal="Buy secret pears.")
    plain = SqliteCheckpointer(path)
    async with plain:
        with pytest.raises(HarnessError, match="this journal is encrypted"):
            async with served(buyer(checkpointer=plain), tmp_path):
                pass
    again = buyer(checkpointer=EncryptedCheckpointer(SqliteCheckpointer(path), key))
    async with client_of(again, tmp_path) as client:
        assert (await ask(client, "wait", run_id=run["run_id"]))["answer"] == "Done."


async def test_settings_that_are_saved_reach_what_a_function_makes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        runs = [{"match": "hello", "agents": {"main": [{"text": name}]}}]
        (tmp_path / f"{name}.json").write_text(json.dumps({"name": name, "runs": runs}))
    config = tmp_path / "config.toml"
    (tmp_path / "skills").mkdir()
    own_skills = SkillRegistry([tmp_path / "skills"])

    def make(context: ServeContext) -> Agent:
        return create_deep_agent(context.model, [order], skills=own_skills)

    def read() -> Settings:
        return load_settings({"state_dir": str(tmp_path / "state")}, {}, config=config)

    config.write_text(f'model = "scripted:{tmp_path}/one.json"\n')
    with anyio.fail_after(60):
        async with (
            create_app(read(), read, AgentSource(make)) as app,
            Client(app.server) as client,
        ):
            assert (await ask(client, "task", goal="hello"))["answer"] == "one"
            config.write_text(f'model = "scripted:{tmp_path}/two.json"\napprove = ["order"]\n')
            await anyio.to_thread.run_sync(app.settings.reload)
            assert (await ask(client, "task", goal="hello"))["answer"] == "two"
            assert [*own_skills.roots] == [tmp_path / "skills"]  # they are the agent's, not ours
            rules = app.agent().definition.pipeline.policy
            assert rules.judge("order", {"item": "figs"}).action == "ask"


class Slow:
    """A function that makes agents of the settings' model; it can be held while it does."""

    def __init__(self) -> None:
        self.is_held = False
        self.begun = anyio.Event()
        self.released = anyio.Event()

    async def make(self, context: ServeContext) -> Agent:
        if self.is_held:
            self.begun.set()
            await self.released.wait()
        return create_deep_agent(context.model)


@asynccontextmanager
async def changing(slow: Slow, tmp_path: Path) -> AsyncIterator[tuple[App, Client]]:
    """Serve an agent that says `one`; its model is changed so that the next says `two`."""
    for name in ("one", "two"):
        script = {"runs": [{"match": "hello", "agents": {"main": [{"text": name}]}}]}
        (tmp_path / f"{name}.json").write_text(json.dumps(script))
    config = tmp_path / "config.toml"
    config.write_text(f'model = "scripted:{tmp_path}/one.json"\n')

    def read() -> Settings:
        return load_settings({"state_dir": str(tmp_path / "state")}, {}, config=config)

    with anyio.fail_after(60):
        async with (
            create_app(read(), read, AgentSource(slow.make)) as app,
            Client(app.server) as client,
        ):
            config.write_text(f'model = "scripted:{tmp_path}/two.json"\n')
            slow.is_held = True
            await anyio.to_thread.run_sync(app.settings.reload)
            yield app, client


async def test_saved_settings_reach_the_agent_though_the_first_request_was_cancelled(
    tmp_path: Path,
) -> None:
    slow = Slow()
    async with changing(slow, tmp_path) as (app, client):
        async with anyio.create_task_group() as group:
            group.start_soon(app.agent.prepare)
            await slow.begun.wait()
            group.cancel_scope.cancel()
        slow.is_held = False
        assert (await ask(client, "task", goal="hello"))["answer"] == "two"


async def test_saved_settings_reach_an_agent_that_is_used_while_the_new_one_is_made(
    tmp_path: Path,
) -> None:
    slow = Slow()
    async with changing(slow, tmp_path) as (app, client):
        async with anyio.create_task_group() as group:
            group.start_soon(app.agent.prepare)
            await slow.begun.wait()
            app.agent()
            slow.released.set()
        assert (await ask(client, "task", goal="hello"))["answer"] == "two"


def _profiled(context: ServeContext) -> Agent:
    return create_deep_agent(context.model, profile=context.profiles)


async def test_saved_profiles_reach_what_a_function_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, profile = tmp_path / "config.toml", tmp_path / "profiles" / "mine.toml"
    profile.parent.mkdir()
    profile.write_text('models = ["scripted"]\nexcluded_tools = ["write_todos"]\n')
    (tmp_path / "one.json").write_text(json.dumps([says("Done.")]))
    config.write_text(f'model = "scripted:{tmp_path}/one.json"\n')

    async def watch(_: object, on_change: Callable[..., Awaitable[None]], **__: object) -> None:
        await on_change("profiles", frozenset({"mine"}))

    monkeypatch.setattr(hot_reload, "watch", watch)
    monkeypatch.setattr(served_files, "WATCH_AFTER_SECONDS", 0)

    def read() -> Settings:
        return load_settings({"state_dir": str(tmp_path / "state")}, {}, config=config)

    with anyio.fail_after(60):
        async with create_app(read(), read, AgentSource(_profiled)) as app:
            assert "write_todos" in app.agent().tools
            with config.open("a") as file:
                file.write(f'profiles = ["{profile.parent}"]\n')
            await anyio.to_thread.run_sync(app.settings.reload)
            await app.agent.prepare()
            assert "write_todos" not in app.agent().tools
            profile.write_text('models = ["scripted"]\n')
            await anyio.to_thread.run_sync(app.common.profiles.reload)
            await app.files.watch(app.announcements, app.reload_code)
            await app.agent.prepare()
            assert "write_todos" in app.agent().tools


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


@pytest.fixture(params=["postgres", "redis"])
def journal_of_many(request: pytest.FixtureRequest) -> Iterator[Callable[[], Any]]:
    """What opens one journal in a database, again and again."""
    if request.param == "postgres":
        database: Database = request.getfixturevalue("database")
        schema = f"s{uuid4().hex}"
        yield lambda: PostgresCheckpointer(database.conninfo, schema=schema)
        return
    with keys() as found:
        yield lambda: RedisCheckpointer(REDIS, prefix=found.prefix)
        found.server.delete(f"deep-agent-lease:{found.prefix}")


async def test_a_journal_in_a_database_of_the_agents_own_is_served_by_one_server(
    tmp_path: Path, journal_of_many: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deep_agent_mcp.server.threads.journal_places.WAIT_SECONDS", 0.2)
    async with client_of(buyer(checkpointer=journal_of_many()), tmp_path / "one") as client:
        run = await ask(client, "task", goal="Buy.")
        for place in ("one", "two"):
            with pytest.raises((HarnessError, BaseExceptionGroup)) as refused:
                async with served(buyer(checkpointer=journal_of_many()), tmp_path / place):
                    pass
            assert "is in use by another server" in "".join(format_exception(refused.value))
    assert not (tmp_path / "one" / "state" / "journal.sqlite3").exists()
    async with client_of(buyer(checkpointer=journal_of_many()), tmp_path / "two") as client:
        assert run["thread_id"] in (await ask(client, "threads"))["text"]


def test_the_doctor_does_not_touch_the_journal_of_an_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_journal_app.py").write_text(
        "from deep_agent_mcp import *\n"
        f"journal = SqliteCheckpointer({str(tmp_path / 'own.sqlite3')!r})\n"
        "agent = create_agent(ScriptedModel([]), checkpointer=journal)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)  # as the server that it starts does
    state = str(tmp_path / "state")
    args = ["--client", "cursor", "--", "own_journal_app:agent", "--state-dir", state]
    said = CliRunner().invoke(cli, ["doctor", *args]).output
    assert "agent: own_journal_app:agent has" in said and "Cursor: 2025" in said
    assert not [*tmp_path.glob("own.sqlite3*")]


@pytest.mark.parametrize("kind", ["unknown", "key", "two", "inside"])
async def test_a_journal_that_cannot_be_served_is_refused(tmp_path: Path, kind: str) -> None:
    flags: dict[str, object] = {}
    if kind == "unknown":

        class OwnCheckpointer:
            commit = load = close = None

        journal: Any = OwnCheckpointer()
        agent, told = buyer(checkpointer=journal), "OwnCheckpointer as its journal, without `place`"
    elif kind == "two":
        flags["journal"] = "memory:"
        agent = buyer(checkpointer=SqliteCheckpointer(tmp_path / "own.sqlite3"))
        told = "so the setting 'journal' has no effect"
    elif kind == "key":
        key = tmp_path / "key"
        key.write_text(Keyring.generate())
        key.chmod(0o600)
        flags["journal_key_file"] = str(key)
        agent = buyer(checkpointer=SqliteCheckpointer(tmp_path / "own.sqlite3"))
        told = "the setting 'journal_key' has no effect"
    else:
        agent = create_deep_agent(
            ScriptedModel([]),
            backend=DirectoryBackend(tmp_path),
            checkpointer=SqliteCheckpointer(tmp_path / "own.sqlite3"),
        )
        told = "could read and change everybody's threads"
    with pytest.raises(SettingsError, match=told):
        async with served(agent, tmp_path / "place", **flags):
            pass
    assert not (tmp_path / "place").exists()


# --- functions -----------------------------------------------------------------------------------


async def test_a_function_is_given_what_the_server_has(tmp_path: Path) -> None:
    seen: list[ServeContext] = []

    @tool
    async def remember(fact: str, runtime: ToolRuntime) -> str:
        """Remember a fact."""
        assert runtime.store is not None
        await runtime.store.put(("facts",), "one", {"fact": fact})
        return "kept"

    async def make(context: ServeContext) -> Agent:
        seen.append(context)
        return create_deep_agent(
            ScriptedModel([call("remember", fact="pears"), says("ok")]),
            [remember],
            backend=context.backend,
            skills=context.skills,
            store=context.store,
            checkpointer=context.journal,
            policy=context.policy,
        )

    (tmp_path / "root").mkdir()
    async with client_of(make, tmp_path, root=str(tmp_path / "root")) as client:
        await ask(client, "write_file", path="/a.txt", content="x")
        assert (await ask(client, "task", goal="Go."))["status"] == "done"
    assert (tmp_path / "root" / "a.txt").read_text() == "x"
    (context,) = seen
    assert context.principal == ""
    assert context.settings.root == tmp_path / "root"


async def test_a_plain_function_without_parameters_is_called_too(tmp_path: Path) -> None:
    async with client_of(buyer, tmp_path) as client:
        assert (await ask(client, "task", goal="Buy."))["answer"] == "Done."


def _raising(context: ServeContext) -> Agent:
    raise LookupError("no catalogue")


async def _nothing() -> None:
    return None


def _hanging() -> Agent:
    import threading

    threading.Event().wait()
    raise AssertionError


def _other_journal() -> Agent:
    return buyer(checkpointer=SqliteCheckpointer("/nowhere/other.sqlite3"))


HERE = re.escape(__file__)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (_raising, rf"agent _raising raised LookupError: no catalogue \({HERE}:\d+\)\."),
        (_nothing, "agent _nothing returned None, which is not an Agent"),
        (_hanging, rf"agent _hanging did not return within 0.2 s \({HERE}:\d+\)"),
        (_other_journal, r"has its own journal, /nowhere/other.sqlite3"),
    ],
)
async def test_a_function_that_makes_no_agent_starts_nothing(
    tmp_path: Path, make: Callable[..., Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if make is _hanging:
        monkeypatch.setattr(source_module, "FACTORY_SECONDS", 0.2)
    with pytest.raises(ExceptionGroup) as refused:
        async with served(make, tmp_path):
            raise AssertionError("it started")
    assert refused.group_contains(HarnessError, match=told)


@pytest.mark.parametrize("given", [3, Agent, "text"])
def test_what_is_no_agent_is_refused_at_once(given: Any) -> None:
    if given == "text":
        AgentSource(given)  # a name, which is looked up when the server begins
        return
    with pytest.raises(HarnessError, match="Name an Agent"):
        AgentSource(given)


@pytest.mark.parametrize(
    "flags",
    [
        {"root": "."},
        {"model": "anthropic:claude-x"},
        {"store": "memory:"},
        {"background_subagents": True},
    ],
)
async def test_a_setting_without_effect_is_refused(
    tmp_path: Path, flags: dict[str, object]
) -> None:
    with pytest.raises(SettingsError, match=next(iter(flags))):
        async with served(buyer(), tmp_path, **flags):
            pass


async def test_a_setting_a_function_does_not_use_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(buyer, tmp_path, model="scripted:x"):
        pass
    assert "ignores these settings: model (context.model)" in caplog.text


@pytest.mark.parametrize(
    ("given", "told"),
    [(buyer(), "agent.instructions, agents, files would"), (buyer, "agent.instructions would")],
    ids=["agent", "function"],
)
async def test_keys_of_an_agent_file_without_effect_are_refused(
    tmp_path: Path, given: Any, told: str
) -> None:
    file = tmp_path / "deep-agent.toml"
    file.write_text(
        '[agent]\ninstructions = "x"\n[agents.helper]\ndescription = "Helps"\n'
        '[files]\n"/memories" = { store = true }\n[server]\nwait_budget = 20\n'
    )
    with pytest.raises(SettingsError, match=f"deep-agent.toml: {told} have no effect"):
        async with served(given, tmp_path / "place", agent_file=str(file)):
            pass
    assert not (tmp_path / "place").exists()


async def test_a_function_is_given_the_store_that_settings_name(tmp_path: Path) -> None:
    seen: list[ServeContext] = []

    def make(context: ServeContext) -> Agent:
        seen.append(context)
        return buyer(store=context.store)

    async with served(make, tmp_path, store=f"sqlite://{tmp_path.as_posix()}/own.db"):
        await seen[0].store.put(("a",), "k", {"text": "v"})
    assert (tmp_path / "own.db").exists()


# --- modules -------------------------------------------------------------------------------------

MODULE = """
from deep_agent_mcp import ScriptedModel, create_agent

print("a line that stdout must not have")
agent = create_agent(ScriptedModel([{{"text": "{answer}"}}] * 9))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)

    def write(text: str) -> Path:
        path = folder / "served_app.py"
        path.write_text(text)
        importlib.invalidate_caches()
        return path

    yield write
    sys.modules.pop("served_app", None)


async def test_a_saved_module_reaches_new_runs_and_a_broken_one_does_not(
    tmp_path: Path, module: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    module(MODULE.format(answer="one"))
    settings = load_settings({"state_dir": str(tmp_path / "state")}, {})
    source = AgentSource("served_app:agent", reload=True, owns_process=True)
    with anyio.fail_after(60):
        async with create_app(settings, source=source) as app, Client(app.server) as client:
            assert source.files is not None
            assert [one.name for one in source.files.roots] == ["served_app.py"]
            assert (await ask(client, "task", goal="?"))["answer"] == "one"
            path = module(MODULE.format(answer="two"))
            await app.reload_code(frozenset({str(path)}))
            assert (await ask(client, "task", goal="?"))["answer"] == "two"
            module("agent = 1 / 0\n")
            await app.reload_code(frozenset({str(path)}))
            assert (await ask(client, "task", goal="?"))["answer"] == "two"
            assert app.status()["broken_code"] == ["served_app.py"]
            (problem,) = source.files.errors.values()
            assert re.search(r"ZeroDivisionError.*served_app.py:1\)", problem)
            module(MODULE.format(answer="three"))
            await app.reload_code(frozenset({str(path)}))
            assert (await ask(client, "task", goal="?"))["answer"] == "three"
            assert "broken_code" not in app.status()
    assert capsys.readouterr().out == ""


OF_THE_SETTINGS = """
from deep_agent_mcp import create_deep_agent


def make(context):
    assert {allowed!r} in context.settings.model
    return create_deep_agent(context.model)
"""


async def test_a_repaired_module_makes_its_agent_of_the_saved_settings(
    tmp_path: Path, module: Callable[[str], Path]
) -> None:
    config = tmp_path / "config.toml"
    for name in ("one", "two"):
        script = {"runs": [{"match": "hello", "agents": {"main": [{"text": name}]}}]}
        (tmp_path / f"{name}.json").write_text(json.dumps(script))

    def read() -> Settings:
        return load_settings({"state_dir": str(tmp_path / "state")}, {}, config=config)

    config.write_text(f'model = "scripted:{tmp_path}/one.json"\n')
    path = module(OF_THE_SETTINGS.format(allowed="one.json"))
    source = AgentSource("served_app:make", reload=True, owns_process=True)
    with anyio.fail_after(60):
        async with create_app(read(), read, source) as app, Client(app.server) as client:
            assert (await ask(client, "task", goal="hello"))["answer"] == "one"
            config.write_text(f'model = "scripted:{tmp_path}/two.json"\n')
            await anyio.to_thread.run_sync(app.settings.reload)
            assert (await ask(client, "task", goal="hello"))["answer"] == "one"  # it refuses two
            module(OF_THE_SETTINGS.format(allowed="two.json"))
            await app.reload_code(frozenset({str(path)}))
            assert (await ask(client, "task", goal="hello"))["answer"] == "two"


async def test_reloading_may_change_the_tools_that_clients_are_offered(
    tmp_path: Path, module: Callable[[str], Path]
) -> None:
    module(MODULE.format(answer="one"))
    importlib.import_module("served_app")  # as a program may, before it serves it
    settings = load_settings({"state_dir": str(tmp_path / "state")}, {})
    source = AgentSource("served_app:agent", reload=True, owns_process=True)
    with anyio.fail_after(60):
        async with create_app(settings, source=source) as app, Client(app.server) as client:
            assert await names(client) == DELEGATION
            deep = MODULE.replace("create_agent", "create_deep_agent")
            path = module(deep.format(answer="two"))
            await app.reload_code(frozenset({str(path)}))
            async with Client(app.server) as another:  # the first one keeps its list for a while
                assert "read_file" in await names(another)


async def test_a_saved_module_is_noticed_by_itself(
    tmp_path: Path, module: Callable[[str], Path]
) -> None:
    module(MODULE.format(answer="one"))
    settings = load_settings({"state_dir": str(tmp_path / "state")}, {})
    source = AgentSource("served_app:agent", reload=True, owns_process=True)
    with anyio.fail_after(60):
        async with create_app(settings, source=source) as app, Client(app.server) as client:
            answer, path = "one", module(MODULE.format(answer="two"))
            while answer == "one":  # changes before the watch stands are noticed then
                answer = (await ask(client, "task", goal="?", thread_id="new"))["answer"]
            assert path.exists()
            assert answer == "two"
