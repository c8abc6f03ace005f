"""`deep-agent-mcp runs …` beside servers, and without one."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
import yaml
from click.testing import CliRunner, Result

from deep_agent_mcp.harness.checkpoint.base import Batch, Checkpoint, Run
from deep_agent_mcp.harness.errors import HarnessError
from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.operations import retries, run_admin
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.settings.state_dir import StateDir
from tests.e2e.servers import Setup, call, connected
from tests.fork_server import run as run_program

pytestmark = pytest.mark.anyio

TODOS = {"tool_calls": [{"name": "write_todos", "args": {"todos": []}}]}
WORKS = {"main": [{"text": "It works now."}]}
FAILS = {"main": [{"text": "never", "expect": {"last_type": "tool"}}]}


def script(flaky: dict[str, Any]) -> dict[str, Any]:
    return {
        "runs": [
            {"match": "flaky", "agents": flaky},
            {"match": "slow", "agents": {"main": [{"text": "At last.", "delay": 600}]}},
            {"match": "two", "agents": {"main": [{"text": "One.", "delay": 2}, {"text": "Two."}]}},
            {"match": "ask", "agents": {"main": [TODOS, {"text": "Asked."}]}},
        ],
        "agents": {"*": [{"text": "Done."}]},
    }


@asynccontextmanager
async def serving(
    place: Path, flaky: dict[str, Any] = FAILS, **flags: object
) -> AsyncIterator[App]:
    path = place / "script.yaml"
    path.write_text(yaml.safe_dump(script(flaky)), encoding="utf-8")
    given = {"state_dir": str(place / "state"), "model": f"scripted:{path}", **flags}
    with anyio.fail_after(60):
        async with create_app(load_settings({"approve": ("write_todos",), **given}, {})) as app:
            yield app


async def runs(place: Path, *args: str) -> Result:
    command = ["runs", "--state-dir", str(place / "state"), *args]
    return await anyio.to_thread.run_sync(CliRunner().invoke, cli, command)


async def data(place: Path, *args: str) -> dict[str, Any]:
    done = await runs(place, *args, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


async def refused(place: Path, *args: str) -> str:
    done = await runs(place, *args)
    assert done.exit_code == 1, done.output
    return done.stderr


async def ended(app: App, goal: str) -> str:
    run_id = await app.runs.start(goal)
    await app.runs.wait(run_id, 30)
    return run_id


async def test_runs_are_listed_and_shown_by_what_they_are(tmp_path: Path) -> None:
    async with serving(tmp_path) as app:
        done, failed, asks = [await ended(app, goal) for goal in ("simple", "flaky", "ask")]
        slow = await app.runs.start("slow")
        every = (await data(tmp_path, "list"))["runs"]
        assert [one["run_id"] for one in every] == [slow, asks, failed, done]
        assert [one.get("at_work") for one in every] == [True, None, None, None]
        (found,) = (await data(tmp_path, "list", "--status", "failed"))["runs"]
        assert (found["run_id"], found["attempt"]) == (failed, 1)
        thread = every[1]["thread_id"]
        (found,) = (await data(tmp_path, "list", "--thread", thread))["runs"]
        assert found["run_id"] == asks
        page = await data(tmp_path, "list", "--limit", "2")
        assert len(page["runs"]) == 2 and page["more"]
        text = (await runs(tmp_path, "list")).stdout
        assert text.splitlines()[0].split() == [
            *("RUN", "STATUS", "CHANGED", "COST", "THREAD", "GOAL,", "REASON")
        ]
        first = text.splitlines()[1]
        assert first.startswith(f"{slow}  running") and first.endswith("slow")
        assert (
            "There are no such runs." in (await runs(tmp_path, "list", "--status", "paused")).stdout
        )

        shown = await data(tmp_path, "show", asks)
        (question,) = await app.runs.questions(asks)
        assert shown["open_questions"] == [question.id]
        assert shown["usage"]["model_calls"] == 1
        text = (await runs(tmp_path, "show", asks)).stdout
        assert "decisions: approve" in text and f"threads events {asks}" in text
        assert "There is no run 'run_x'" in await refused(tmp_path, "show", "run_x")


async def test_runs_are_cancelled_where_they_are(tmp_path: Path) -> None:
    async with serving(tmp_path) as app:
        asks, done = await ended(app, "ask"), await ended(app, "simple")
        slow = await app.runs.start("slow")
        thread = (await app.runs.snapshot(asks)).run.thread_id
        task = Run("run_of_a_task", f"{thread}.task-01234567", "delegate", "digger", "paused")
        step = Checkpoint(task.thread_id, "", "c1", None, 0, "input", "input", "model")
        await app.journal.commit(Batch(task.thread_id, checkpoints=[step], runs=[task]))
        assert "There is no run 'run_x'" in await refused(tmp_path, "cancel", slow, "run_x")
        assert app.runs.active == 1
        cancelled = await runs(tmp_path, "cancel", slow, asks, done, "--reason", "a test")
        assert cancelled.stdout.splitlines() == [
            f"{slow}: cancelled",
            f"{asks}: cancelled",
            f"{done}: done, as it was before",
            f"{task.id}: cancelled",
        ]
        stopped = await app.runs.wait(slow, 0)
        assert (stopped.run.status, stopped.run.reason) == ("cancelled", "a test")


async def test_only_a_delegated_run_that_is_cancelled_now_takes_its_tasks_along(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as app:
        asks = await ended(app, "ask")
        await runs(tmp_path, "cancel", asks)
        thread = (await app.runs.snapshot(asks)).run.thread_id
        driven = Run("run_driven", thread, "drive", "main", "needs_approval")
        await app.journal.commit(Batch(thread, runs=[driven]))
        task = Run("run_of_a_task", f"{thread}.task-01234567", "delegate", "digger", "paused")
        step = Checkpoint(task.thread_id, "", "c1", None, 0, "input", "input", "model")
        await app.journal.commit(Batch(task.thread_id, checkpoints=[step], runs=[task]))
        cancelled = await runs(tmp_path, "cancel", asks, driven.id)
        assert cancelled.stdout.splitlines() == [
            f"{asks}: cancelled, as it was before",
            f"{driven.id}: cancelled",
        ]
        left = await app.journal.run(task.id)
        assert left is not None and left.status == "paused"


async def test_a_failed_run_is_retried_by_a_server_beside_or_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(run_admin, "_LOOK", 0.01)
    async with serving(tmp_path) as app:
        one, other = await ended(app, "flaky"), await ended(app, "flaky")
    async with serving(tmp_path, WORKS) as app:
        again = await data(tmp_path, "retry", one)
        assert (again["taken"], again["run_id"]) == (True, one)
        assert (await app.runs.wait(one, 30)).run.answer == "It works now."
    waits = await runs(tmp_path, "retry", other)
    assert "or the next one that starts" in waits.stdout
    async with serving(tmp_path, WORKS) as app:
        while (await app.runs.wait(other, 0)).run.status == "failed":  # noqa: ASYNC110
            await anyio.sleep(0.01)
        assert (await app.runs.wait(other, 30)).run.answer == "It works now."
    assert not [*(tmp_path / "state").glob("retry-*/*")]


async def test_a_run_that_a_command_continues_waits_for_a_place_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(run_admin, "_LOOK", 0.01)
    async with serving(tmp_path) as app:
        failed, asks = await ended(app, "flaky"), await ended(app, "ask")
    async with serving(tmp_path, WORKS, workers=1) as app:
        slow = await app.runs.start("slow")
        for command in (["retry", failed], ["approve", asks, "--yes"]):
            assert (await runs(tmp_path, *command)).exit_code == 0
        states = [(await app.runs.snapshot(one)).run for one in (failed, asks)]
        assert [(one.status, one.attempt) for one in states] == [("running", 2)] * 2
        assert app.runs.active == 1
        await app.runs.cancel(slow, "by the test")
        answers = [(await app.runs.wait(one, 30)).run.answer for one in (failed, asks)]
        assert answers == ["It works now.", "Asked."]


async def test_a_run_that_waits_for_a_place_is_not_said_to_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(run_admin, "_LOOK", 0.01)
    async with serving(tmp_path) as app:
        failed = await ended(app, "flaky")
    async with serving(tmp_path, WORKS, workers=1) as app:
        await app.runs.start("slow")
        retried = await runs(tmp_path, "retry", failed)
        assert retried.stdout.startswith(f"Run {failed} waits for a free place")
        told = await runs(tmp_path, "reply", failed, "And the south?")
        assert "No server works on it" not in told.stdout
        assert "at_work" not in await data(tmp_path, "show", failed)
        assert "a server continues it in its turn" in (await runs(tmp_path, "show", failed)).stdout
        listed = (await runs(tmp_path, "list")).stdout
        assert "it waits for a free place" in listed and "(left)" not in listed
        assert (await runs(tmp_path, "wait", failed, "--timeout", "0.1")).exit_code == 124
        again = await refused(tmp_path, "retry", failed)
        assert "waits for a free place and continues by itself" in again
    assert "No server works on run" in await refused(tmp_path, "wait", failed)
    assert "no server works on it" in (await runs(tmp_path, "show", failed)).stdout
    async with serving(tmp_path, WORKS) as app:
        assert (await app.runs.wait(failed, 30)).run.answer == "It works now."


async def test_a_run_that_cannot_be_read_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "LOOK_SECONDS", 0.02)
    requests = retries.RetryRequests(StateDir(tmp_path / "state"))
    async with serving(tmp_path) as app:
        good, *damaged = [
            (await app.runs.snapshot(await ended(app, "flaky"))).run for _ in range(7)
        ]
        for one in damaged:  # the last run of a thread is read with the thread
            await app.runs.wait(await app.runs.start("simple", thread_id=one.thread_id), 30)
    for one in (good, *damaged):
        requests.store(one)
    journal = sqlite3.connect(tmp_path / "state" / "journal.sqlite3")
    with closing(journal), journal:
        change = "UPDATE runs SET goal = CAST(x'ff' AS TEXT) WHERE id = ?"
        journal.executemany(change, [(one.id,) for one in damaged])
    async with serving(tmp_path, WORKS) as app:
        with pytest.raises(HarnessError, match="journal salvage NEWFILE"):
            await app.runs.wait(damaged[0].id, 0)
        while (await app.runs.wait(good.id, 0)).run.status == "failed":  # noqa: ASYNC110
            await anyio.sleep(0.01)
        assert (await app.runs.wait(good.id, 30)).run.answer == "It works now."


async def test_a_run_whose_thread_has_moved_on_is_not_kept_for_the_next_server(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as app:
        failed = await ended(app, "flaky")
        thread = (await app.runs.snapshot(failed)).run.thread_id
        await app.runs.wait(await app.runs.start("simple", thread_id=thread), 30)
    said = await refused(tmp_path, "retry", failed)
    assert f"run --thread {thread}" in said and "Nothing was changed." in said


async def test_what_cannot_be_retried_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "LOOK_SECONDS", 0.02)
    async with serving(tmp_path) as app:
        done, asks = await ended(app, "simple"), await ended(app, "ask")
        slow = await app.runs.start("slow")
        assert "is done, so there is nothing" in await refused(tmp_path, "retry", done)
        assert "waits for an answer" in await refused(tmp_path, "retry", asks)
        assert "is running in a server" in await refused(tmp_path, "retry", slow)
        # Only the server sees that the thread has moved on.
        failed = await ended(app, "flaky")
        thread = (await app.runs.snapshot(failed)).run.thread_id
        later = await app.runs.start("more", thread_id=thread)
        await app.runs.wait(later, 30)
        assert f"moved on without run {failed}" in await refused(tmp_path, "retry", failed)
    assert not [*(tmp_path / "state").glob("retry-*/*")]


async def test_a_run_of_another_process_is_cancelled_and_retried(tmp_path: Path) -> None:
    setup = Setup(tmp_path, script=script(FAILS))
    with anyio.fail_after(60), setup.serving() as server:
        async with connected(server.target("http"), "auto") as client:
            slow = await call(client, "task", goal="slow", wait_seconds=0)
            failed = await client.call_tool("task", {"goal": "flaky"})
            assert failed.structured_content is not None

            async def command(*args: str) -> str:
                words = [sys.executable, "-m", "deep_agent_mcp", "runs", *args]
                env = setup.environment() | {"DEEP_AGENT_STATE_DIR": str(setup.state)}
                done = await anyio.to_thread.run_sync(run_program, words, env, tmp_path)
                assert done.returncode == 0, done.stderr
                return done.stdout

            assert f"{slow['run_id']}: cancelled" in await command("cancel", slow["run_id"])
            now = await call(client, "wait", run_id=slow["run_id"])
            assert (now["status"], now["reason"]) == ("cancelled", "cancelled on the command line")
            run_id = failed.structured_content["run_id"]
            assert f"Run {run_id} continues, as attempt 2" in await command("retry", run_id)


async def test_a_run_is_waited_for_with_an_exit_code_that_says_how_it_ended(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as app:
        done, failed, asks = [await ended(app, goal) for goal in ("simple", "flaky", "ask")]
        slow = await app.runs.start("slow")
        codes = [(await runs(tmp_path, "wait", one)).exit_code for one in (done, failed, asks)]
        assert codes == [0, 1, 3]
        assert (await runs(tmp_path, "wait", slow, "--timeout", "0.1")).exit_code == 124
        await app.runs.cancel(slow, "enough")
        assert (await runs(tmp_path, "wait", slow)).exit_code == 1


async def test_a_call_is_shown_whole_and_approved_and_the_server_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as app:
        asks = await ended(app, "ask")
        asked = await runs(tmp_path, "approve", asks)  # nobody says yes
        assert asked.exit_code == 1
        assert "write_todos needs approval" in asked.stderr and "todos: []" in asked.stderr
        assert (await app.runs.snapshot(asks)).run.status == "needs_approval"
        done = await runs(tmp_path, "approve", asks, "--yes")
        assert done.exit_code == 0, done.output
        assert (await app.runs.wait(asks, 30)).run.answer == "Asked."
        assert "asks nothing" in await refused(tmp_path, "approve", asks, "--yes")


async def test_an_approval_without_a_server_is_kept_for_the_next_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as app:
        asks = await ended(app, "ask")
    done = await runs(tmp_path, "approve", asks, "--reject", "--message", "Not now.")
    assert "run --resume" in done.stdout
    async with serving(tmp_path) as app:
        assert (await app.runs.wait(asks, 30)).run.answer == "Asked."


async def test_a_run_whose_answer_no_server_took_needs_a_server_and_no_approval(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as app:
        asks = await ended(app, "ask")
    assert (await runs(tmp_path, "approve", asks, "--yes")).exit_code == 0
    waited = await refused(tmp_path, "wait", asks)
    assert "has all its answers, but no server has continued it" in waited
    assert f"run --resume {asks}" in waited
    assert f"runs retry {asks}" in await refused(tmp_path, "approve", asks, "--yes")
    assert "All its questions are answered." in (await runs(tmp_path, "show", asks)).stdout
    retries.RetryRequests(StateDir(tmp_path / "state")).discard(asks)  # a server died meanwhile
    assert "Stored." in (await runs(tmp_path, "retry", asks)).stdout
    async with serving(tmp_path) as app:
        assert (await runs(tmp_path, "wait", asks)).exit_code == 0
        assert (await app.runs.wait(asks, 30)).run.answer == "Asked."


async def test_a_message_reaches_a_run_that_a_server_works_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as app:
        run_id = await app.runs.start("two answers")
        done = await runs(tmp_path, "reply", run_id, "And the south?", "--json")
        assert done.exit_code == 0, done.output
        sent = json.loads(done.stdout)["message_id"]
        run = (await app.runs.wait(run_id, 30)).run
        assert run.answer == "Two."
        assert [(one.id, one.status) for one in await app.runs.messages(run)] == [(sent, "taken")]
        assert "asks nothing" in await refused(tmp_path, "reply", run_id, "Too late.")


async def test_a_message_that_is_sent_again_before_it_is_read_is_stored_once(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as app:
        slow = await app.runs.start("slow")
        first, again = [await data(tmp_path, "reply", slow, "And the south?") for _ in range(2)]
        assert first["message_id"] == again["message_id"]
        other = await data(tmp_path, "reply", slow, "And the north?")
        assert other["message_id"] != first["message_id"]
        assert "The message is empty" in await refused(tmp_path, "reply", slow, " ")


async def test_a_message_to_a_run_that_no_server_works_on_says_how_it_is_read(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as app:
        slow = await app.runs.start("slow")
        run = (await app.runs.snapshot(slow)).run
        await app.journal.commit(Batch(run.thread_id, runs=[replace(run, owner="gone")]))
        done = await runs(tmp_path, "reply", slow, "And the south?")
        assert "is queued" in done.stdout and "No server works on it now." in done.stdout
        assert f"run --resume {slow}" in done.stdout


async def test_what_the_agent_file_redacts_is_not_stored_with_answers_and_messages(
    tmp_path: Path,
) -> None:
    (tmp_path / "agent.toml").write_text(
        '[[middleware]]\nuse = "pii"\npii_type = "email"\nstrategy = "tokenize"\n'
        '[[middleware]]\nuse = "pii"\npii_type = "ip"\nstrategy = "block"\n'
    )
    config = tmp_path / "config.toml"
    config.write_text('agent_file = "agent.toml"\n')
    given = ["--config", str(config)]
    async with serving(tmp_path) as app:
        asks, slow = await ended(app, "ask"), await app.runs.start("slow")
        said = [*given, "reply", slow]
        assert "not stored" in await refused(tmp_path, *said, "It is 10.20.30.40.")
        assert (await runs(tmp_path, *said, "Mail ann@example.com")).exit_code == 0
        run = (await app.runs.snapshot(slow)).run
        texts = [one.text for one in await app.runs.messages(run)]
        assert texts == ["Mail [REDACTED_EMAIL]"]
    why = ["--reject", "--message", "Ask bob@example.com first."]
    assert (await runs(tmp_path, *given, "approve", asks, *why)).exit_code == 0
    stored = (tmp_path / "state" / "journal.sqlite3").read_bytes()
    assert b"Ask [REDACTED_EMAIL] first." in stored
    assert b"example.com" not in stored
