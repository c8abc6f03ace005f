"""A request whose token ends while it is being served: nobody is left without a word."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, MutableMapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from deep_agent_mcp.server.auth import http, tokens
from deep_agent_mcp.server.auth.tokens import TokenFile
from deep_agent_mcp.server.settings.settings import Settings

pytestmark = pytest.mark.anyio


class Guarded:
    """An app behind tokens: `/silent` answers nothing, `/stream` begins to, `/gone` fails."""

    def __init__(self, place: Path) -> None:
        settings = Settings(transport="http", auth=("token",), state_dir=place)
        self.tokens = TokenFile(place / "tokens.json")
        self.reached = anyio.Event()
        self.ended = anyio.Event()
        self.app = Starlette(
            routes=[
                Route("/silent", self._silent),
                Route("/stream", self._stream),
                Route("/gone", self._gone),
            ],
            middleware=http.auth_middleware(settings, lambda _tool: ()),
        )

    async def _silent(self, _: Request) -> Response:
        try:
            self.reached.set()
            await anyio.sleep_forever()
        finally:
            self.ended.set()

    async def _stream(self, _: Request) -> Response:
        async def parts() -> AsyncGenerator[bytes]:
            yield b"first"
            await self._silent(_)

        return StreamingResponse(parts())

    async def _gone(self, _: Request) -> Response:
        raise ClientDisconnect

    async def request(self, path: str, token: str) -> list[MutableMapping[str, Any]]:
        """Return all that is sent in answer to a request."""
        sent: list[MutableMapping[str, Any]] = []
        headers = [(b"authorization", f"Bearer {token}".encode())]
        scope = {"type": "http", "method": "GET", "path": path, "headers": headers}
        parts = [{"type": "http.request"}]

        async def receive() -> MutableMapping[str, Any]:
            if not parts:
                await anyio.sleep_forever()
            return parts.pop()

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        await self.app(scope | {"query_string": b""}, receive, send)
        return sent

    async def until_revoked(self, path: str) -> list[MutableMapping[str, Any]]:
        """Make a request whose token is revoked once it is being served."""
        record, secret = self.tokens.create("ann", ("drive",))
        sent: list[MutableMapping[str, Any]] = []

        async def ask() -> None:
            sent.extend(await self.request(path, secret))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await self.reached.wait()
                self.tokens.revoke(record.id)
        assert self.ended.is_set()
        return sent


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Guarded:
    monkeypatch.setattr(tokens, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(http, "RECHECK_SECONDS", 0.01)
    return Guarded(tmp_path)


async def test_who_waits_for_an_answer_is_told_that_the_token_has_ended(guarded: Guarded) -> None:
    start, body = await guarded.until_revoked("/silent")
    assert start["status"] == 401
    assert b'error="invalid_token"' in dict(start["headers"])[b"www-authenticate"]
    text = json.loads(body["body"])["error_description"]
    assert "expired or was revoked" in text and "continues" in text
    assert "Nothing was done" not in text


async def test_an_answer_that_has_begun_ends_there_and_as_it_should(guarded: Guarded) -> None:
    start, *parts = await guarded.until_revoked("/stream")
    assert start["status"] == 200
    assert [one.get("body", b"") for one in parts] == [b"first", b""]
    assert not parts[-1].get("more_body")


async def test_an_error_of_what_is_guarded_is_not_wrapped(guarded: Guarded) -> None:
    _, secret = guarded.tokens.create("ann", ("drive",))
    with pytest.raises(ClientDisconnect):
        await guarded.request("/gone", secret)
