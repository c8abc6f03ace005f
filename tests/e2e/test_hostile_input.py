"""Whoever is at the other end, each answer is a clear error and the next call is served."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import pytest

from deep_agent_mcp.server.transports.http_sessions import ARRIVAL_SECONDS
from deep_agent_mcp.server.transports.lines import MAX_LINE_BYTES
from tests.e2e.conftest import SCRIPT
from tests.e2e.hostile import (
    JSON,
    Http,
    line,
    message_of,
    needs_proc,
    open_files,
    peak_mib,
    pipe,
    posix,
    request,
)
from tests.e2e.servers import HttpServer, Setup
from tests.fork_server import run

pytestmark = [pytest.mark.anyio, posix]

DEEP = 100_000
HUGE = b"9" * 5_000
WEB_SOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}
"""What asks for a protocol that is not served: the request is answered as any other."""


@pytest.fixture
def http(shared: tuple[Setup, HttpServer]) -> Iterator[Http]:
    """The shared server, which must serve before the test and after it."""
    http = Http(shared[1])
    http.still_serves()
    yield http
    http.still_serves()


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Http]:
    """A server for those who count what is open: nobody else talks to it."""
    with Setup(tmp_path_factory.mktemp("own"), script=SCRIPT).serving() as server:
        yield Http(server)


def call(request_id: Any, tool: str, **args: Any) -> dict[str, Any]:
    return request(request_id, "tools/call", {"name": tool, "arguments": args})


# Standard input and output


async def test_what_is_no_proper_request_is_refused_line_by_line(tmp_path: Path) -> None:
    nested = b"[" * DEEP + b"]" * DEEP
    wrong: list[tuple[bytes, int]] = [
        (b"{", -32700),
        (b"\xc3\x28 \xed\xa0\x80", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xff"}}', -32700),
        (nested, -32600),  # more values than anybody parses
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + nested + b"}}", -32600),
        (b"[" * 1_000 + b"]" * 1_000, -32700),
        (b"null", -32600),
        (b'"ping"', -32600),
        (HUGE, -32700),  # more digits than anybody converts
        (b"[]", -32600),
        (b'{"id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', -32600),
    ]
    with anyio.fail_after(60):
        async with pipe(Setup(tmp_path)) as server:
            for text, code in wrong:
                await server.say(text + b"\n")
                answer = await server.hear()
                assert answer["error"]["code"] == code, (text[:80], answer)
                assert len(answer["error"]["message"]) < 1_000
                await server.still_serves()


async def test_wrong_methods_parameters_and_ids_are_answered_by_name(tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with pipe(Setup(tmp_path)) as server:
            for method, params, code in (
                ("no/such", {}, -32601),
                ("tools/call", {}, -32602),
                ("tools/call", {"name": 7}, -32602),
                ("tools/call", {"name": "ls", "arguments": ["x"]}, -32602),
                ("resources/read", {"uri": 7}, -32602),
                ("resources/read", {"uri": "thread://nope/\x00"}, -32002),
                ("prompts/get", {"name": "\x00"}, -32602),
                ("completion/complete", {"ref": {}}, -32602),
                ("logging/setLevel", {"level": "deafening"}, None),
                ("initialize", {"protocolVersion": []}, None),
                ("tasks/get", {"taskId": "run_x"}, None),
            ):
                answer = await server.ask(method, params)
                assert "error" in answer, (method, params, answer)
                assert code in (None, answer["error"]["code"]), (method, params, answer)
                assert answer["error"]["message"]
                await server.still_serves()
            # What has no answer has no effect either.
            await server.say(
                {"jsonrpc": "2.0", "method": "notifications/nonsense", "params": {"x": 1}},
                {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}},
                {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}},
                {
                    "jsonrpc": "2.0",
                    "method": "notifications/cancelled",
                    "params": {"requestId": "ask-1"},  # answered long ago
                },
                {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}},
                {"jsonrpc": "2.0", "id": 77, "result": {}},  # nobody asked
                {"jsonrpc": "2.0", "id": 78, "error": {"code": 1, "message": "no"}},
            )
            await server.still_serves()


async def test_requests_of_one_id_are_both_answered_or_refused(tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with pipe(Setup(tmp_path, script=SCRIPT)) as server:
            await server.say(call(5, "task", goal="a moment"), call(5, "ls"))
            answers = [await server.hear(), await server.hear()]
            assert [one["id"] for one in answers] == [5, 5], answers
            await server.still_serves()


@needs_proc
async def test_a_line_of_64_mib_is_not_kept_in_memory(tmp_path: Path) -> None:
    piece = b"x" * (1 << 20)
    with anyio.fail_after(60):
        async with pipe(Setup(tmp_path)) as server:
            await server.still_serves()
            before = peak_mib(server.process.pid)
            await server.say(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"')
            for _ in range(64):
                await server.say(piece)
            await server.say(b'"}}\n')
            answer = await server.hear()
            assert answer["error"]["code"] == -32600
            assert str(MAX_LINE_BYTES) in answer["error"]["message"]
            assert peak_mib(server.process.pid) - before < 2 * MAX_LINE_BYTES / (1 << 20)
            await server.still_serves()


async def test_a_flood_of_requests_is_answered_to_the_last(tmp_path: Path) -> None:
    total = 3_000
    with anyio.fail_after(150):
        async with pipe(Setup(tmp_path)) as server, anyio.create_task_group() as tasks:
            tools = [
                request(number, "ping", {}) if number % 20 else call(number, "skill")
                for number in range(total)
            ]
            tasks.start_soon(server.say, b"".join(map(line, tools)))
            answers = [await server.hear() for _ in range(total)]
            assert {one["id"] for one in answers} == set(range(total))
            assert all("result" in one or one["error"]["message"] for one in answers)
            await server.still_serves()


@pytest.mark.parametrize("rest", [b"", b'{"jsonrpc":"2.0","id":4,"meth'], ids=["idle", "mid-line"])
async def test_a_client_that_vanishes_mid_request_ends_its_server_and_the_run_goes_on(
    rest: bytes, tmp_path: Path
) -> None:
    setup = Setup(tmp_path, script=SCRIPT)
    with anyio.fail_after(60):
        async with pipe(setup) as server:
            key = {"idempotency_key": "vanished"}
            await server.say(call(1, "task", goal="a moment", **key), call(2, "ls"), rest)
            await server.hear()
            await server.hang_up()
            with anyio.fail_after(60):
                assert await server.process.wait() == 0
        async with pipe(setup) as server:
            found = await server.ask(
                "tools/call", {"name": "task", "arguments": {"goal": "a moment", **key}}
            )
            assert found["result"]["structuredContent"]["answer"] == "That was a moment."
    assert "Traceback" not in (tmp_path / "stderr.txt").read_text()


# Strings


HOSTILE = {
    "NUL": "a\x00b",
    "half a surrogate": "a\ud800b",
    "other half": "\udfff",
    "control characters": "\x1b[2J\r\n\x07",
    "no characters": "\ufffe\uffff",
    "right to left": "\u202etxt.exe",
    "combining": "e" + "\u0301" * 500,
}


def strings_of(tools: list[dict[str, Any]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield tool, path of the argument, and arguments with `None` where the string goes."""
    for tool in tools:
        schema = tool["inputSchema"]
        needed = {
            name: example(schema, schema["properties"][name]) for name in schema.get("required", ())
        }
        for name, one in schema["properties"].items():
            for path, value in places(schema, one):
                yield tool["name"], f"{name}{path}", {**needed, name: value}


def places(root: dict[str, Any], schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    schema = resolved(root, schema)
    if "enum" in schema:
        yield "", None
    match schema.get("type"):
        case "array":
            for path, value in places(root, schema.get("items", {})):
                yield f"[]{path}", [value]
        case "object":
            properties = schema.get("properties", {})
            needed = {name: example(root, properties[name]) for name in schema.get("required", ())}
            for name, one in properties.items():
                for path, value in places(root, one):
                    yield f".{name}{path}", {**needed, name: value}
        case _:
            yield "", None  # numbers too: a string there is no less hostile


def resolved(root: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return resolved(root, root["$defs"][schema["$ref"].rpartition("/")[2]])
    for one in schema.get("anyOf", ()):
        if one.get("type") != "null":
            return resolved(root, one)
    return schema


def example(root: dict[str, Any], schema: dict[str, Any]) -> Any:
    schema = resolved(root, schema)
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "array":
            return [example(root, schema.get("items", {}))]
        case "object":
            properties = schema.get("properties", {})
            return {name: example(root, properties[name]) for name in schema.get("required", ())}
        case "integer" | "number":
            return 1
        case "boolean":
            return True
        case _:
            return "x"


def filled(value: Any, text: str) -> Any:
    if value is None:
        return text
    if isinstance(value, list):
        return [filled(one, text) for one in value]
    if isinstance(value, dict):
        return {name: filled(one, text) for name, one in value.items()}
    return value


async def test_any_string_in_any_argument_of_any_tool_gets_a_result(tmp_path: Path) -> None:
    with anyio.fail_after(150):
        async with pipe(Setup(tmp_path, script=SCRIPT)) as server:
            tools = (await server.ask("tools/list", {}))["result"]["tools"]
            tried = list(strings_of(tools))
            assert len({tool for tool, _, _ in tried}) == len(tools)
            for text, (tool, place, args) in product(HOSTILE.values(), tried):
                soon = {"wait_seconds": 5} if tool in {"task", "wait"} else {}
                params = {"name": tool, "arguments": {**soon, **filled(args, text)}}
                answer = await server.ask("tools/call", params)
                said = answer.get("result", answer.get("error"))
                assert "inside the server" not in json.dumps(said), (tool, place, text, said)
                assert answer.get("error", {}).get("code") != -32603, (tool, place, text, said)
                if "error" in answer:  # half a pair is no character that could be passed on
                    assert "hex escape" in answer["error"]["message"], (tool, place, text)
                    assert text in (HOSTILE["half a surrogate"], HOSTILE["other half"])
            await server.still_serves()
    assert "Traceback" not in (tmp_path / "stderr.txt").read_text()


# HTTP


def test_bodies_that_are_no_request_are_refused_in_both_eras(http: Http) -> None:
    nested = b"[" * DEEP + b"]" * DEEP
    session = http.handshake()
    modern = {**JSON, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "ping"}
    for headers in (session, modern, JSON):
        for body in (
            b"",
            b"{",
            b"\xff\xfe",
            b"null",
            b"[]",
            HUGE,
            nested,
            b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + nested + b"}}",
            b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
        ):
            status, _, answer = http.send("POST", "/mcp", body, headers)
            assert 400 <= status < 500, (headers, body[:80], status, answer)
            assert answer, body[:80]
            http.still_serves()


@pytest.mark.parametrize("path", ["/mcp", "/messages/"])
def test_a_body_over_the_limit_is_refused_before_it_is_read(http: Http, path: str) -> None:
    for headers in (
        {"Content_Length": str(1 << 40)},
        {"Transfer_Encoding": "chunked"},
    ):
        head = http.head("POST", path, Content_Type="application/json", **headers)
        chunk = b"x" * (1 << 20)
        with http.connected(head) as connection:
            if "Transfer_Encoding" in headers:
                try:
                    for _ in range(6):
                        connection.sendall(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                except OSError:
                    pass  # it was refused already
            said = b""
            while b"\r\n\r\n" not in said or not said.endswith(b"}"):
                more = connection.recv(4096)
                assert more, said
                said += more
            assert said.startswith(b"HTTP/1.1 413"), headers
            error = json.loads(said.partition(b"\r\n\r\n")[2])["error"]["message"]
            assert "more than 4,194,304 bytes" in error and "in several calls" in error


def test_wrong_types_headers_methods_and_paths_are_refused(http: Http) -> None:
    body = line(request(1, "tools/list", {}))
    session = http.handshake()
    for status, verb, path, sent, headers in (
        (400, "POST", "/mcp", body, {**session, "Content-Type": "text/plain"}),
        (
            400,
            "POST",
            "/mcp",
            body,
            {**session, "Content-Type": "application/x-www-form-urlencoded"},
        ),
        (406, "POST", "/mcp", body, {**session, "Accept": "image/png"}),
        (404, "POST", "/mcp", body, {**session, "Mcp-Session-Id": "x" * 8_000}),
        (400, "POST", "/mcp", body, {**session, "MCP-Protocol-Version": "1999-01-01"}),
        (406, "GET", "/mcp", None, {**session, "Accept": "text/html"}),
        (406, "GET", "/mcp", None, {**session, **WEB_SOCKET, "Accept": "text/html"}),
        (400, "POST", "/messages/", body, JSON),
        (400, "POST", "/messages/?session_id=%00", body, JSON),
        (404, "POST", f"/messages/?session_id={'0' * 32}", body, JSON),
        (405, "DELETE", "/messages/", None, JSON),
        (405, "PUT", "/sse", body, JSON),
        (404, "GET", "/../../etc/passwd", None, JSON),
        (404, "GET", "/%00%ff", None, JSON),
    ):
        got, _, answer = http.send(verb, path, sent, headers)
        assert got == status, (verb, path, headers, got, answer)
        http.still_serves()


def test_headers_of_64_kib_and_garbage_are_refused(http: Http) -> None:
    for head in (
        http.head("POST", "/mcp", X_Long="x" * (64 << 10)),
        http.head("POST", "/" + "x" * (64 << 10)),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),  # a TLS client
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"\r\n" * 40_000,
    ):
        with http.connected() as connection:
            try:
                connection.sendall(head)
                answer = connection.recv(64)
            except ConnectionError:
                answer = b""  # refused while it was still being sent
            assert not answer or answer.split()[1][:1] == b"4", (head[:40], answer)
        http.still_serves()


def test_a_forged_request_state_is_refused(http: Http) -> None:
    for state in ("forged", "", "A" * 100_000, "v1.AAAA.BBBB", "\x00"):
        answer = http.modern(
            "tools/call",
            {"name": "ls", "arguments": {}, "requestState": state, "inputResponses": {}},
        )
        assert "error" in answer, (state[:20], answer)
        http.still_serves()


def test_wrong_tokens_are_refused_and_right_ones_served(tmp_path: Path) -> None:
    setup = Setup(tmp_path, flags=["--auth", "token"])
    command = [*setup.command("stdio")[:3], "token", "--state-dir", str(setup.state)]
    made = run([*command, "create", "ann"], setup.environment(), setup.place)
    assert made.returncode == 0, made.stderr
    token = made.stdout.split()[0]
    with setup.serving() as server:
        served = Http(server, {"Authorization": f"Bearer {token}"})
        served.still_serves()
        for header in (
            None,
            "",
            "Bearer",
            "Bearer ",
            f"Basic {token}",
            f"Bearer {token}x",
            f"Bearer {token[:-1]}",
            f"Bearer {token.swapcase()}",
            "Bearer " + "x" * 30_000,
            "Bearer \xff\xfe",
            "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4ifQ.",
        ):
            sent = {} if header is None else {"Authorization": header}
            refused = Http(server)
            for verb, path in (("POST", "/mcp"), ("GET", "/sse"), ("POST", "/messages/")):
                status, fields, _ = refused.send(verb, path, b"{}", {**JSON, **sent})
                assert status == 401, (header, verb, path, status)
                assert "bearer" in fields["www-authenticate"].lower()
        served.still_serves()


def test_clients_that_send_slowly_are_dropped_and_hold_nobody_up(own: Http) -> None:
    began = time.monotonic()
    post = {"Content_Type": "application/json", "Accept": "application/json, text/event-stream"}
    slow: list[tuple[socket.socket, bytes]] = []
    for head, drop in (
        (b"", b""),
        (own.head("POST", "/mcp", **post)[:-2], b"X"),
        (own.head("POST", "/mcp", Content_Length="1000000", **post) + b"{", b" "),
        (own.head("POST", "/mcp", Transfer_Encoding="chunked", **post), b"1\r\n \r\n"),
        (own.head("POST", "/mcp", Content_Length=str(1 << 40), **post), b" "),
    ):
        for _ in range(20):
            connection = socket.create_connection(own.address, timeout=60)
            connection.sendall(head)
            slow.append((connection, drop))
    try:
        while slow and time.monotonic() - began < 9 * ARRIVAL_SECONDS:
            called = time.monotonic()
            own.still_serves()
            assert time.monotonic() - called < 0.9 * ARRIVAL_SECONDS
            slow = [one for one in slow if _drips(*one)]
            time.sleep(1)  # a byte a second
        assert not slow
        assert time.monotonic() - began > 0.9 * ARRIVAL_SECONDS
    finally:
        for connection, _ in slow:
            connection.close()


def _drips(connection: socket.socket, drop: bytes) -> bool:
    """Send a little; False, and closed, once the server has closed its end."""
    connection.setblocking(False)
    try:
        while connection.recv(65_536):
            pass
    except BlockingIOError:
        pass
    except ConnectionError:
        connection.close()
        return False
    else:
        connection.close()
        return False
    try:
        connection.send(drop)
    except ConnectionError:
        connection.close()
        return False
    return True


@needs_proc
def test_200_clients_that_vanish_leave_nothing_behind(own: Http) -> None:
    own.still_serves()
    files = open_files(own.pid)
    post = {"Content_Type": "application/json", "Accept": "application/json, text/event-stream"}
    task = line(call(1, "task", goal="a moment"))
    for number in range(40):
        sent = (
            own.head("GET", "/sse", Accept="text/event-stream"),
            own.head("POST", "/mcp", Content_Length="500", **post) + b"{",
            own.head("POST", "/mcp", **post)[:-10],
            _modern_task(own, number),
            _in_session(own, task),
        )
        for one in sent:
            with own.connected(one) as connection:
                if number % 2:  # not even a farewell
                    linger = struct.pack("ii", 1, 0)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                if number % 4 < 2 and one.startswith(b"GET"):
                    connection.recv(1)
    _until(lambda: own.active_runs() == 0, "runs go on")
    # A session of the handshake outlives its connections, but holds no file.
    _until(lambda: open_files(own.pid) <= files, "files stay open")
    own.still_serves()
    log = (Path(f"/proc/{own.pid}/cwd").resolve() / "stderr.txt").read_text()
    assert "never retrieved" not in log


def _modern_task(http: Http, number: int) -> bytes:
    from tests.e2e.hostile import ENVELOPE

    args = {"goal": "a moment", "idempotency_key": f"gone-{number}"}
    body = line(request(1, "tools/call", {"name": "task", "arguments": args, "_meta": ENVELOPE}))
    headers = {
        "Content_Type": "application/json",
        "Accept": JSON["Accept"],
        "MCP_Protocol_Version": "2026-07-28",
        "Mcp_Method": "tools/call",
        "Mcp_Name": "task",
        "Content_Length": str(len(body)),
    }
    return http.head("POST", "/mcp", **headers) + body


def _in_session(http: Http, body: bytes) -> bytes:
    headers = {k.replace("-", "_"): v for k, v in http.handshake().items()}
    return http.head("POST", "/mcp", Content_Length=str(len(body)), **headers) + body


def _until(is_so: Any, otherwise: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, otherwise
        time.sleep(0.1)


def test_duplicate_ids_in_one_session_are_answered_each(http: Http) -> None:
    session = http.handshake()
    for _ in range(3):
        status, fields, answer = http.send("POST", "/mcp", line(call(7, "ls")), session)
        assert status == 200
        assert message_of(fields, answer)["id"] == 7
