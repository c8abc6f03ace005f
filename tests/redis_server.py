"""The Redis server for tests; each test has its own keys, which are removed after it."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
import redis

SERVER = os.environ.get("TEST_REDIS", "redis://127.0.0.1:6379/0")
"""URL of a Redis server on which keys may be created."""

HELP = "no Redis: start one with `docker run -p 6379:6379 redis:7`, or name another in TEST_REDIS"


class Keys:
    """Direct access to the keys with a prefix, without the journal.

    Attributes:
        prefix: Prefix of the keys.
        server: A connection to the server.
    """

    def __init__(self, server: Any, prefix: str) -> None:
        self.server = server
        self.prefix = prefix

    def all(self) -> list[bytes]:
        """Return every key without its prefix, in order."""
        found: Iterator[bytes] = self.server.scan_iter(f"{self.prefix}*", count=10_000)
        return sorted(key.removeprefix(self.prefix.encode()) for key in found)

    def one(self, ending: bytes) -> bytes:
        """Return the full name of the only key with this ending."""
        (found,) = [key for key in self.all() if key.endswith(ending)]
        return self.prefix.encode() + found

    def remove(self) -> None:
        """Remove all keys."""
        found = self.all()  # in parts, because a long text has many keys
        for begin in range(0, len(found), 1_000):
            some = (self.prefix.encode() + key for key in found[begin : begin + 1_000])
            self.server.unlink(*some)


@contextmanager
def keys() -> Generator[Keys]:
    """Provide keys with a new prefix; without a server, skip the test, or fail on CI."""
    client: Any = redis.Redis
    server = client.from_url(SERVER, protocol=2, socket_timeout=20)
    try:
        try:
            server.ping()
        except redis.RedisError as error:
            if os.environ.get("CI"):
                pytest.fail(f"{HELP} ({error})")
            pytest.skip(HELP)
        made = Keys(server, f"test:{uuid4().hex}:")
        try:
            yield made
        finally:
            made.remove()
    finally:
        server.close()
