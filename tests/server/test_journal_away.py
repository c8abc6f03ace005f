"""A journal in Postgres that cannot be reached for a while: runs wait for it, and go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest
import yaml
from anyio.abc import SocketAttribute, SocketStream
from psycopg.conninfo import conninfo_to_dict

from deep_agent_mcp.harness.agent_file.places import open_checkpointer
from deep_agent_mcp.harness.errors import HarnessError
from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.threads import journal_places
from tests.databases import Database, made_database

pytestmark = pytest.mark.anyio

STEPS = 5


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


class Line:
    """A line to the database that can be cut.

    Attributes:
        port: Where it listens.
    """

    def __init__(self, conninfo: str) -> None:
        found = conninfo_to_dict(conninfo)
        self._host, self._port = str(found["host"]), int(str(found.get("port", 5432)))
        self._name, self._user = found["dbname"], found["user"]
        self._open: set[SocketStream] = set()
        self._is_cut = False
        self.port = 0

    @property
    def url(self) -> str:
        return f"postgresql://{self._user}@127.0.0.1:{self.port}/{self._name}"

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[Line]:
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
            self.port = listener.extra(SocketAttribute.local_port)
            async with anyio.create_task_group() as group:
                group.start_soon(listener.serve, self._connect)
                yield self
                group.cancel_scope.cancel()

    async def cut(self) -> None:
        self._is_cut = True
        for one in [*self._open]:
            await anyio.aclose_forcefully(one)

    def mend(self) -> None:
        self._is_cut = False

    async def _connect(self, client: SocketStream) -> None:
        if self._is_cut:
            await anyio.aclose_forcefully(client)
            return
        async with client, await anyio.connect_tcp(self._host, self._port) as server:
            ends = {client, server}
            self._open |= ends
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._pass_on, client, server, group.cancel_scope)
                    group.start_soon(self._pass_on, server, client, group.cancel_scope)
            finally:
                self._open -= ends

    async def _pass_on(
        self, source: SocketStream, target: SocketStream, both: anyio.CancelScope
    ) -> None:
        try:
            async for data in source:
                await target.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        both.cancel()


@asynccontextmanager
async def running(place: Path, url: str) -> AsyncGenerator[App]:
    turns = [
        {"tool_calls": [{"name": "execute", "args": {"command": f"echo {n} >> log; sleep 0.05"}}]}
        for n in range(STEPS)
    ]
    script = place / "script.yaml"
    script.write_text(
        yaml.safe_dump({"agents": {"*": [*turns, {"text": "end"}]}}), encoding="utf-8"
    )
    root = place / "root"
    root.mkdir(exist_ok=True)
    given = {
        "state_dir": str(place / "state"),
        "model": f"scripted:{script}",
        "root": str(root),
        "execute": "bubblewrap",
        "approve": (),
        "journal": url,
    }
    async with create_app(load_settings(given, {})) as app:
        yield app


async def lines(log: Path, least: int) -> None:
    with anyio.fail_after(60):
        while not log.exists() or len(log.read_text().split()) < least:  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def test_a_run_waits_for_its_journal_and_goes_on(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is known sooner that nobody answers.
    monkeypatch.setattr(journal_places, "open_checkpointer", partial(open_checkpointer, timeout=1))
    log = tmp_path / "root" / "log"
    with anyio.fail_after(90):
        async with Line(database.conninfo).listening() as line, running(tmp_path, line.url) as app:
            run_id = await app.runs.start("work")
            await lines(log, 2)
            await line.cut()
            while app.runs.active:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            assert app.runs.doing(run_id) == "the journal cannot be reached; the run waits for it"
            with pytest.raises(HarnessError, match="the database of the journal failed"):
                await app.runs.wait(run_id, 0.2)
            line.mend()
            snapshot = await app.runs.wait(run_id, 60)
            assert (snapshot.run.status, snapshot.run.answer) == ("done", "end")
            assert snapshot.run.attempt == 2
            assert app.runs.doing(run_id) is None
    assert max(Counter(log.read_text().split()).values()) == 1
