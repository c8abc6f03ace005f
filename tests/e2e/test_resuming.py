"""A connection of the handshake era that is cut is taken up again, and nothing is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.abc import SocketStream
from mcp import Client, MCPError

from deep_agent_mcp.server.auth.tokens import TokenFile
from tests.e2e.conftest import SCRIPT
from tests.e2e.raw_sessions import Stream, raw
from tests.e2e.servers import HttpServer, Setup, call, connected

pytestmark = pytest.mark.anyio


async def test_a_call_that_is_cut_off_is_resumed_and_answers(
    shared: tuple[Setup, HttpServer],
) -> None:
    with anyio.fail_after(60):
        async with raw(shared[1].listening["url"]) as client:
            async with client.task("a moment") as cut:
                await cut.read(2)  # the place to resume from, and the first progress
            assert cut.retry is not None
            async with client.resume(cut.ids[-1]) as rest:
                assert await rest.read(), "the answer did not end the stream"
            async with client.resume(cut.ids[0]) as again:
                await again.read()
            async with client.resume(rest.ids[-1]) as nothing:
                assert await nothing.read()
    assert rest.answer["answer"] == "That was a moment."
    assert rest.messages[-1]["id"] == 1
    assert not {*cut.ids} & {*rest.ids}
    assert again.messages == cut.messages + rest.messages
    assert nothing.messages == []


async def test_a_session_that_is_deleted_ends_the_stream_that_was_resumed(
    shared: tuple[Setup, HttpServer],
) -> None:
    with anyio.fail_after(60):
        async with raw(shared[1].listening["url"]) as client:
            async with client.task("take your time") as cut:
                await cut.read(1)
            async with client.resume(cut.ids[0]) as rest:
                ended = await client.http.delete(client.url, headers=client.headers)
                assert ended.status_code == 200
                assert await rest.read()
            async with client.resume(cut.ids[0]) as gone:
                assert gone.response.status_code == 404


async def test_an_answer_that_came_while_nobody_was_connected_is_kept(
    shared: tuple[Setup, HttpServer],
) -> None:
    with anyio.fail_after(60):
        async with raw(shared[1].listening["url"]) as client:
            async with client.task("a moment, all alone", 7) as cut:
                await cut.read(1)
            run = {}
            while (run.get("goal"), run.get("status")) != ("a moment, all alone", "done"):
                params = {"name": "threads", "arguments": {"limit": 1}}
                async with client.post("tools/call", params, 8) as stream:
                    await stream.read()
                threads = stream.answer["threads"]  # none before the run's first commit
                run = (threads[0]["last_run"] if threads else None) or {}
            async with client.resume(cut.ids[0]) as rest:
                assert await rest.read()
    assert rest.answer["run_id"] == run["run_id"] and rest.messages[-1]["id"] == 7


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HttpServer, TokenFile]]:
    setup = Setup(tmp_path_factory.mktemp("guarded"), flags=["--auth", "token"], script=SCRIPT)
    with setup.serving() as server:
        yield server, TokenFile(setup.state / "tokens.json")


async def test_nobody_can_resume_what_is_somebody_elses(
    guarded: tuple[HttpServer, TokenFile],
) -> None:
    server, tokens = guarded
    url = server.listening["url"]
    ann = tokens.create("ann", ("drive", "delegate"))[1]
    ben = tokens.create("ben", ("drive", "delegate"))[1]
    with anyio.fail_after(60):
        async with raw(url, ann) as one, raw(url, ann) as other, raw(url, ben) as stranger:
            async with one.task("a moment") as cut:
                await cut.read(1)
            for nosy in (other, stranger):  # their request 1 has a stream of the same name
                async with nosy.task("write a note") as own:
                    await own.read()
                async with nosy.resume(cut.ids[0]) as stolen:
                    assert await stolen.read()
                assert stolen.response.status_code == 200 and stolen.messages == []
            session = one.headers["Mcp-Session-Id"]
            async with stranger.resume(cut.ids[0], **{"Mcp-Session-Id": session}) as refused:
                assert refused.response.status_code == 404
            async with one.resume(cut.ids[0]) as rest:
                await rest.read()
    assert rest.answer["answer"] == "That was a moment."


async def test_notices_that_came_while_nobody_listened_are_caught_up(
    shared: tuple[Setup, HttpServer],
) -> None:
    with anyio.fail_after(60):
        async with raw(shared[1].listening["url"]) as client:
            call = {"name": "ls", "arguments": {"thread_id": "new"}}
            async with client.http.stream("GET", client.url, headers=client.headers) as response:
                first = Stream(response)
                async with client.post("tools/call", call) as stream:
                    await stream.read()
                await first.read(1)  # a thread is new
            async with client.post("tools/call", call, 2) as stream:
                await stream.read()
            async with client.resume(first.ids[-1]) as rest:
                await rest.read(1)
    for heard in (first, rest):
        assert heard.messages[0]["method"] == "notifications/resources/list_changed"


class CuttingProxy:
    """Passes connections on to a server until it is told to cut them all."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (str(parts.hostname), int(parts.port or 0))
        self._scopes: list[anyio.CancelScope] = []
        self.connections = 0
        self.url = ""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[CuttingProxy]:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        self.url = f"http://127.0.0.1:{port}/mcp"
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._serve)
            yield self
            tasks.cancel_scope.cancel()

    def cut(self) -> None:
        for scope in self._scopes:
            scope.cancel()

    async def _serve(self, client: SocketStream) -> None:
        self.connections += 1
        with anyio.CancelScope() as scope:
            self._scopes.append(scope)
            async with (
                client,
                await anyio.connect_tcp(*self._target) as server,
                anyio.create_task_group() as tasks,
            ):
                for source, sink in ((client, server), (server, client)):
                    tasks.start_soon(_pass_on, source, sink, scope)


async def _pass_on(source: SocketStream, sink: SocketStream, scope: anyio.CancelScope) -> None:
    try:
        async for data in source:
            await sink.send(data)
    except anyio.BrokenResourceError:
        pass
    scope.cancel()


async def test_the_official_client_does_not_notice_that_its_call_was_cut_off(
    shared: tuple[Setup, HttpServer],
) -> None:
    lines: list[str] = []
    proxy = CuttingProxy(shared[1].listening["url"])

    async def hear(done: float, total: float | None, message: str | None) -> None:
        lines.append(message or "")
        if len(lines) == 1:
            proxy.cut()

    with anyio.fail_after(60):
        async with proxy.open(), connected(proxy.url, "legacy") as client:
            before = proxy.connections
            result = await client.call_tool("task", {"goal": "a moment"}, progress_callback=hear)
            assert proxy.connections > before
    assert result.structured_content is not None
    assert result.structured_content["answer"] == "That was a moment."


async def test_after_a_restart_a_client_shakes_hands_anew_and_its_run_is_there(
    tmp_path: Path,
) -> None:
    script = {
        "name": "later",
        "runs": [{"match": "endure", "agents": {"main": [{"text": "Endured.", "delay": 1}]}}],
    }
    setup = Setup(tmp_path, script=script)
    with anyio.fail_after(60):
        with setup.serving() as server:
            port = str(server.listening["port"])
            url = server.listening["url"]
            async with Client(url, mode="legacy") as client:
                begun = await call(client, "task", goal="endure", wait_seconds=0)
                server.kill()
                setup.flags = ["--port", port]
                with setup.serving():
                    with pytest.raises(MCPError, match="Session not found"):
                        await client.call_tool("wait", {"run_id": begun["run_id"]})
                    async with connected(url, "legacy") as again:
                        done = await call(again, "wait", run_id=begun["run_id"])
    assert done["answer"] == "Endured."
