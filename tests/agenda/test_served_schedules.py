"""Schedules of a server: their runs, whose they are, and what clients and operators see."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from click.testing import CliRunner
from mcp import Client

from deep_agent_mcp.harness.errors import HarnessError
from deep_agent_mcp.server.agenda import scheduler
from deep_agent_mcp.server.agenda.schedules import ScheduleBook, Work
from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.auth.caller import Caller, current_caller
from deep_agent_mcp.server.auth.tokens import FileTokens, TokenFile, new_token
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.settings.settings import SettingsError
from deep_agent_mcp.server.settings.sources import load_settings
from tests.e2e.servers import call

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "LOOK_SECONDS", 0.02)


SCRIPT = {"agents": {"*": [{"text": "Done."}]}}


@asynccontextmanager
async def serving(place: Path, **more: object) -> AsyncGenerator[App]:
    script = place / "script.yaml"
    script.write_text(yaml.safe_dump(SCRIPT), encoding="utf-8")
    given = {"state_dir": str(place / "state"), "model": f"scripted:{script}", **more}
    with anyio.fail_after(60):
        async with create_app(load_settings({"schedules": True, **given}, {})) as app:
            yield app


def book_of(app: App) -> ScheduleBook:
    assert app.services.schedules is not None
    return app.services.schedules


async def fired(app: App, name: str, before: str = "", principal: str = "") -> Any:
    """Return a schedule once it has started another run, or said why not."""
    while True:
        found = await book_of(app).find(name, principal)
        if found.last_run != before or found.last_error:
            return found
        await anyio.sleep(0.01)


async def command(place: Path, *args: str) -> Any:
    def run() -> Any:
        return CliRunner().invoke(cli, ["schedules", "--state-dir", str(place / "state"), *args])

    done = await anyio.to_thread.run_sync(run)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout) if "--json" in args else done.output


async def test_a_schedule_of_the_command_line_fires_in_a_server_that_runs(tmp_path: Path) -> None:
    async with serving(tmp_path) as app:
        made = await command(
            tmp_path, "add", "tidy", "Tidy up.", "--cron", "0 7 1 1 *", "--same-thread", "--json"
        )
        assert (made["goal"], made["status"], made["timezone"]) == ("Tidy up.", "active", "UTC")
        assert "fires now" in await command(tmp_path, "run", "tidy")
        first = await fired(app, "tidy")
        snapshot = await app.runs.wait(first.last_run, 20)
        assert (snapshot.run.status, snapshot.run.goal) == ("done", "Tidy up.")
        await command(tmp_path, "run", "tidy")
        second = await fired(app, "tidy", first.last_run)
        again = await app.runs.wait(second.last_run, 20)
        assert again.run.thread_id == snapshot.run.thread_id
        assert second.last_run in await command(tmp_path, "list")
        found = {one.name: one.values for one in await app.health().metrics()}
        assert found["deep_agent_schedule_times_total"][("result", "fired"),] == 2
        async with Client(app.server) as client:
            listed = await client.list_resources()
            assert "schedules://all" in [str(one.uri) for one in listed.resources]
            read = await client.read_resource("schedules://all")
            (shown,) = json.loads(read.contents[0].text)["schedules"]  # type: ignore[union-attr]
        assert (shown["name"], shown["last_run_id"]) == ("tidy", second.last_run)
        await command(tmp_path, "pause", "tidy")
        await command(tmp_path, "resume", "tidy")
        await command(tmp_path, "remove", "tidy")
        assert await command(tmp_path, "list", "--json") == {"schedules": []}


async def test_one_key_has_one_run_whoever_starts_it_again(tmp_path: Path) -> None:
    async with serving(tmp_path) as app:
        made = await book_of(app).add("tidy", Work("", "0 7 1 1 *", "UTC", "Tidy up."))
        await book_of(app).trigger(made)
        first = await fired(app, "tidy")
        run = await app.journal.run(first.last_run)
        assert run is not None
        key = (run.idempotency_key or "").removeprefix(":")
        assert key.startswith(f"schedule:{made.id}:")
        assert await app.runs.start("Tidy up.", key=key) == run.id


async def test_a_schedule_runs_for_its_principal_while_a_token_lets_it(tmp_path: Path) -> None:
    options = {"transport": "http", "auth": ("token",)}
    tokens = FileTokens(TokenFile(tmp_path / "state" / "tokens.json"))
    async with serving(tmp_path, **options) as app:
        record, _ = new_token("ann", ["delegate"])
        await tokens.add(record)
        made = await book_of(app).add("tidy", Work("ann", "0 7 1 1 *", "UTC", "Tidy up."))
        await book_of(app).trigger(made)
        first = await fired(app, "tidy", principal="ann")
        assert Caller("ann", frozenset()).owns(first.last_run)
        token = current_caller.set(Caller("ann", frozenset({"delegate"})))
        try:
            assert (await app.runs.wait(first.last_run, 20)).run.status == "done"
        finally:
            current_caller.reset(token)
        await tokens.revoke(record.id)
        await book_of(app).trigger(made)
        refused = await fired(app, "tidy", first.last_run, "ann")
        assert (refused.status, refused.last_run) == ("paused", first.last_run)
        assert "no token that lets them start runs" in refused.last_error


@pytest.mark.parametrize("slash", ["", "/"])
async def test_who_is_no_user_of_the_issuer_needs_a_token(slash: str, tmp_path: Path) -> None:
    issuer = "https://login.example.com"
    more = {"oauth_issuer": f"{issuer}{slash}", "public_url": "https://agent.example.com"}
    async with serving(tmp_path, transport="http", auth=("token", "oauth"), **more) as app:
        for name, principal in (("theirs", f"{issuer}#ann"), ("hers", "ann")):
            work = Work(principal, "0 7 1 1 *", "UTC", "Tidy up.")
            await book_of(app).trigger(await book_of(app).add(name, work))
        assert (await fired(app, "theirs", principal=f"{issuer}#ann")).status == "active"
        refused = await fired(app, "hers", principal="ann")
        assert (refused.status, refused.last_run) == ("paused", "")
        assert "no token that lets them start runs" in refused.last_error


async def test_nobody_sees_the_schedules_of_others(tmp_path: Path) -> None:
    async with serving(tmp_path) as app, Client(app.server) as client:
        await book_of(app).add("secret", Work("ann", "0 7 1 1 *", "UTC", "Tidy up."))
        read = await client.read_resource("schedules://all")
        assert json.loads(read.contents[0].text) == {"schedules": []}  # type: ignore[union-attr]


async def test_without_the_option_a_server_fires_nothing_and_lists_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, schedules=False) as app, Client(app.server) as client:
        listed = await client.list_resources()
        assert "schedules://all" not in [str(one.uri) for one in listed.resources]
    assert not (tmp_path / "state" / "agenda.db").exists()


async def test_an_agent_that_asks_for_a_schedule_needs_an_approval(tmp_path: Path) -> None:
    asked = {"name": "tidy", "goal": "Tidy up.", "cron": "0 7 1 1 *"}
    turns = [{"tool_calls": [{"name": "schedule", "args": asked}]}, {"text": "Scheduled."}]
    script = tmp_path / "asks.yaml"
    script.write_text(yaml.safe_dump({"agents": {"main": turns}}), encoding="utf-8")
    more = {"schedule_tool": True, "model": f"scripted:{script}"}
    async with serving(tmp_path, **more) as app, Client(app.server) as client:
        run = await call(client, "task", goal="Tidy up each year.")
        assert run["status"] == "needs_approval"
        assert run["pending"][0]["tool"] == "schedule"
        assert await book_of(app).all() == []
        done = await call(client, "reply", run_id=run["run_id"], decision="approve")
        assert (done["status"], done["answer"]) == ("done", "Scheduled.")
        (made,) = await book_of(app).all()
        assert made.work == Work("", "0 7 1 1 *", "UTC", "Tidy up.")


def test_the_tool_needs_a_server_that_fires_schedules() -> None:
    with pytest.raises(SettingsError, match="set schedules, too"):
        load_settings({"schedule_tool": True}, {})


@pytest.mark.parametrize("principal", ["", "ann"])
async def test_a_schedule_continues_the_thread_of_a_name(principal: str, tmp_path: Path) -> None:
    options = {"transport": "http", "auth": ("token",)} if principal else {}
    async with serving(tmp_path, **options) as app:
        if principal:
            record, _ = new_token("ann", ["delegate"])
            await FileTokens(TokenFile(tmp_path / "state" / "tokens.json")).add(record)
        made = await book_of(app).add(
            "tidy", Work(principal, "0 7 1 1 *", "UTC", "Tidy up.", thread_id="notes")
        )
        threads: set[str] = set()
        before = ""
        for _ in range(2):
            await book_of(app).trigger(made)
            found = await fired(app, "tidy", before, principal)
            assert not found.last_error
            before = found.last_run
            run = await app.journal.run(before)
            assert run is not None
            threads.add(run.thread_id)
    assert threads == {Caller(principal, frozenset()).fixed_thread("name notes", "notes")}


async def test_the_thread_of_another_user_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as app:
        theirs = Caller("eve", frozenset()).new_id("thr")
        for principal in ("", "ann"):
            work = Work(principal, "0 7 1 1 *", "UTC", "Tidy up.", thread_id=theirs)
            with pytest.raises(HarnessError, match="does not belong to"):
                await book_of(app).add("tidy", work)


@pytest.mark.parametrize("principal", ["", "ann"])
async def test_the_command_refuses_a_thread_that_does_not_exist(
    principal: str, tmp_path: Path
) -> None:
    state = ["schedules", "--state-dir", str(tmp_path / "state")]
    add = [*state, "add", "tidy", "Tidy up.", "--cron", "0 7 1 1 *", "--principal", principal]
    mistyped = Caller(principal, frozenset()).new_id("thr")

    def refused(thread: str) -> str:
        done = CliRunner().invoke(cli, [*add, "--thread", thread])
        assert done.exit_code == 1, done.output
        return done.stderr

    assert "no journal" in await anyio.to_thread.run_sync(refused, mistyped)
    assert not (tmp_path / "state").exists()
    async with serving(tmp_path) as app:
        token = current_caller.set(Caller(principal, frozenset({"delegate"})))
        try:
            await app.shared.principals.note(current_caller.get())
            run_id = await app.runs.start("Tidy up.")
            thread = (await app.runs.wait(run_id, 20)).run.thread_id
        finally:
            current_caller.reset(token)
        said = await anyio.to_thread.run_sync(refused, mistyped)
        assert f"no thread '{mistyped}'" in said
        assert thread in said and "threads list" in said
        assert "no thread 'new'" in await anyio.to_thread.run_sync(refused, "new")
        assert await book_of(app).all() == []
        done = await anyio.to_thread.run_sync(CliRunner().invoke, cli, [*add, "--thread", thread])
        assert done.exit_code == 0, done.output


async def test_a_name_never_leads_to_the_thread_of_another_user_with_that_id(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, transport="http", auth=("token",)) as app:
        record, _ = new_token("ann", ["delegate"])
        await FileTokens(TokenFile(tmp_path / "state" / "tokens.json")).add(record)
        theirs = await app.runs.start("Tidy up.", thread_id="notes", begins=True)
        assert (await app.runs.wait(theirs, 20)).run.thread_id == "notes"
        work = Work("ann", "0 7 1 1 *", "UTC", "Tidy up.", thread_id="notes")
        await book_of(app).trigger(await book_of(app).add("notes", work))
        found = await fired(app, "notes", principal="ann")
        run = await app.journal.run(found.last_run)
        assert run is not None and not found.last_error
        ann = Caller("ann", frozenset())
        assert run.thread_id == ann.fixed_thread("name notes", "notes")
        assert ann.owns(run.id)
        assert [one.id for one in await app.journal.find_runs(thread_id="notes")] == [theirs]
