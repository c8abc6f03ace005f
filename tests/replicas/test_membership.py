"""Who is a replica, who is dead, and what they find of each other's runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import psycopg
import pytest
import yaml
from click.testing import CliRunner, Result

from deep_agent_mcp.harness.agent_file.places import split_database_url
from deep_agent_mcp.harness.checkpoint.base import Batch, Interrupt, Run, RunEvent
from deep_agent_mcp.harness.checkpoint.postgres import PostgresCheckpointer
from deep_agent_mcp.harness.checkpoint.postgres.survey import (
    JournalSurvey,
    RunMark,
    connection_name,
)
from deep_agent_mcp.harness.errors import HarnessError
from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.operations.joining import engine_of
from deep_agent_mcp.server.replicas import signals
from deep_agent_mcp.server.replicas.census import SILENT_SECONDS, Census, Replica
from deep_agent_mcp.server.replicas.database import journal_schema, open_database
from deep_agent_mcp.server.runs.server_processes import ServerProcesses
from deep_agent_mcp.server.settings.settings import SettingsError
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.settings.state_dir import StateDir
from deep_agent_mcp.server.threads import journal_places
from tests.databases import Database, made_database
from tests.replicas.servers import journal_url

pytestmark = pytest.mark.anyio

ASKS = {
    "tool_calls": [
        {"name": "write_todos", "args": {"todos": []}},
        {"name": "write_file", "args": {"path": "/a", "content": "a"}},
    ]
}
SCRIPT = {
    "runs": [
        {"match": "slow", "agents": {"main": [{"text": "At last.", "delay": 600}]}},
        {"match": "ask", "agents": {"main": [ASKS, {"text": "Asked."}]}},
    ],
    "agents": {"*": [{"text": "Done."}]},
}


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


@pytest.fixture
def url(database: Database) -> str:
    return journal_url(database)


@asynccontextmanager
async def serving(place: Path, url: str, name: str, **flags: object) -> AsyncIterator[App]:
    script = place / "script.yaml"
    script.write_text(yaml.safe_dump(SCRIPT), encoding="utf-8")
    given = {"state_dir": str(place / name), "model": f"scripted:{script}", "journal": url}
    settings = load_settings({**given, "approve": ("write_todos",), **flags}, {})
    with anyio.fail_after(60):
        async with create_app(settings) as app:
            yield app


async def command(*args: str) -> Result:
    return await anyio.to_thread.run_sync(CliRunner().invoke, cli, args)


def refusal(raised: pytest.ExceptionInfo[Any]) -> str:
    error = raised.value
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    return str(error)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({}, "name the database with --journal"),
        ({"journal": "redis://localhost"}, "name the database with --journal"),
        ({"root": "."}, "setting 'root'"),
        ({"execute": "host"}, "setting 'execute'"),
        ({"store": "memory:"}, "set store to a postgresql: or redis: URL"),
    ],
)
def test_what_one_machine_has_is_refused(flags: dict[str, object], words: str) -> None:
    given = {"journal": "postgresql://nobody@localhost/none", **flags} if flags else {}
    with pytest.raises(SettingsError, match=words):
        load_settings({**given, "replicas": True}, {})


@pytest.mark.parametrize(("engine", "warns"), [("local", True), ("dbos", False)])
def test_a_limit_that_each_replica_counts_by_itself_is_said(
    engine: str, warns: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"journal": "postgresql://nobody@localhost/none", "max_runs": 2, "engine": engine}
    settings = load_settings({**given, "replicas": True}, {})
    state = StateDir.open(tmp_path)
    engine_of(settings, state, "me", ServerProcesses(state))
    assert ("each replica counts max_runs by itself" in caplog.text) is warns


def test_a_root_that_all_replicas_see_is_allowed(tmp_path: Path) -> None:
    given = {"journal": "postgresql://nobody@localhost/none", "root": str(tmp_path)}
    settings = load_settings({**given, "replicas": True, "shared_root": True}, {})
    assert settings.shared_root and settings.root == tmp_path
    with pytest.raises(SettingsError, match="set replicas as well"):
        load_settings({"shared_root": True}, {})


async def test_replicas_and_a_server_alone_keep_each_other_out(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_places, "WAIT_SECONDS", 0.1)
    async with serving(tmp_path, url, "a", replicas=True):
        with pytest.raises((HarnessError, BaseExceptionGroup)) as refused:
            async with serving(tmp_path, url, "b"):
                pass
        assert "in use by servers that share it" in refusal(refused)
        listed = await command(
            "threads", "--state-dir", str(tmp_path / "c"), "--journal", url, "list"
        )
        assert listed.exit_code == 1 and "Add --replicas" in listed.stderr
        async with serving(tmp_path, url, "b", replicas=True):
            pass
    async with serving(tmp_path, url, "b"):
        with pytest.raises((HarnessError, BaseExceptionGroup)) as refused:
            async with serving(tmp_path, url, "a", replicas=True):
                pass
        assert "started without --replicas" in refusal(refused)


async def test_the_command_shows_who_is_there_and_what_each_works_on(
    tmp_path: Path, url: str
) -> None:
    async with (
        serving(tmp_path, url, "a", replicas=True) as a,
        serving(tmp_path, url, "b", replicas=True) as b,
    ):
        run_id = await a.runs.start("slow")
        args = ("replicas", "--state-dir", str(tmp_path / "c"), "--journal", url)
        shown = await command(*args, "--json")
        assert shown.exit_code == 0, shown.output
        found = json.loads(shown.stdout)
        assert [one["run_ids"] for one in found["replicas"]] == [[run_id], []]
        assert {one["state"] for one in found["replicas"]} == {"working"}
        assert found["replicas"][0]["id"] == a.runs.supervisor.owner
        text = (await command(*args)).stdout
        assert run_id in text and b.runs.supervisor.owner in text
        assert a.fleet is not None
        with anyio.fail_after(10):
            while a.fleet.living < 2:
                await anyio.lowlevel.checkpoint()
        metrics = {one.name: one.values for one in await a.health().metrics()}
        assert metrics["deep_agent_replicas"] == {(): 2.0}
        assert metrics["deep_agent_commits_superseded_total"] == {(): 0.0}
    left = (await command(*args)).stdout.splitlines()
    assert left == [
        "No replica uses this journal.",
        "Runs that wait for a replica to continue them: 1.",
    ]


async def test_runs_are_cancelled_and_retried_from_the_command_line(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEP_AGENT_REPLICAS", "true")
    args = ("runs", "--state-dir", str(tmp_path / "c"), "--journal", url)
    async with (
        serving(tmp_path, url, "a", replicas=True) as a,
        serving(tmp_path, url, "b", replicas=True) as b,
    ):
        run_id = await a.runs.start("slow")
        ended = await command(*args, "cancel", run_id)
        assert ended.exit_code == 0 and "cancelled" in ended.stdout
        paused = Run("run_paused", "thr_paused", "delegate", "main", "paused")
        await b.journal.commit(Batch("thr_paused", runs=[paused]))
        retried = await command(*args, "retry", "run_paused")
        # It has no input, so it ends where a server goes on with it.
        assert retried.exit_code == 0, retried.output
        snapshot = await a.runs.wait("run_paused", 30)
        assert (snapshot.run.status, snapshot.run.attempt > 2) == ("failed", True)


async def test_a_question_is_answered_through_a_replica_that_does_not_carry_the_run(
    tmp_path: Path, url: str
) -> None:
    async with (
        serving(tmp_path, url, "a", replicas=True) as a,
        serving(tmp_path, url, "b", replicas=True) as b,
    ):
        for _ in range(5):
            run_id = await a.runs.start("ask")
            with anyio.fail_after(30):
                while not (asked := await b.runs.asked(run_id)):
                    await anyio.lowlevel.checkpoint()
            # Just now it stops at the question, or has stopped.
            await b.runs.reply(run_id, {asked[0].id: {"decision": "approve"}})
            snapshot = await b.runs.wait(run_id, 30)
            assert (snapshot.run.status, snapshot.run.answer) == ("done", "Asked.")
            state = await a.agent().get_state(snapshot.run.thread_id)
            results = [
                one for one in state.values["messages"] if one.__class__.__name__ == "ToolMessage"
            ]
            assert len(results) == 2


async def test_whoever_waits_looks_again_when_a_signal_is_lost(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "LOOK_SECONDS", 0.2)
    async with (
        serving(tmp_path, url, "a", replicas=True) as a,
        serving(tmp_path, url, "b", replicas=True) as b,
    ):
        run_id = await a.runs.start("slow")
        assert a.fleet is not None
        monkeypatch.setattr(a.fleet.signals, "tell", lambda *_, **__: None)
        async with AsyncExitStack() as stack, anyio.create_task_group() as group:
            watch = stack.enter_context(b.runs.supervisor.servers.run_changes.watching(run_id))
            run = await b.journal.run(run_id)
            assert run is not None
            group.start_soon(a.runs.cancel, run_id, "enough")
            with anyio.fail_after(10):
                await watch.next(run)
        assert (await b.runs.snapshot(run_id)).run.status == "cancelled"


def replica(name: str, **changes: Any) -> Replica:
    return replace(Replica(name, "host", "1", 0.0, 0.5, 0, False, True), **changes)


def test_a_replica_is_dead_when_it_is_silent_or_its_lock_stays_free() -> None:
    def look(**changes: Any) -> Census:
        return Census({"a": replica("a", **changes)}, 100.0).after(Census())

    assert not look().is_dead("a")
    assert look().is_dead("b")
    assert look(silent=SILENT_SECONDS + 1).is_dead("a")
    free = look(has_lock=False)
    assert not free.is_dead("a")
    assert free.after(free).is_dead("a")
    assert not look().after(free).is_dead("a")


async def test_connections_of_a_dead_replica_are_ended(
    database: Database, tmp_path: Path, url: str
) -> None:
    def connected(owner: str) -> Any:
        name = connection_name(owner)
        return psycopg.connect(database.conninfo, autocommit=True, application_name=name)

    tables = open_database(url)
    try:
        with connected("dead") as dead, connected("other") as other:
            await JournalSurvey(tables, journal_schema(url)).cut_off("dead")
            with pytest.raises(psycopg.OperationalError):
                dead.execute("SELECT 1")
            other.execute("SELECT 1")
    finally:
        await tables.close()
    async with serving(tmp_path, url, "a", replicas=True) as a:
        named = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
        ((count,),) = database.execute(named, (connection_name(a.runs.supervisor.owner),))
        assert count >= 1


async def test_a_survey_finds_all_runs_in_pages(database: Database, url: str) -> None:
    plain, schema = split_database_url(url)
    assert schema is not None
    async with PostgresCheckpointer(plain, schema=f"{schema}_journal") as journal:
        for number in range(7):
            name = f"thr_{number}"
            owner = None if number == 6 else "ab"[number % 2]
            run = Run(f"run_{number}", name, "delegate", "main", owner=owner)
            await journal.commit(
                Batch(name, runs=[run], events=[RunEvent(run.id, "custom", (), {})])
            )
        for name, answered in (("all", (True, True)), ("some", (True, False)), ("none", ())):
            run = Run(f"run_{name}", name, "delegate", "main", "needs_approval")
            asked = [
                Interrupt(
                    f"int_{n}", name, "", "step", run.id, "approval", (), "?", {}, {}, n, None, one
                )
                for n, one in enumerate(answered)
            ]
            await journal.commit(Batch(name, runs=[run], interrupts=asked))
        tables = open_database(url)
        try:
            survey = JournalSurvey(tables, journal_schema(url))
            assert await survey.owners() == {"a": 3, "b": 3, None: 1}
            assert await survey.running("a", limit=2) == ["run_0", "run_2"]
            assert await survey.running("a", after="run_2", limit=2) == ["run_4"]
            assert await survey.running(None) == ["run_6"]
            assert await survey.answered() == ["run_all"]
            marks = await survey.marks(["run_0", "run_all", "run_of_nobody"])
            assert marks == {
                "run_0": RunMark("running", 1, 1),
                "run_all": RunMark("needs_approval", 1, 0),
            }
        finally:
            await tables.close()
