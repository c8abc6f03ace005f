"""An MCP server behind OAuth with its own small authorization server, in this process.

It registers clients, gives consent in `/authorize` (which redirects immediately), checks PKCE and
rotates refresh tokens. An access token is valid for `lifetime` seconds.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route


class OAuthServer:
    """The server.

    Attributes:
        url: The MCP endpoint.
        lifetime: Seconds that new access tokens are valid.
        refreshed: How often a token was refreshed.
        refuses: Whether consent is refused.
        dawdles: Whether a refresh waits a moment for a second, concurrent one.
        open: Whether no token is required.
        revocation: Revocation endpoint in the metadata; None for none.
        revoked: Requests to that endpoint.
        issued: All tokens, to check that they do not leak.
    """

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}"
        self.url = f"{self.base}/mcp"
        self.lifetime = 3600.0
        self.refreshed = 0
        self.refuses = self.open = self.dawdles = False
        self.asked = 0
        self.revocation: str | None = f"{self.base}/revoke"
        self.revoked: list[dict[str, str]] = []
        self.issued: list[str] = []
        self.access: set[str] = set()
        self.refresh: dict[str, str] = {}
        self.clients: dict[str, list[str]] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.app = Starlette(
            routes=[
                Route("/.well-known/oauth-protected-resource/mcp", self._resource),
                Route("/.well-known/oauth-authorization-server", self._metadata),
                Route("/register", self._register, methods=["POST"]),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/revoke", self._revoke, methods=["POST"]),
                Route("/mcp", self._mcp, methods=["GET", "POST", "DELETE"]),
            ]
        )

    async def _resource(self, _: Request) -> Response:
        return JSONResponse({"resource": self.url, "authorization_servers": [self.base]})

    async def _metadata(self, _: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.base,
                "authorization_endpoint": f"{self.base}/authorize",
                "token_endpoint": f"{self.base}/token",
                "registration_endpoint": f"{self.base}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                **({"revocation_endpoint": self.revocation} if self.revocation else {}),
            }
        )

    async def _register(self, request: Request) -> Response:
        asked = await request.json()
        client = secrets.token_hex(8)
        self.clients[client] = asked["redirect_uris"]
        return JSONResponse({**asked, "client_id": client}, 201)

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        assert asked["redirect_uri"] in self.clients[asked["client_id"]]
        assert asked["code_challenge_method"] == "S256"
        answer = {"state": asked["state"]}
        if self.refuses:
            answer["error"] = "access_denied"
        else:
            answer["code"] = secrets.token_urlsafe(16)
            self.codes[answer["code"]] = asked
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(answer)}")

    async def _token(self, request: Request) -> Response:
        form = dict(await request.form())
        if form["grant_type"] == "authorization_code":
            asked = self.codes.pop(str(form["code"]), None)
            digest = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            good = asked is not None and asked["code_challenge"] == challenge
        else:
            self.asked += 1
            with anyio.move_on_after(0.5 if self.dawdles else 0):
                while self.asked < 2:  # noqa: ASYNC110  it may never come
                    await anyio.sleep(0.01)
            good = self.refresh.pop(str(form["refresh_token"]), None) == form["client_id"]
            self.refreshed += good
        if not good:
            return JSONResponse({"error": "invalid_grant"}, 400)
        access, refresh = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self.issued += [access, refresh]
        self.access = {access}
        self.refresh[refresh] = str(form["client_id"])
        given = {"access_token": access, "token_type": "Bearer", "refresh_token": refresh}
        return JSONResponse({**given, "expires_in": self.lifetime})

    async def _revoke(self, request: Request) -> Response:
        form = {key: str(value) for key, value in (await request.form()).items()}
        if form.get("client_id") not in self.clients:
            return JSONResponse({"error": "invalid_client"}, 401)
        self.revoked.append(form)
        self.access.discard(form["token"])
        self.refresh.pop(form["token"], None)
        return Response()

    async def _mcp(self, request: Request) -> Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.access and not self.open:
            where = f"{self.base}/.well-known/oauth-protected-resource/mcp"
            challenge = {"www-authenticate": f'Bearer resource_metadata="{where}"'}
            return Response(status_code=401, headers=challenge)
        if request.method != "POST":
            return Response(status_code=405)
        message = await request.json()
        if "id" not in message:
            return Response(status_code=202)
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], **_answer(message)})


def _answer(message: dict[str, Any]) -> dict[str, Any]:
    match message["method"]:
        case "initialize":
            return {
                "result": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "guarded", "version": "1"},
                }
            }
        case "tools/list":
            return {"result": {"tools": [{"name": "ping", "inputSchema": {"type": "object"}}]}}
        case "tools/call":
            return {"result": {"content": [{"type": "text", "text": "pong"}]}}
        case other:
            return {"error": {"code": -32601, "message": f"no method {json.dumps(other)}"}}


@contextmanager
def oauth_server() -> Iterator[OAuthServer]:
    """Serve in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = OAuthServer(listener.getsockname()[1])
        server = uvicorn.Server(uvicorn.Config(made.app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            server.should_exit = True
            thread.join(10)
