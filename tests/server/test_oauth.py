"""OAuth: only tokens that the issuer signed for this server are accepted, with real signatures."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from deep_agent_mcp.server.auth.challenges import Challenge, StepUp
from deep_agent_mcp.server.auth.oauth import JwtVerifier, KeySet

pytestmark = pytest.mark.anyio

AUDIENCE = "https://agent.example.com/mcp"


class Issuer:
    """An authorization server that publishes metadata and keys over real HTTP."""

    def __init__(self, key: rsa.RSAPrivateKey | None = None) -> None:
        self.keys: dict[str, Any] = {}
        self.fetched = 0
        self.broken = False
        self.published: Any = ...
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.answer(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.add("rsa", key or rsa.generate_private_key(public_exponent=65537, key_size=2048))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def add(self, key_id: str, key: Any) -> None:
        self.keys[key_id] = key

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        if request.path == "/.well-known/openid-configuration":
            data: Any = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        elif request.path == "/keys" and not self.broken:
            self.fetched += 1
            data = {"keys": [self._public(*one) for one in self.keys.items()]}
            data = data if self.published is ... else {"keys": self.published}
        else:
            request.send_error(404)
            return
        body = json.dumps(data).encode()
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def _public(self, key_id: str, key: Any) -> dict[str, Any]:
        kind = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
        shown = kind.to_jwk(key.public_key(), as_dict=True)
        return {**shown, **({"kid": key_id} if key_id else {}), "use": "sig"}

    def token(self, key_id: str = "rsa", algorithm: str = "RS256", **changes: Any) -> str:
        claims = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "ann",
            "exp": int(time.time()) + 60,
            "scope": "drive approve",
            **changes,
        }
        claims = {key: value for key, value in claims.items() if value is not None}
        return jwt.encode(claims, self.keys[key_id], algorithm, headers={"kid": key_id})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def rsa_key() -> rsa.RSAPrivateKey:
    """Return the key of the trusted issuer: to make one takes long."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture
def issuer(rsa_key: rsa.RSAPrivateKey) -> Iterator[Issuer]:
    made = Issuer(rsa_key)
    yield made
    made.close()


def verifier(issuer: Issuer) -> JwtVerifier:
    return JwtVerifier(issuer.url, AUDIENCE, KeySet(issuer.url))


async def test_a_token_of_the_issuer_names_its_bearer_and_scopes(issuer: Issuer) -> None:
    issuer.add("ec", ec.generate_private_key(ec.SECP256R1()))
    check = verifier(issuer)
    for key, algorithm in (("rsa", "RS256"), ("rsa", "PS384"), ("ec", "ES256")):
        access = await check.verify_token(issuer.token(key, algorithm))
        assert access is not None
        assert access.subject == f"{issuer.url}#ann"
        assert access.scopes == ["drive", "approve"]
    listed = await check.verify_token(issuer.token(scope=None, scp=["admin"]))
    assert listed is not None and listed.scopes == ["admin"]
    assert issuer.fetched == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "https://other.example.com"},
        {"aud": None},
        {"iss": "https://evil.example.com"},
        {"exp": 1},
        {"exp": None},
        {"sub": None},
        {"nbf": 4_000_000_000},
    ],
)
async def test_a_token_for_somebody_else_or_another_time_is_refused(
    issuer: Issuer, changes: dict[str, Any]
) -> None:
    assert await verifier(issuer).verify_token(issuer.token(**changes)) is None


async def test_forged_tokens_are_refused(issuer: Issuer) -> None:
    check = verifier(issuer)
    good = issuer.token()
    assert await check.verify_token(good) is not None
    head, body, signature = good.split(".")
    none = jwt.encode(jwt.decode(good, options={"verify_signature": False}), "", "none")
    stranger = Issuer()
    try:
        stranger.url = issuer.url
        forged = stranger.token()
    finally:
        stranger.close()
    public = issuer.keys["rsa"].public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    confused_head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"rsa"}').rstrip(b"=").decode()
    mac = hmac.new(pem, f"{confused_head}.{body}".encode(), hashlib.sha256).digest()
    confused = f"{confused_head}.{body}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    changed = f"{head}.{body[:-4]}AAAA.{signature}"
    for wrong in (none, forged, confused, changed, f"{head}.{body}.", "", "a.b.c", good + "x"):
        assert await check.verify_token(wrong) is None, wrong


async def test_a_new_key_of_the_issuer_is_found_and_a_flood_of_unknown_ones_asks_rarely(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = verifier(issuer)
    assert await check.verify_token(issuer.token()) is not None
    issuer.add("new", rsa.generate_private_key(public_exponent=65537, key_size=2048))
    for _ in range(20):
        assert await check.verify_token(issuer.token("new")) is None
    assert issuer.fetched == 1
    monkeypatch.setattr("deep_agent_mcp.server.auth.oauth._RETRY_SECONDS", 0.0)
    assert await check.verify_token(issuer.token("new")) is not None
    issuer.broken = True
    monkeypatch.setattr("deep_agent_mcp.server.auth.oauth._FRESH_SECONDS", 0.0)
    assert await check.verify_token(issuer.token()) is not None


async def test_a_signature_of_another_kind_than_its_key_is_refused(issuer: Issuer) -> None:
    issuer.add("ec", ec.generate_private_key(ec.SECP256R1()))
    check = verifier(issuer)
    for key, claimed in (("rsa", "ES256"), ("ec", "RS256"), ("rsa", "EdDSA")):
        head, body, signature = issuer.token(key, "RS256" if key == "rsa" else "ES256").split(".")
        forged = json.dumps({"alg": claimed, "kid": key, "typ": "JWT"}).encode()
        head = base64.urlsafe_b64encode(forged).rstrip(b"=").decode()
        assert await check.verify_token(f"{head}.{body}.{signature}") is None


@pytest.mark.parametrize("keys", [None, {}, ["x"], [{"kty": "RSA"}], [{"kty": "EC", "crv": 1}]])
async def test_an_odd_key_set_accepts_nobody(issuer: Issuer, keys: Any) -> None:
    token = issuer.token()
    issuer.published = keys
    assert await verifier(issuer).verify_token(token) is None


async def test_a_key_that_is_not_for_signatures_signs_nothing(issuer: Issuer) -> None:
    shown = issuer._public("rsa", issuer.keys["rsa"])  # pyright: ignore[reportPrivateUsage]
    issuer.published = [{**shown, "use": "enc"}]
    assert await verifier(issuer).verify_token(issuer.token()) is None
    issuer.published = [{**shown, "alg": "RS512"}]
    assert await verifier(issuer).verify_token(issuer.token()) is None


async def test_the_metadata_of_another_issuer_are_not_believed(issuer: Issuer) -> None:
    posing = issuer.url.replace("127.0.0.1", "localhost")
    check = JwtVerifier(posing, AUDIENCE, KeySet(posing))
    assert await check.verify_token(issuer.token(iss=posing)) is None


async def test_keys_are_not_believed_for_ever_when_the_issuer_is_gone(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = verifier(issuer)
    assert await check.verify_token(issuer.token()) is not None
    issuer.broken = True
    monkeypatch.setattr("deep_agent_mcp.server.auth.oauth._LAST_SECONDS", 0.0)
    assert await check.verify_token(issuer.token()) is None


async def test_no_more_of_a_request_is_read_than_may_be_asked() -> None:
    """Which scope a call needs is looked up in small requests only; all reach the app whole."""
    bearer = AccessToken(token="", client_id="c", scopes=["drive"], claims={"iss": "x"})
    sent = [{"type": "http.request", "body": b"x" * 100, "more_body": True} for _ in range(50)]
    sent.append({"type": "http.request", "body": b"", "more_body": False})
    waiting, begun_with = iter(sent), list[int]()
    received: list[Any] = []

    async def receive() -> Any:
        message = next(waiting)
        received.append(message)
        return message

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun_with.append(len(received))
        got = [await receive() for _ in sent]
        assert got == sent

    async def send(message: Any) -> None:
        raise AssertionError(message)

    guard = StepUp(app, Challenge(None), lambda _tool: {"delegate"}, most_bytes=250)
    scope = {"type": "http", "method": "POST", "user": AuthenticatedUser(bearer)}
    await guard(scope, receive, send)
    assert begun_with == [3]


async def test_a_request_is_read_as_its_limits_were_counted() -> None:
    call = {"method": "tools/call", "params": {"name": "task"}}
    bearer = AccessToken(token="", client_id="c", scopes=["drive"], claims={"iss": "i"})
    reached: list[str] = []

    async def asked(encoding: str) -> None:
        async def receive() -> Any:
            return {"type": "http.request", "body": json.dumps(call).encode(encoding)}

        async def app(scope: Any, receive: Any, send: Any) -> None:
            reached.append(encoding)

        async def send(message: Any) -> None: ...

        guard = StepUp(app, Challenge(None), lambda _tool: {"delegate"}, most_bytes=1_000)
        scope = {"type": "http", "method": "POST", "user": AuthenticatedUser(bearer)}
        await guard(scope, receive, send)

    for encoding in ("utf-8", "utf-16-le", "utf-32-le"):
        await asked(encoding)
    assert reached == ["utf-16-le", "utf-32-le"]  # they are not parsed here, where they may be huge


async def test_a_slash_at_the_end_of_a_name_makes_no_difference(issuer: Issuer) -> None:
    check = JwtVerifier(issuer.url + "/", AUDIENCE + "/", KeySet(issuer.url + "/"))
    for changes in ({}, {"iss": issuer.url + "/", "aud": [AUDIENCE + "/", "other"]}):
        access = await check.verify_token(issuer.token(**changes))
        assert access is not None and access.subject == f"{issuer.url}#ann"


async def test_a_client_is_not_taken_for_a_user_of_its_name(issuer: Issuer) -> None:
    access = await verifier(issuer).verify_token(issuer.token(sub=None, client_id="ann"))
    assert access is not None and access.subject == f"{issuer.url}#client:ann"


async def test_the_only_key_needs_no_id(issuer: Issuer) -> None:
    issuer.keys = {"": issuer.keys["rsa"]}
    access = await verifier(issuer).verify_token(issuer.token(""))
    assert access is not None


async def test_without_keys_nobody_is_accepted_and_the_log_says_why(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    token = issuer.token()
    issuer.broken = True
    assert await verifier(issuer).verify_token(token) is None
    assert "cannot be fetched" in caplog.text
