"""A receiver of webhooks on this machine."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SECRET = "whsec_" + base64.b64encode(b"s" * 24).decode()


@dataclass
class Receiver:
    """A receiver and its requests.

    Attributes:
        url: URL of the receiver.
        answers: Statuses of the next answers; 204 after the last one.
        requests: Headers and bodies of all requests.
    """

    url: str = ""
    answers: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.requests]

    def verified(self, number: int, secret: str = SECRET) -> bool:
        """Whether a request has a valid signature according to the specification."""
        headers, body = self.requests[number]
        content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        key = base64.b64decode(secret.removeprefix("whsec_"))
        made = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        return f"v1,{made}" in headers["webhook-signature"].split(" ")


@contextmanager
def receiving(certificate: tuple[Path, Path] | None = None) -> Generator[Receiver]:
    """Receive until the block ends; over HTTPS with a certificate and its key."""
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.requests.append(({k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(found.answers.pop(0) if found.answers else 204)
            for name, value in found.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        scheme = "http" if certificate is None else "https"
        if certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(*certificate)
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        found.url = f"{scheme}://127.0.0.1:{server.server_address[1]}/hook"
        try:
            yield found
        finally:
            server.shutdown()
            thread.join(10)
