"""Replicas started by the command line, each with its own state directory, and a balancer."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.servers import ROOT, HttpServer, Setup
from tests.fork_server import environment, start


@dataclass
class Machine(Setup):
    """The setup of a replica.

    Attributes:
        files: The root, which all replicas share.
    """

    files: Path = Path()

    @property
    def root(self) -> Path:
        return self.files


@contextmanager
def balanced(place: Path, servers: Sequence[HttpServer]) -> Iterator[str]:
    """Run a balancer that passes each request to the next server; yields its URL."""
    urls = [one.listening["url"] for one in servers]
    command = [sys.executable, "-m", "tests.replicas.round_robin", *urls]
    env = environment(place)
    said, out = os.pipe()
    with (place / "balancer.txt").open("ab") as log, open(out, "wb") as its_out:
        process = start(command, env, ROOT, stdout=its_out.fileno(), stderr=log.fileno())
    with open(said, "rb") as stdout:
        try:
            line = stdout.readline()
            assert line, (place / "balancer.txt").read_text()
            yield json.loads(line)["url"]
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def behind_a_balancer(place: Path, machines: Sequence[Machine]) -> Iterator[HttpServer]:
    """Start replicas and a balancer; yields them as one server. SSE uses the first replica."""
    with ExitStack() as stack:
        servers = [stack.enter_context(one.serving()) for one in machines]
        url = stack.enter_context(balanced(place, servers))
        yield HttpServer(servers[0].process, {**servers[0].listening, "url": url})
