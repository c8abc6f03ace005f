"""Receives webhooks, and checks that the server sent them: `python receiver.py SECRETS_FILE`."""

import base64
import hashlib
import hmac
import json
import sys
import time
from collections.abc import Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

MOST_SECONDS = 300
MOST_BYTES = 65_536


def event_of(
    headers: Message | Mapping[str, str], body: bytes, secrets: list[str]
) -> dict[str, Any]:
    """Return the event of a request.

    Raises:
        ValueError: The request is old, or not signed with one of the secrets.
    """
    stamp = headers.get("webhook-timestamp", "")
    if not stamp.isdecimal() or abs(time.time() - int(stamp)) > MOST_SECONDS:
        raise ValueError("the request is too old")
    signed = f"{headers.get('webhook-id', '')}.{stamp}.".encode() + body
    given = headers.get("webhook-signature", "").encode().split()
    for secret in secrets:
        key = base64.b64decode(secret.removeprefix("whsec_"))
        wanted = b"v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256))
        if any(hmac.compare_digest(wanted, one) for one in given):
            event: dict[str, Any] = json.loads(body)
            return event
    raise ValueError("the signature is wrong")


class Receiver(BaseHTTPRequestHandler):
    secrets: list[str] = []
    seen: set[str] = set()

    def do_POST(self) -> None:
        body = self.rfile.read(min(int(self.headers.get("content-length") or 0), MOST_BYTES))
        try:
            event = event_of(self.headers, body, self.secrets)
        except ValueError as error:
            self.send_error(400, str(error))
            return
        self.send_response(204)
        self.end_headers()
        if self.headers["webhook-id"] not in self.seen:  # an event may come twice
            self.seen.add(self.headers["webhook-id"])
            told(event)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing about requests."""


def told(event: dict[str, Any]) -> None:
    """Do something with an event; send it to your chat, for example."""
    print(f"{event['timestamp']} {event['type']} {event['data']['run_id']}", flush=True)


if __name__ == "__main__":
    Receiver.secrets = Path(sys.argv[1]).read_text(encoding="utf-8").split()
    HTTPServer(("127.0.0.1", 9000), Receiver).serve_forever()
