"""Webhooks: what is told of a run, how it is signed, and when it is told again."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
import yaml
from click.testing import CliRunner
from mcp import Client

from deep_agent_mcp.harness.checkpoint.base import Batch, Run
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.server.agenda import outbox, webhooks
from deep_agent_mcp.server.agenda.outbox import DELAYS, Outbox, waiting
from deep_agent_mcp.server.agenda.tables import AgendaTables, SqliteTables
from deep_agent_mcp.server.agenda.webhooks import Webhooks, new_secret
from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.settings.settings import Settings, SettingsError
from deep_agent_mcp.server.settings.sources import load_settings
from tests.agenda.conftest import Open
from tests.agenda.receiver import SECRET, Receiver, receiving
from tests.e2e.servers import call
from tests.e2e.test_https import certificate

pytestmark = pytest.mark.anyio

SCRIPT = {
    "runs": [
        {
            "match": "write",
            "agents": {
                "main": [
                    {
                        "tool_calls": [
                            {"name": "write_file", "args": {"path": "/a", "content": "b"}}
                        ]
                    },
                    {"text": "Written."},
                ]
            },
        }
    ],
    "agents": {"*": [{"text": "Done."}]},
}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "LOOK_SECONDS", 0.02)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def settings(*urls: str, secret: str = SECRET) -> Settings:
    return Settings.model_validate(
        {"webhooks": urls, "webhook_hosts": ["127.0.0.1"], "webhook_secret": secret}
    )


@asynccontextmanager
async def serving(place: Path, receiver: Receiver, **more: object) -> AsyncGenerator[App]:
    script = place / "script.yaml"
    script.write_text(yaml.safe_dump(SCRIPT), encoding="utf-8")
    given = {
        "state_dir": str(place / "state"),
        "model": f"scripted:{script}",
        "webhooks": (receiver.url,),
        "webhook_hosts": ("127.0.0.1",),
        **more,
    }
    with anyio.fail_after(60):
        environ = {"DEEP_AGENT_WEBHOOK_SECRET": SECRET}
        async with create_app(load_settings(given, environ)) as app:
            yield app


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  a thread does it
        await anyio.sleep(0.01)


async def test_the_pause_and_the_end_of_a_run_are_told(tmp_path: Path, receiver: Receiver) -> None:
    approve = ("write_file",)
    async with serving(tmp_path, receiver, approve=approve) as app, Client(app.server) as client:
        run = await call(client, "task", goal="write")
        await until(lambda: len(receiver.requests) == 1)
        await call(client, "reply", run_id=run["run_id"], decision="approve")
        await until(lambda: len(receiver.requests) == 2)
        await call(client, "ls")  # driven calls are not told
        await call(client, "task", goal="secret words", thread_id="new")
        await until(lambda: len(receiver.requests) == 3)
        assert app.agenda is not None
        tried = app.agenda.counts["webhook_tries_total"]
        await until(lambda: tried["delivered"] == 3)
        found = {one.name: one.values for one in await app.health().metrics()}
        assert found["deep_agent_webhook_tries_total"][("result", "delivered"),] == 3
        assert found["deep_agent_webhooks_waiting"] == {(): 0}
        assert "deep_agent_schedule_times_total" not in found
    paused, done, other = receiver.events
    kinds = ["run.needs_approval", "run.done", "run.done"]
    assert [one["type"] for one in receiver.events] == kinds
    data = {"run_id": run["run_id"], "thread_id": run["thread_id"]}
    assert paused["data"] == {**data, "status": "needs_approval"}
    assert done["data"] == {**data, "status": "done"}
    assert "secret" not in str(other)
    assert all(receiver.verified(number) for number in range(3))
    assert len({headers["webhook-id"] for headers, _ in receiver.requests}) == 3
    assert {headers["content-type"] for headers, _ in receiver.requests} == {"application/json"}


async def test_what_was_not_received_is_told_again_after_a_restart(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.answers = [500]
    async with serving(tmp_path, receiver) as app, Client(app.server) as client:
        await call(client, "task", goal="anything")
        await until(lambda: len(receiver.requests) == 1)
    tables = SqliteTables(tmp_path / "state" / "agenda.db")
    await later(tables)
    await tables.close()
    async with serving(tmp_path, receiver):
        await until(lambda: len(receiver.requests) == 2)
    (first, again) = (headers["webhook-id"] for headers, _ in receiver.requests)
    assert first == again
    assert receiver.requests[0][1] == receiver.requests[1][1]


async def test_a_receiver_that_never_answers_delays_no_other(
    tmp_path: Path, receiver: Receiver
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        urls = (f"http://127.0.0.1:{silent.getsockname()[1]}/", receiver.url)
        async with serving(tmp_path, receiver, webhooks=urls) as app, Client(app.server) as client:
            for number in (1, 2):
                await call(client, "task", goal="anything", thread_id=f"new-{number}")
                with anyio.fail_after(webhooks.REQUEST_SECONDS - 5):
                    await until(lambda number=number: len(receiver.requests) == number)


RUN = Run("run_1", "thr_1", "delegate", "main")


async def watched(
    tables: AgendaTables, *urls: str, status: str = "done"
) -> tuple[Outbox, MemoryCheckpointer, Run]:
    """Return an outbox with a run that has stopped, of which nothing was told yet."""
    journal = MemoryCheckpointer()
    outbox = Outbox(tables, journal)
    await outbox.watch(RUN.id)
    run = replace(RUN, status=status)
    await journal.commit(Batch("thr_1", runs=[run]))
    await outbox.stopped(run, urls)
    return outbox, journal, run


async def later(tables: AgendaTables) -> None:
    """Let the time of all deliveries have come."""
    await tables.run(("UPDATE {deliveries} SET next_at = 0, claimed_until = 0", {}))


async def deliver(sender: Webhooks) -> None:
    """Make the deliveries whose time has come."""
    async with anyio.create_task_group() as group:
        await sender.deliver_due(group)


async def test_each_event_is_told_once_by_one_of_several_servers(
    open_: Open, receiver: Receiver
) -> None:
    tables = [open_() for _ in range(3)]
    _, journal, run = await watched(tables[0], receiver.url)
    chosen = settings(receiver.url)
    async with anyio.create_task_group() as group:
        for one in tables:
            outbox = Outbox(one, journal)
            await outbox.stopped(run, [receiver.url])  # whoever has carried it, too
            group.start_soon(deliver, Webhooks(outbox, lambda: chosen))
    assert [one["type"] for one in receiver.events] == ["run.done"]
    assert await waiting(tables[0]) == []


async def test_a_run_whose_server_died_is_found(open_: Open, receiver: Receiver) -> None:
    tables, journal = open_(), MemoryCheckpointer()
    outbox = Outbox(tables, journal)
    await outbox.watch("run_1")
    await outbox.watch("run_of_nobody")
    for status in ("running", "needs_approval", "needs_approval", "cancelled"):
        await journal.commit(Batch("thr_1", runs=[replace(RUN, status=status)]))
        await tables.run(("UPDATE {watched} SET looked_at = 0", {}))
        await outbox.look([receiver.url])
    assert sorted(one.body[9:30] for one in await waiting(tables)) == [
        'run.cancelled","times', 'run.needs_approval","',
    ]  # fmt: skip
    assert await tables.run(("SELECT run_id FROM {watched}", {})) == []


async def test_tries_come_later_and_later_and_end(open_: Open, receiver: Receiver) -> None:
    tables = open_()
    outbox, _, _ = await watched(tables, receiver.url)
    sender = Webhooks(outbox, lambda: settings(receiver.url))
    receiver.answers = [503] * 20
    delays: list[float] = []
    while found := await waiting(tables):
        if found[0].attempts:
            delays.append(found[0].due_at - found[0].now)
            assert found[0].error == "it answered 503"
        await later(tables)
        await deliver(sender)
    assert len(receiver.requests) == len(delays) + 1 == len(DELAYS) + 1
    assert sender.counts == {"delivered": 0, "retried": len(DELAYS), "given_up": 1}
    assert all(0.7 * due < delay < 1.3 * due for due, delay in zip(DELAYS, delays, strict=True))


async def test_a_receiver_says_how_long_to_wait_and_that_it_is_gone(
    open_: Open, receiver: Receiver
) -> None:
    tables = open_()
    outbox, _, _ = await watched(tables, receiver.url)
    sender = Webhooks(outbox, lambda: settings(receiver.url))
    receiver.answers, receiver.headers = [429, 410], {"retry-after": "900"}
    await deliver(sender)
    (found,) = await waiting(tables)
    assert found.due_at - found.now > 890
    await later(tables)
    await deliver(sender)
    assert await waiting(tables) == []


async def test_redirects_are_not_followed(open_: Open, receiver: Receiver) -> None:
    tables = open_()
    outbox, _, _ = await watched(tables, receiver.url)
    receiver.answers, receiver.headers = [307], {"location": receiver.url}
    await deliver(Webhooks(outbox, lambda: settings(receiver.url)))
    assert len(receiver.requests) == 1
    (found,) = await waiting(tables)
    assert found.error == "it answered 307; redirects are not followed"


async def test_a_receiver_with_a_certificate_that_nobody_vouches_for_gets_nothing(
    tmp_path: Path,
) -> None:
    with receiving(certificate(tmp_path)) as stranger:
        answer = await webhooks.send(settings(stranger.url), stranger.url, "evt_1", "{}")
        assert "CERTIFICATE_VERIFY_FAILED" in answer.problem
    assert stranger.requests == []


async def test_logs_do_not_show_the_url(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"{receiver.url}/secret-words"
    with caplog.at_level("INFO"):
        assert (await webhooks.send(settings(url), url, "evt_1", "{}")).status == 204
    assert "secret-words" not in caplog.text


async def test_a_secret_is_replaced_by_signing_with_both(receiver: Receiver) -> None:
    new = new_secret()
    chosen = settings(receiver.url, secret=f"{new}\n{SECRET}")
    answer = await webhooks.send(chosen, receiver.url, "evt_1", "{}")
    assert answer.problem == ""
    assert receiver.verified(0, new)
    assert receiver.verified(0, SECRET)


async def test_a_url_that_is_not_wanted_any_more_is_forgotten(
    open_: Open, receiver: Receiver
) -> None:
    tables = open_()
    outbox, _, _ = await watched(tables, receiver.url)
    await deliver(Webhooks(outbox, lambda: settings()))
    assert (receiver.requests, await waiting(tables)) == ([], [])


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"webhooks": ("https://a.example/",)}, "webhook_hosts does not list"),
        ({"webhooks": ("http://a.example/",), "webhook_hosts": ("a.example",)}, "https://"),
        ({"webhooks": ("https://u:p@a.example/",)}, "without user"),
        ({"webhooks": ("https://a.example:99999/",)}, "Port out of range"),
        ({"webhooks": ("https://a.example/",), "webhook_hosts": ("a.example",)}, "are signed"),
        ({"webhook_secret": "whsec_short"}, "base64 of 24 to 64 bytes"),
    ],
)
def test_settings_that_lack_something_say_what(given: dict[str, object], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        load_settings(given, {})


def test_the_secret_is_in_no_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'webhook_secret = "{SECRET}"', encoding="utf-8")
    with pytest.raises(SettingsError, match="webhook_secret_file") as refused:
        load_settings({}, {}, config=file)
    assert SECRET not in str(refused.value)


async def test_the_command_line_tries_a_url(tmp_path: Path, receiver: Receiver) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n", encoding="utf-8")
    file.chmod(0o600)

    def run(*args: str) -> tuple[int, str]:
        place = ["--state-dir", str(tmp_path / "state"), "--webhook-secret-file", str(file)]
        done = CliRunner().invoke(cli, ["webhooks", *place, *args])
        return done.exit_code, done.output

    code, said = await anyio.to_thread.run_sync(run, "test", receiver.url)
    assert (code, "127.0.0.1 is not in webhook_hosts" in said) == (1, True)
    code, said = await anyio.to_thread.run_sync(
        run, "--webhook-host", "127.0.0.1", "test", receiver.url
    )
    assert (code, "answered 204" in said) == (0, True)
    assert receiver.verified(0)
    assert await anyio.to_thread.run_sync(run, "list") == (0, "No event waits for a webhook.\n")


async def test_a_run_that_is_cancelled_before_it_begins_is_told(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "SWEEP_SECONDS", 0.02)
    monkeypatch.setattr(webhooks, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(outbox, "_LOOK_SECONDS", 0.0)
    async with serving(tmp_path, receiver, approve=("write_file",)) as app:
        first = await app.runs.start("write")
        await app.runs.wait(first, 20)
        run = await app.journal.run(first)
        assert run is not None
        queued = await app.runs.start("later", thread_id=run.thread_id, on_busy="queue")
        await app.runs.cancel(queued, "by the test")
        await until(lambda: any(one["data"]["run_id"] == queued for one in receiver.events))
    (told,) = [one for one in receiver.events if one["data"]["run_id"] == queued]
    assert told["type"] == "run.cancelled"
