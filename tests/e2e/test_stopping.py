"""A server that is told to stop lets each run finish its step, and the next one goes on with it."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.e2e.client_model import ClientModel
from tests.e2e.servers import Era, HttpServer, Setup, call, connected, refused

pytestmark = pytest.mark.anyio

STEPS = 4


def command(number: int) -> dict[str, Any]:
    """Return a call whose effect is a line, and that only ends when the test wants it to."""
    line = f"echo {number} >> effects; while [ ! -e go-{number} ]; do sleep 0.02; done"
    return {"name": "execute", "args": {"command": f"{line}; echo {number} >> ended"}}


SCRIPT = {
    "name": "stopping",
    "runs": [
        {
            "match": "work",
            "agents": {
                "main": [
                    *({"tool_calls": [command(number)]} for number in range(STEPS)),
                    {"text": "All done."},
                ]
            },
        },
        {
            "match": "delegate",
            "agents": {
                "main": [
                    {"tool_calls": [{"name": "start_task", "args": {"description": "dig"}}]},
                    {"tool_calls": [{"name": "check_tasks", "args": {"wait_seconds": 60}}]},
                    {"text": "All done."},
                ],
                "general-purpose": [
                    {"tool_calls": [command(0)]},
                    {"tool_calls": [command(1)]},
                    {"text": "Dug."},
                ],
            },
        },
    ],
}


def setup_in(place: Path, *flags: str) -> Setup:
    flags = ("--execute", "host", "--drain-seconds", "30", *flags)
    return Setup(place, script=SCRIPT, flags=flags)


def let_go(setup: Setup, *numbers: int) -> None:
    for number in numbers:
        (setup.root / f"go-{number}").touch()


def lines(setup: Setup, name: str) -> list[str]:
    file = setup.root / name
    return file.read_text().split() if file.exists() else []


async def until_line(setup: Setup, number: int) -> None:
    while str(number) not in lines(setup, "effects"):  # noqa: ASYNC110 - another process writes it
        await anyio.sleep(0.01)


def asked(server: HttpServer, path: str) -> tuple[int, Any]:
    url = server.listening["url"].replace("/mcp", path)
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


async def until_draining(server: HttpServer) -> None:
    while (await anyio.to_thread.run_sync(asked, server, "/readyz"))[0] == 200:  # noqa: ASYNC110 - another process
        await anyio.sleep(0.01)


@pytest.mark.parametrize(
    ("transport", "mode"), [("http", "auto"), ("http", "legacy"), ("sse", "legacy")]
)
async def test_no_tool_is_cut_and_the_next_server_goes_on_with_each_effect_once(
    transport: str, mode: Era, tmp_path: Path
) -> None:
    setup = setup_in(tmp_path)
    waited: dict[str, Any] = {}
    lends = ClientModel({}).options  # such a client's calls look for more than the end of a run
    with anyio.fail_after(60):
        with setup.serving() as server:
            async with connected(server.target(transport), mode, **lends) as client:
                run_id = (await call(client, "task", goal="work", wait_seconds=0))["run_id"]
                let_go(setup, 0)
                await until_line(setup, 1)

                async with anyio.create_task_group() as group:

                    async def wait() -> None:
                        waited.update(await call(client, "wait", run_id=run_id))

                    group.start_soon(wait)
                    server.process.send_signal(signal.SIGTERM)
                    await until_draining(server)
                    assert asked(server, "/healthz")[0] == 200
                    assert asked(server, "/readyz") == (
                        503,
                        {"status": "not ready", "reason": "the server is stopping"},
                    )
                    for tool, args in (("task", {"goal": "work"}), ("write_todos", {"todos": []})):
                        assert "This server is stopping" in await refused(client, tool, **args)
                    assert lines(setup, "ended") == ["0"]
                    let_go(setup, *range(1, STEPS))
            assert server.process.wait(30) == 0
        assert waited["status"] == "running"
        assert "the next server continues it" in waited["reason"]
        assert f'wait(run_id="{run_id}") again in about 10 s' in waited["next"]
        assert lines(setup, "effects") == lines(setup, "ended") == ["0", "1"]

        with setup.serving() as server:
            async with connected(server.target("http"), mode) as client:
                done = await call(client, "wait", run_id=run_id)
                assert (done["status"], done["answer"]) == ("done", "All done.")
                thread = f"thread://{done['thread_id']}/transcript"
                (content,) = (await client.read_resource(thread)).contents
    every = [str(number) for number in range(STEPS)]
    assert lines(setup, "effects") == lines(setup, "ended") == every
    assert "not known" not in content.text  # type: ignore[union-attr]
    log = (tmp_path / "stderr.txt").read_text()
    assert "stopping: 1 runs finish their step first, within 30 s" in log
    assert "cut short" not in log and "Traceback" not in log


@pytest.mark.parametrize("signals", [["--drain-seconds", "0.2"], [signal.SIGTERM], [signal.SIGINT]])
async def test_a_step_that_takes_too_long_or_a_second_signal_ends_the_server_all_the_same(
    signals: list[Any], tmp_path: Path
) -> None:
    flags = signals if signals[0] == "--drain-seconds" else ["--drain-seconds", "3600"]
    setup = setup_in(tmp_path, *flags)
    with anyio.fail_after(60):
        with setup.serving() as server:
            async with connected(server.target("http"), "auto") as client:
                run = await call(client, "task", goal="work", wait_seconds=0)
                await until_line(setup, 0)
                waited: dict[str, Any] = {}
                async with anyio.create_task_group() as group:

                    async def wait() -> None:
                        waited.update(await call(client, "wait", run_id=run["run_id"]))

                    group.start_soon(wait)
                    server.process.send_signal(signal.SIGINT)
                    if flags is not signals:
                        await until_draining(server)
                        server.process.send_signal(signals[0])
                assert waited["status"] == "running"
                assert "this server is stopping" in waited["next"]
            assert server.process.wait(30) == 0
        assert lines(setup, "ended") == []
        assert "cut short" in (tmp_path / "stderr.txt").read_text() or flags is not signals


async def test_listen_streams_are_closed_and_not_dropped(tmp_path: Path) -> None:
    with anyio.fail_after(60), setup_in(tmp_path).serving() as server:
        async with (
            connected(server.target("http"), "auto") as client,
            client.listen(prompts_list_changed=True) as changes,
        ):
            server.process.send_signal(signal.SIGTERM)
            assert [event async for event in changes] == []
        assert server.process.wait(30) == 0


async def test_background_tasks_are_handed_over_too_and_whoever_waits_for_them_is_let_go(
    tmp_path: Path,
) -> None:
    setup = setup_in(tmp_path, "--background-subagents", "--drain-seconds", "3600")
    with anyio.fail_after(60):
        with setup.serving() as server:
            async with connected(server.target("http"), "auto") as client:
                run = await call(client, "task", goal="delegate", wait_seconds=0)
                await until_line(setup, 0)
                server.process.send_signal(signal.SIGTERM)
                await until_draining(server)
                let_go(setup, 0, 1)
            assert server.process.wait(30) == 0
        assert lines(setup, "effects") == lines(setup, "ended") == ["0"]
        with setup.serving() as server:
            async with connected(server.target("http"), "auto") as client:
                done = await call(client, "wait", run_id=run["run_id"])
                assert (done["status"], done["answer"]) == ("done", "All done.")
                threads = (await call(client, "threads"))["threads"]
                (child,) = [one for one in threads if ".task-" in one["thread_id"]]
                dug = await call(client, "wait", run_id=child["last_run"]["run_id"])
                assert (dug["status"], dug["answer"]) == ("done", "Dug.")
    assert lines(setup, "effects") == lines(setup, "ended") == ["0", "1"]
    assert "cannot continue now" not in (tmp_path / "stderr.txt").read_text()
