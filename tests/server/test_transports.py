import asyncio
import json
import os
import signal
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from select import select
from tempfile import TemporaryFile
from typing import Any, Literal

import anyio
import pytest
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCNotification, JSONRPCRequest
from sse_starlette.sse import AppStatus

from deep_agent_mcp.harness.mcp_servers.transports import sse_streams
from deep_agent_mcp.server.auth.tokens import TokenFile
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.transports.lines import MAX_LINE_BYTES, LineSplitter
from deep_agent_mcp.server.transports.signals import Stop
from deep_agent_mcp.server.transports.transports import (
    AddressError,
    _server_class,
    bind,
    serve_http,
)
from tests.fork_server import environment, run, stand_in, start
from tests.server.tiny_server import tiny_server

if sys.platform != "win32":
    from deep_agent_mcp.server.transports.stdio import LineReader, LineWriter

pytestmark = pytest.mark.anyio

posix = pytest.mark.skipif(sys.platform == "win32", reason="the SDK's transport is used there")

REPO = Path(__file__).resolve().parents[2]
TINY = (sys.executable, "-m", "tests.server.tiny_server")

Mode = Literal["auto", "legacy"]
both_eras = pytest.mark.parametrize("mode", ["auto", "legacy"])

OPENING = [
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]


def call(request_id: int, tool: str, text: str) -> dict[str, Any]:
    params = {"name": tool, "arguments": {"text": text}}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def lines(*messages: object) -> bytes:
    return b"".join(
        (m if isinstance(m, bytes) else json.dumps(m).encode()) + b"\n" for m in messages
    )


def serve(data: bytes) -> tuple[list[dict[str, Any]], str]:
    """Give the server all of its input at once and return its replies and its log."""
    done = run([*TINY, "stdio"], environment(REPO), REPO, says=data)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


# Standard input and output


@both_eras
async def test_the_official_client_speaks_over_stdio(mode: Mode) -> None:
    env = environment(REPO)
    command, *args = stand_in([*TINY, "stdio"], env)
    parameters = StdioServerParameters(command=command, args=args, env=env, cwd=REPO)
    with anyio.fail_after(60):
        async with Client(parameters, mode=mode) as client:
            assert next(tool.name for tool in (await client.list_tools()).tools) == "echo"
            large = "ü" * 300_000  # more than a pipe holds
            result = await client.call_tool("echo", {"text": large})
            assert result.content[0].text == large  # type: ignore[union-attr]


@posix
def test_what_is_no_message_is_answered_and_the_server_goes_on() -> None:
    replies, _ = serve(
        lines(
            *OPENING,
            b"{not json",
            b"\xff\xfe",
            b"",
            [call(2, "echo", "x")],
            {"jsonrpc": "2.0", "id": 3},
            b'{"text": "' + b"x" * MAX_LINE_BYTES + b'"}',
            call(5, "echo", "x" * MAX_LINE_BYTES),
            call(4, "echo", "still here"),
        )
    )
    assert [(reply["id"], reply.get("error", {}).get("code")) for reply in replies] == [
        (1, None),
        (None, -32700),
        (None, -32700),
        (None, -32600),
        (3, -32600),
        (None, -32600),
        (5, -32600),
        (4, None),
    ]
    assert replies[-1]["result"]["content"][0]["text"] == "still here"
    assert str(MAX_LINE_BYTES) in replies[5]["error"]["message"]


@posix
def test_everything_asked_before_the_end_of_input_is_answered() -> None:
    many = [call(number, "echo", str(number)) for number in range(2, 502)]
    replies, log = serve(lines(*OPENING, *many))
    assert sorted(reply["id"] for reply in replies) == list(range(1, 502))
    assert all("result" in reply for reply in replies)
    assert "closed" in log


@posix
def test_a_last_line_without_line_end_counts() -> None:
    replies, _ = serve(lines(*OPENING) + json.dumps(call(2, "echo", "x")).encode())
    assert [reply["id"] for reply in replies] == [1, 2]


@posix
def test_stray_output_never_reaches_the_wire() -> None:
    replies, log = serve(lines(*OPENING, call(2, "print", "stray words\n")))
    assert [reply["id"] for reply in replies] == [1, 2]
    assert "stray words" in log


@posix
def test_a_file_can_be_the_input(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(lines(*OPENING, call(2, "echo", "x")))
    with (tmp_path / "in").open("rb") as source:
        done = run([*TINY, "stdio"], environment(REPO), REPO, stdin=source.fileno())
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 2]


@posix
@pytest.mark.parametrize(
    "numbers", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT, signal.SIGTERM]]
)
def test_a_signal_ends_it_cleanly_although_a_call_hangs(numbers: list[signal.Signals]) -> None:
    source, said = os.pipe()
    log, its_log = os.pipe()
    with (
        open(source, "rb") as stdin,
        open(said, "wb", buffering=0) as asking,
        open(log, "rb") as reading,
        open(os.devnull, "wb") as stdout,
    ):
        with open(its_log, "wb") as stderr:
            server = start(
                [*TINY, "stdio"],
                environment(REPO),
                REPO,
                stdin=stdin.fileno(),
                stdout=stdout.fileno(),
                stderr=stderr.fileno(),
            )
        asking.write(lines(*OPENING, call(2, "hang", "")))
        assert reading.readline() == b"hanging\n"
        for number in numbers:
            server.send_signal(number)
        assert server.wait(60) == 0
        assert b"closed" in reading.read()


@posix
async def test_a_message_cut_short_by_cancellation_is_still_written_whole() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    writer = LineWriter(write_end)
    big = SessionMessage(
        JSONRPCNotification(jsonrpc="2.0", method="notifications/x", params={"t": "x" * 500_000})
    )
    small = SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="notifications/y"))
    with anyio.move_on_after(0.05) as scope:  # nobody reads, so it cannot be finished
        await writer.send(big)
    assert scope.cancelled_caught
    received: list[str] = []

    async def read() -> None:
        async with LineReader(read_end, writer) as reader:
            received.extend([message.message.method async for message in reader])  # type: ignore[union-attr]

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await writer.send(small)
            os.close(write_end)
    os.close(read_end)
    assert received == ["notifications/x", "notifications/y"]


@posix
async def test_a_client_that_is_gone_breaks_the_stream() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    writer = LineWriter(write_end)
    request = SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="ping"))
    with pytest.raises(anyio.BrokenResourceError):
        await writer.send(request)
    with pytest.raises(anyio.ClosedResourceError):
        await writer.send(request)
    os.close(write_end)


@posix
async def test_an_error_that_a_client_answers_with_reaches_who_asked() -> None:
    read_end, write_end = os.pipe()
    answers_read, answers_write = os.pipe()
    answer = {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "no"}}
    os.write(write_end, lines(answer))
    os.close(write_end)
    with anyio.fail_after(60):
        async with LineReader(read_end, LineWriter(answers_write)) as reader:
            received = [message.message async for message in reader]
    os.close(answers_write)
    assert [type(one) for one in received] == [JSONRPCError]
    assert os.read(answers_read, 1) == b"", "it was sent back instead"
    os.close(answers_read)
    os.close(read_end)


@posix
@pytest.mark.parametrize("trouble", [MemoryError, OSError])
async def test_who_waits_for_a_message_hears_that_it_cannot_be_read(
    trouble: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(splitter: object, chunk: bytes) -> None:
        raise trouble

    read_end, write_end = os.pipe()
    reader = LineReader(read_end, LineWriter(write_end))
    monkeypatch.setattr(LineSplitter, "feed", refuse)
    os.write(write_end, lines({"jsonrpc": "2.0", "method": "notifications/x"}))
    with anyio.fail_after(60), pytest.raises(trouble):
        await reader.receive()
    await reader.aclose()
    os.close(write_end)
    os.close(read_end)


@posix
async def test_what_nobody_waits_for_is_left_with_the_client() -> None:
    read_end, write_end = os.pipe()
    ping = {"jsonrpc": "2.0", "method": "notifications/x"}
    reader = LineReader(read_end, LineWriter(write_end))
    with anyio.fail_after(60):
        os.write(write_end, lines(ping, ping))
        await reader.receive()
        os.write(write_end, lines(ping))
        await anyio.sleep(0.05)
        assert select([read_end], [], [], 0)[0], "it was read before its turn"
        await reader.receive()
        with anyio.move_on_after(0.05):
            await reader.receive()
            await reader.receive()  # there is none, and what comes later is not lost
        os.write(write_end, lines(ping))
        await reader.receive()
    await reader.aclose()
    os.close(write_end)
    os.close(read_end)


@posix
async def test_an_input_that_fails_ends_the_stream_with_its_error() -> None:
    terminal, its_end = os.openpty()
    os.close(its_end)
    async with LineReader(terminal, LineWriter(terminal)) as reader:
        with anyio.fail_after(60), pytest.raises(OSError, match="Input/output error"):
            await reader.receive()
    os.close(terminal)


# HTTP


class Web:
    """The tiny server over HTTP as a process, and what it said when it was listening."""

    def __init__(self, *flags: str) -> None:
        said, out = os.pipe()
        self._log = TemporaryFile()  # noqa: SIM115  `stop` closes it
        with open(out, "wb") as its_out:
            self.process = start(
                [*TINY, "http", "port=0", *flags],
                environment(REPO),
                REPO,
                stdout=its_out.fileno(),
                stderr=self._log.fileno(),
            )
        with open(said, "rb") as stdout:
            self.said = json.loads(stdout.readline())

    def status(self, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
        url = f"http://127.0.0.1:{self.said['port']}{path}"
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        body = b"{}" if method == "POST" else None
        request = urllib.request.Request(url, body, names, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        code = self.process.wait(60)
        with self._log as log:
            log.seek(0)
            return code, log.read().decode()


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    web = Web()
    yield web
    if web.process.poll() is None:
        web.stop()


@both_eras
async def test_the_official_client_speaks_streamable_http(web: Web, mode: Mode) -> None:
    with anyio.fail_after(60):
        async with Client(web.said["url"], mode=mode) as client:
            result = await client.call_tool("echo", {"text": "over http"})
    assert result.content[0].text == "over http"  # type: ignore[union-attr]


@both_eras
async def test_the_official_client_speaks_the_older_sse(web: Web, mode: Mode) -> None:
    with anyio.fail_after(60):
        async with Client(sse_streams(web.said["sse_url"]), mode=mode) as client:
            result = await client.call_tool("echo", {"text": "over sse"})
    assert result.content[0].text == "over sse"  # type: ignore[union-attr]


def test_healthz_tells_name_version_and_what_the_app_adds(web: Web) -> None:
    status, body = web.status("/healthz")
    facts = json.loads(body)
    assert status == 200
    assert facts["status"] == "ok"
    assert facts["name"] == "deep-agent-mcp"
    assert facts["version"]
    assert facts["runs"] == 3


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/mcp"), ("GET", "/sse"), ("POST", "/messages/"), ("GET", "/healthz"), ("GET", "/x")],
)
def test_foreign_hosts_and_origins_are_refused_on_every_path(
    web: Web, method: str, path: str
) -> None:
    json_body = {"Content_Type": "application/json"} if method == "POST" else {}
    assert web.status(path, method, Host="evil.example", **json_body)[0] == 421
    own = f"http://127.0.0.1:{web.said['port']}"
    for origin in ("http://evil.example", f"{own}.evil.example", f"{own} {own}", "null"):
        assert web.status(path, method, Origin=origin, **json_body)[0] == 403
    if path == "/healthz":
        assert web.status(path, Origin=own)[0] == 200


def test_a_session_whose_handshake_is_refused_does_not_stay(web: Web) -> None:
    url = web.said["url"]
    names = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}

    def post(message: object, **more: str) -> tuple[int, str | None]:
        headers = {**names, **more}
        request = urllib.request.Request(url, json.dumps(message).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                response.read()
                return response.status, response.headers["Mcp-Session-Id"]
        except urllib.error.HTTPError as error:
            with error:
                return error.code, None

    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    for params, kept in ((OPENING[0]["params"], 200), ({"protocolVersion": 1}, 404)):
        status, session = post({**OPENING[0], "params": params})
        assert status == 200 and session is not None
        assert post(ping, **{"Mcp-Session-Id": session})[0] == kept


@pytest.mark.parametrize("flags", [(), ("auth=token",)])
def test_who_goes_away_in_the_middle_of_a_request_leaves_no_traceback(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    web = Web(*flags, f"state_dir={tmp_path}")
    token = TokenFile(tmp_path / "tokens.json").create("ann", ("drive",))[1]
    for more in ("", "MCP-Protocol-Version: 2026-07-28\r\n"):
        with socket.create_connection(("127.0.0.1", web.said["port"])) as client:
            head = (
                f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
                "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
                f"{more}Content-Length: 100\r\n\r\n{{"
            )
            client.sendall(head.encode())
            assert web.status("/healthz")[0] == 200  # by then it has begun to read
    assert web.status("/healthz")[0] == 200
    _, log = web.stop()
    assert "Traceback" not in log and "ERROR" not in log


def test_a_signal_ends_it_although_a_stream_is_open() -> None:
    web = Web()
    url = web.said["sse_url"]
    with urllib.request.urlopen(url, timeout=60) as stream:
        assert b"endpoint" in stream.readline()
        code, log = web.stop(signal.SIGINT)
    assert code == 0, log
    assert "listening on http://127.0.0.1:" in log
    assert f"the page is {web.said['ui_url']}" in log
    assert "closed" in log
    assert "Traceback" not in log


async def test_a_server_at_rest_wakes_for_the_date_only_and_ends_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("deep_agent_mcp.server.transports.transports.DATE_SECONDS", 600.0)
    monkeypatch.setattr(AppStatus, "should_exit", False)  # `handle_exit` sets it for the process
    web = _server_class()(uvicorn.Config(lambda: None))
    ticks: list[int] = []
    tick = web.on_tick

    async def counted(counter: int) -> bool:
        ticks.append(counter)
        return await tick(counter)

    web.on_tick = counted
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(web.main_loop)
            await anyio.sleep(0.3)
            assert len(ticks) == 1
            web.handle_exit(signal.SIGTERM, None)
    assert len(ticks) == 2
    assert any(name == b"date" for name, _ in web.server_state.default_headers)


async def test_a_process_can_serve_again_after_its_server_has_stopped() -> None:
    settings = load_settings({"transport": "http"}, {})
    for _ in range(2):
        stop, listener = Stop(), bind("127.0.0.1", 0)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(
                    partial(serve_http, tiny_server(), settings, stop, listener=listener)
                )
                async with Client(url, mode="legacy") as client:
                    assert len((await client.list_tools()).tools) == 3
                stop.asked.set()


def test_a_name_that_is_allowed_is_served_and_the_missing_lock_is_said() -> None:
    web = Web("host=0.0.0.0", "allow_hosts=box.lan", "auth=none")
    try:
        assert web.said["url"] == f"http://box.lan:{web.said['port']}/mcp"
        assert web.status("/healthz", Host="box.lan")[0] == 200
        assert web.status("/healthz", Host=f"box.lan:{web.said['port']}")[0] == 200
        assert web.status("/healthz", Host="other.lan")[0] == 421
    finally:
        _, log = web.stop()
    assert "no authentication" in log


def test_an_address_that_is_taken_or_not_ours_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressError, match=rf"port {port}: another process.*--port"):
            bind("127.0.0.1", port)
    with pytest.raises(AddressError, match="--host"):
        bind("203.0.113.7", 0)


async def test_answers_do_not_wait_until_there_is_more_to_send() -> None:
    accepted: asyncio.Future[asyncio.StreamWriter] = asyncio.Future()
    listener = bind("127.0.0.1", 0)
    server = await asyncio.start_server(lambda _, w: accepted.set_result(w), sock=listener)
    with socket.create_connection(listener.getsockname()), anyio.fail_after(60):
        writer = await accepted
        end: socket.socket = writer.get_extra_info("socket")
        assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
    server.close()


@pytest.mark.parametrize(
    ("flags", "warned"),
    [
        (("host=0.0.0.0", "allow_hosts=box.lan", "auth=token"), True),
        (("host=0.0.0.0", "allow_hosts=box.lan", "auth=token", "trusted_proxies=10.0.0.1"), False),
        (("auth=token",), False),
    ],
)
def test_tokens_that_would_go_over_the_network_in_the_clear_are_warned_of(
    flags: tuple[str, ...], warned: bool
) -> None:
    web = Web(*flags)
    _, log = web.stop()
    assert ("in the clear" in log) == warned
