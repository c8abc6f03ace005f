"""HTTPS by settings, and headers of proxies: only of those that are trusted."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

import anyio
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.conftest import SCRIPT
from tests.e2e.servers import ERAS, Setup, call, connected

pytestmark = pytest.mark.anyio


def certificate(place: Path) -> tuple[Path, Path]:
    """Make a certificate for 127.0.0.1 that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (place / "cert.pem").write_bytes(made.public_bytes(pem))
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (place / "key.pem").write_bytes(key.private_bytes(pem, *plain))
    return place / "cert.pem", place / "key.pem"


async def test_a_server_with_a_certificate_speaks_https(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    flags = ["--tls-cert", str(cert), "--tls-key", str(key)]
    setup = Setup(tmp_path, flags=flags, script=SCRIPT)
    trust = ssl.create_default_context(cafile=cert)
    with anyio.fail_after(60), setup.serving() as server:
        url = server.listening["url"]
        assert url.startswith("https://")
        for mode in ERAS:
            async with httpx2.AsyncClient(verify=trust, timeout=60) as http:
                target = streamable_http_client(url, http_client=http)
                async with connected(target, mode) as client:
                    done = await call(client, "task", goal="write a note")
                    assert done["status"] == "done"
        async with httpx2.AsyncClient() as http:
            with pytest.raises(httpx2.HTTPError):
                await http.get(url.replace("https", "http"))


@pytest.mark.parametrize(("trusted", "scheme"), [("127.0.0.1", "https"), ("10.9.9.9", "http")])
async def test_only_a_trusted_proxy_says_how_the_server_was_reached(
    tmp_path: Path, trusted: str, scheme: str
) -> None:
    setup = Setup(tmp_path, flags=["--trusted-proxy", trusted], script=SCRIPT)
    headers = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "198.51.100.7"}
    with anyio.fail_after(60), setup.serving() as server:
        base = server.listening["url"].removesuffix("/mcp")
        async with httpx2.AsyncClient() as http:
            redirected = await http.get(f"{base}/messages", headers=headers)
    assert redirected.status_code == 307
    assert redirected.headers["location"].startswith(f"{scheme}://")
