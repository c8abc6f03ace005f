"""Impact of hostile calls on other calls: how long they block the event loop, and their memory.

Every tool of a server with all features is called with hostile arguments, over stdio, one call at a
time. A stall is measured in processor time of the process, and memory as the peak growth of its
resident set; see `benchmarks.watched_server`. Linux only.
"""

from __future__ import annotations

import json
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from benchmarks.client import ENVELOPE, environment
from benchmarks.hostile_calls import HostileCall, calls_of, calls_on_files, hostile_files
from benchmarks.report import Bar, Report

__all__ = ["Cost", "WatchedServer", "run"]

STALL_MS = 100.0
MEMORY_MIB = 64.0
ANSWER_SECONDS = 120.0

_THREAD = re.compile(r"thr_[0-9a-f]+")

SCRIPT = 'name: hostile\nagents: {"*": [{text: Done.}]}\n'


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a call.

    Attributes:
        stall_ms: Processor time during which nothing else could run on the event loop.
        memory_mib: Peak growth of the resident set.
        where: The callback of the loop that ran longest.
        answer: The answer.
    """

    stall_ms: float
    memory_mib: float
    where: str
    answer: dict[str, Any]


class WatchedServer:
    """A server with all features as a child process that measures the cost of calls."""

    def __init__(self, place: Path) -> None:
        self.root = place / "root"
        self.root.mkdir()
        script = place / "script.yaml"
        script.write_text(SCRIPT)
        ours, theirs = socket.socketpair()
        flags = {"root": self.root, "state-dir": place / "state", "model": f"scripted:{script}"}
        options = [text for name, value in flags.items() for text in (f"--{name}", str(value))]
        fd = str(theirs.fileno())
        command = [sys.executable, "-m", "benchmarks.watched_server", fd, "serve", *options]
        self._log: IO[bytes] = (place / "stderr.txt").open("wb")
        with theirs:
            self._process = subprocess.Popen(
                [*command, "--execute", "host"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=environment(),
                pass_fds=[theirs.fileno()],
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        self._control = ours
        self._measures = ours.makefile("rw")
        self._heard = b""
        self._next_id = 0
        self.request("server/discover", b"")

    def tools(self) -> list[dict[str, Any]]:
        """Return the tools of the server."""
        return self.request("tools/list", b"")["result"]["tools"]

    def call(self, tool: str, arguments: bytes) -> dict[str, Any]:
        """Call a tool with arguments as JSON text, without braces; return the whole answer."""
        name = json.dumps(tool).encode()
        return self.request("tools/call", b'"name":' + name + b',"arguments":{' + arguments + b"}")

    def cost(self, call: HostileCall) -> Cost:
        """Make a call and return its cost."""
        arguments = call.arguments()
        if call.reads:
            read = self.call("read_file", b'"path":' + json.dumps(call.reads).encode())
            thread = _THREAD.search(json.dumps(read))
            arguments += b',"thread_id":"' + (thread[0].encode() if thread else b"") + b'"'
        self._measure()
        answer = self.call(call.tool, arguments)
        found = self._measure()
        stall = max(found["loop_ms"], found["held_ms"])
        return Cost(stall, found["peak_mib"], found["where"], answer)

    def request(self, method: str, params: bytes) -> dict[str, Any]:
        """Send a request with parameters as JSON text without braces; return the answer."""
        self._next_id += 1
        meta = b'"_meta":' + json.dumps(ENVELOPE).encode()
        head = f'{{"jsonrpc":"2.0","id":{self._next_id},"method":"{method}","params":{{'.encode()
        self._send(head + (meta + b"," if params else meta) + params + b"}}\n")
        while True:
            answer = json.loads(self._line())
            if "method" not in answer and answer.get("id") in (self._next_id, None):
                return answer

    def close(self) -> None:
        """Kill the server."""
        self._process.kill()
        self._process.wait()
        self._measures.close()
        self._control.close()
        self._log.close()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def __enter__(self) -> WatchedServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _measure(self) -> dict[str, Any]:
        self._measures.write("\n")
        self._measures.flush()
        return json.loads(self._measures.readline())

    def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            _, ready, _ = select.select([], [self._to], [], ANSWER_SECONDS)
            if not ready:
                raise TimeoutError("the server does not read")
            rest = rest[os.write(self._to, rest) :]

    def _line(self) -> bytes:
        end = time.monotonic() + ANSWER_SECONDS
        while b"\n" not in self._heard:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            piece = os.read(self._from, 1 << 20) if ready else b""
            if not piece:
                raise TimeoutError("the server did not answer, or ended")
            self._heard += piece
        line, _, self._heard = self._heard.partition(b"\n")
        return line


def run(only: str = "") -> Report:
    """Make all calls and report the worst one of each tool.

    Args:
        only: Names of tools, separated by commas; all of them if empty.
    """
    with tempfile.TemporaryDirectory() as folder, WatchedServer(Path(folder)) as server:
        paths = hostile_files(server.root)
        calls = [*calls_of(server.tools()), *calls_on_files(paths, os.fspath(server.root))]
        chosen = set(only.split(",")) if only else {one.tool for one in calls}
        return _report(server, [one for one in calls if one.tool in chosen])


def _report(server: WatchedServer, calls: Iterable[HostileCall]) -> Report:
    costs: defaultdict[str, list[tuple[HostileCall, Cost]]] = defaultdict(list)
    for call in calls:
        costs[call.tool].append((call, server.cost(call)))
    measures: dict[str, dict[str, float | int | None]] = {}
    for tool, made in costs.items():
        measures[tool] = {
            "stall, ms": round(max(cost.stall_ms for _, cost in made), 1),
            "memory, MiB": round(max(cost.memory_mib for _, cost in made), 1),
            "n": len(made),
        }
    every = [one for made in costs.values() for one in made]
    slowest, stall = max(every, key=lambda one: one[1].stall_ms)
    largest, memory = max(every, key=lambda one: one[1].memory_mib)
    measures[f"longest stall: {slowest.name}"] = {"stall, ms": round(stall.stall_ms, 1)}
    measures[f"most memory: {largest.name}"] = {"memory, MiB": round(memory.memory_mib, 1)}
    bars = [
        Bar("worst stall of the event loop by one call", stall.stall_ms, STALL_MS, "ms"),
        Bar("most memory that one call takes", memory.memory_mib, MEMORY_MIB, "MiB"),
    ]
    return Report("hostile", measures, bars)
