"""Three real server processes on one Postgres journal, and helpers to call them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
from mcp import Client
from psycopg.conninfo import conninfo_to_dict

from benchmarks.replica_trio import Fleet, Replica, replicas
from tests.databases import Database
from tests.e2e.servers import call, connected
from tests.fork_server import ROOT, Process
from tests.fork_server import start as forked

NAMES = ("a", "b", "c")


def journal_url(database: Database, port: object = None) -> str:
    """Return the URL of a new journal."""
    found = conninfo_to_dict(database.conninfo)
    host = found["host"] if port is None else "127.0.0.1"
    port = port or found.get("port", 5432)
    return (
        f"postgresql://{found['user']}@{host}:{port}/{found['dbname']}?schema=s{uuid4().hex[:12]}"
    )


def start(command: Sequence[str], env: Mapping[str, str], stdout: int, stderr: int) -> Process:
    return forked(command, env, ROOT, stdout=stdout, stderr=stderr)


@contextmanager
def serving(
    place: Path,
    url: str,
    names: Sequence[str] = NAMES,
    flags: Sequence[str] = ("--drain-seconds", "0"),
    **env: str,
) -> Generator[Fleet]:
    with replicas(place, url, names, start=start, flags=flags, env=env) as fleet:
        yield fleet


@asynccontextmanager
async def clients(*those: Replica) -> AsyncGenerator[list[Client]]:
    """Connect a client of 2026-07-28 to each of some replicas."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(connected(one.url, "auto")) for one in those]


async def waited(client: Client, run_id: str, seconds: float = 30) -> dict[str, Any]:
    """Wait on a replica until a run pauses or ends."""
    with anyio.fail_after(180):  # on a slow machine dozens of calls of several runs take minutes
        while True:
            found = await call(client, "wait", run_id=run_id, wait_seconds=seconds)
            if found["status"] not in ("queued", "running"):
                return found


async def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until a condition holds for which there is no event."""
    with anyio.fail_after(seconds):
        while not holds():  # noqa: ASYNC110  other processes do it
            await anyio.sleep(0.01)
