"""The fake server's HTTP part, on a loopback port, in the event loop of the test."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Self

import anyio
import anyio.abc
import h11

from tests.fake_anthropic.answers import Answer
from tests.fake_anthropic.refusals import Refused, refuse_bad

Answers = Iterable[Answer | Mapping[str, Any] | str]

_COUNT = "/v1/messages/count_tokens"
_VERTEX = re.compile(
    r"/v1/projects/[\w-]+/locations/[\w-]+/publishers/anthropic/models/([^:]+):streamRawPredict"
)
_COUNTED = {"model", "messages", "system", "tools", "tool_choice", "thinking"}


@dataclass
class Recorded:
    """One request, and whether its client hung up early."""

    body: dict[str, Any]
    headers: dict[str, str]
    refused: str | None = None
    streaming: anyio.Event = field(default_factory=anyio.Event)
    hung_up: anyio.Event = field(default_factory=anyio.Event)


class HangUp(Exception):
    """Close the connection without ending the response."""


class FakeAnthropic:
    """A server for `async with`.

    An answer is an `Answer`, its fields, or plain text. Each request uses up the first matching
    answer in the queue; a refused request uses up none.

    Attributes:
        url: Value for `base_url` or `ANTHROPIC_BASE_URL`.
        requests: Bodies of all requests, in order of arrival.
        recorded: All requests with headers and outcome.
        answers: The queue; append to it at any time.
        hung_up: Set when a client closes a stalled stream.
    """

    def __init__(
        self, answers: Answers = (), *, port: int = 0, check: Callable[[Any], None] = refuse_bad
    ) -> None:
        self.answers = [_answer(answer) for answer in answers]
        self.recorded: list[Recorded] = []
        self.url = ""
        self._port = port
        self._check = check
        self.hung_up = anyio.Event()
        self._stack = AsyncExitStack()

    @property
    def asked(self) -> int:
        return len(self.recorded)

    @property
    def requests(self) -> list[dict[str, Any]]:
        return [record.body for record in self.recorded]

    def add(self, *answers: Answer | Mapping[str, Any] | str) -> None:
        self.answers += [_answer(answer) for answer in answers]

    async def __aenter__(self) -> Self:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=self._port)
        await self._stack.enter_async_context(listener)
        group = await self._stack.enter_async_context(anyio.create_task_group())
        group.start_soon(listener.serve, self._serve)
        self._stack.callback(group.cancel_scope.cancel)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def _serve(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            connection = Connection(stream)
            with suppress(HangUp, anyio.BrokenResourceError, anyio.EndOfStream):
                await self._exchange(connection)

    async def _exchange(self, connection: Connection) -> None:
        method, path, headers, data = await connection.request()
        route = path.partition("?")[0]
        vertex = _VERTEX.fullmatch(route)
        if not (vertex or route in ("/v1/messages", _COUNT)) or method != "POST":
            await connection.error(404, "not_found_error", f"Not found: {method} {path}")
            return
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer")
        if not key.strip():
            await connection.error(401, "authentication_error", "x-api-key header is required")
            return
        if "anthropic-version" not in headers and not vertex:
            message = "anthropic-version: header is required"
            await connection.error(400, "invalid_request_error", message)
            return
        try:
            body = json.loads(data)
        except ValueError:
            await connection.error(400, "invalid_request_error", "The body is not valid JSON")
            return
        if vertex:  # Vertex has the model in the path, and the version in the body
            if not body.pop("anthropic_version", "") or "model" in body:
                message = f"anthropic_version or model is wrong: {sorted(body)}"
                await connection.error(400, "invalid_request_error", message)
                return
            body["model"] = vertex[1]
        record = Recorded(body, headers)
        self.recorded.append(record)
        if route == _COUNT:
            await self._count(connection, body)
            return
        try:
            self._check(body)
        except Refused as refusal:
            record.refused = str(refusal)
            await connection.error(400, "invalid_request_error", str(refusal))
            return
        await self._answer(connection, record)

    async def _answer(self, connection: Connection, record: Recorded) -> None:
        answer = self._next(record.body)
        await anyio.sleep(answer.delay)
        if answer.status != 200:
            await connection.json(answer.status, answer.error_body(), answer.headers)
        elif not record.body.get("stream"):
            await connection.json(200, answer.body(record.body["model"]), answer.headers)
        else:
            await self._stream(connection, record, answer)

    async def _count(self, connection: Connection, body: dict[str, Any]) -> None:
        """Answer with a count of four characters per token; refuse other parameters."""
        extra = sorted(body.keys() - _COUNTED)
        if extra:
            message = f"{extra[0]}: Extra inputs are not permitted"
            await connection.error(400, "invalid_request_error", message)
            return
        await connection.json(200, {"input_tokens": len(json.dumps(body)) // 4}, {})

    def _next(self, body: dict[str, Any]) -> Answer:
        text = json.dumps([body.get("system"), body["messages"][-1]], ensure_ascii=False)
        for place, answer in enumerate(self.answers):
            if answer.match is None or answer.match in text:
                return answer if answer.repeat else self.answers.pop(place)
        message = "the fake server has no answer left for this request"
        return Answer(status=400, message=message, headers={"x-should-retry": "false"})

    async def _stream(self, connection: Connection, record: Recorded, answer: Answer) -> None:
        headers = {"content-type": "text/event-stream; charset=utf-8", **answer.headers}
        await connection.head(200, headers)
        if answer.stream is not None:
            await connection.text(answer.stream)
            await connection.end()
            return
        for count, event in enumerate(answer.events(record.body["model"])):
            if count == answer.hang_up_after:
                raise HangUp
            if count == answer.stall_after:
                record.streaming.set()
                await connection.wait_for_hang_up()
                record.hung_up.set()
                self.hung_up.set()
                return
            if count == answer.error_after:
                failure = Answer(status=529, error_type=answer.error_type, message=answer.message)
                await connection.event(failure.error_body())
                break
            if count == answer.truncate_after:
                break
            await connection.event(event)
        await connection.end()


def _answer(answer: Answer | Mapping[str, Any] | str) -> Answer:
    if isinstance(answer, str):
        return Answer(text=answer)
    return answer if isinstance(answer, Answer) else Answer.model_validate(answer)


class Connection:
    """One HTTP/1.1 exchange; the connection is closed after it."""

    def __init__(self, stream: anyio.abc.SocketStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.SERVER)

    async def request(self) -> tuple[str, str, dict[str, str], bytes]:
        request: h11.Request | None = None
        data = b""
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError:  # someone looks for what had this port before
                raise HangUp from None
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._stream.receive())
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                data += event.data
            elif request is not None:
                headers = {name.decode(): value.decode() for name, value in request.headers}
                return request.method.decode(), request.target.decode(), headers, data
            else:
                raise HangUp

    async def head(self, status: int, headers: Mapping[str, str]) -> None:
        fields = {"request-id": "req_fake", "connection": "close", **headers}
        await self._send(h11.Response(status_code=status, headers=list(fields.items())))

    async def json(self, status: int, body: object, headers: Mapping[str, str]) -> None:
        data = json.dumps(body).encode()
        fields = {"content-type": "application/json", "content-length": str(len(data)), **headers}
        await self.head(status, fields)
        await self._send(h11.Data(data=data))
        await self.end()

    async def error(self, status: int, kind: str, message: str) -> None:
        body = {"type": "error", "error": {"type": kind, "message": message}}
        await self.json(status, body, {})

    async def event(self, event: Mapping[str, Any]) -> None:
        await self.text(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n")

    async def text(self, text: str) -> None:
        await self.data(text.encode())

    async def data(self, data: bytes) -> None:
        await self._send(h11.Data(data=data))

    async def end(self) -> None:
        await self._send(h11.EndOfMessage())

    async def comments(self) -> None:
        """Send comments until the client hangs up."""
        while True:
            await self.text(": still at work\n\n")
            await anyio.sleep(0.005)

    async def wait_for_hang_up(self) -> None:
        try:
            while True:
                await self._stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return

    async def _send(self, event: Any) -> None:
        await self._stream.send(self._http.send(event) or b"")
