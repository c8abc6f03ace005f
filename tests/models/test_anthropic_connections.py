"""What becomes of a connection once an answer has come."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import anyio.abc
import h11
import pytest
from anthropic import AsyncAnthropic

from deep_agent_mcp.harness.tools.marks import repeating
from tests.fake_anthropic import Answer
from tests.models.calls import ask, claude

pytestmark = pytest.mark.anyio


@dataclass
class KeepAlive:
    """Answers `hi` to everything, on as many connections as a client opens.

    Attributes:
        ends: Whether a stream ends after its last event.
        connections: How many were opened.
    """

    ends: bool = True
    connections: int = 0
    url: str = ""

    async def serve(self, stream: anyio.abc.SocketStream) -> None:
        self.connections += 1
        http = h11.Connection(h11.SERVER)
        async with stream:
            while True:
                event = http.next_event()
                if event is h11.NEED_DATA:
                    try:
                        http.receive_data(await stream.receive())
                    except (anyio.EndOfStream, anyio.BrokenResourceError):
                        return
                elif isinstance(event, h11.EndOfMessage):
                    await self._answer(stream, http)
                    http.start_next_cycle()

    async def _answer(self, stream: anyio.abc.SocketStream, http: h11.Connection) -> None:
        async def send(event: h11.Event) -> None:
            await stream.send(http.send(event) or b"")

        await send(h11.Response(status_code=200, headers=[("content-type", "text/event-stream")]))
        for event in Answer(text="hi").events("claude"):
            data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
            await send(h11.Data(data=data.encode()))
        if not self.ends:
            await anyio.sleep_forever()
        await anyio.wait_all_tasks_blocked()  # the client has taken all there is so far
        await send(h11.EndOfMessage())


@asynccontextmanager
async def keep_alive(*, ends: bool = True) -> AsyncIterator[KeepAlive]:
    server = KeepAlive(ends)
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(listener.serve, server.serve)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        server.url = f"http://127.0.0.1:{port}"
        yield server
        group.cancel_scope.cancel()


async def test_calls_that_follow_each_other_share_a_connection() -> None:
    async with keep_alive() as server, claude(server.url) as model:
        for _ in range(3):
            assert (await ask(model, "go")).text == "hi"
        assert server.connections == 1


async def test_an_answer_does_not_wait_for_a_stream_that_never_ends() -> None:
    async with keep_alive(ends=False) as server, claude(server.url) as model:
        with anyio.fail_after(20):
            assert (await ask(model, "go")).text == "hi"


async def test_calls_that_are_repeated_elsewhere_share_a_client_that_repeats_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[object] = []
    copy = AsyncAnthropic.copy

    def counted(sdk: AsyncAnthropic, **changes: object) -> AsyncAnthropic:
        made.append(changes)
        return copy(sdk, **changes)  # type: ignore[arg-type]

    monkeypatch.setattr(AsyncAnthropic, "with_options", counted)
    async with keep_alive() as server, claude(server.url, max_retries=2) as model:
        with repeating():
            for _ in range(3):
                assert (await ask(model, "go")).text == "hi"
            assert made == [{"max_retries": 0}]
            assert server.connections == 1
            await model.aclose()
            assert (await ask(model, "go")).text == "hi"
        assert made == [{"max_retries": 0}] * 2
