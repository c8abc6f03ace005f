"""A journal that cannot be used for a while: runs wait for it, and go on."""

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

from deep_agent_mcp.harness.agent import Agent, RunOptions, RunResult, create_agent
from deep_agent_mcp.harness.agent_file.places import open_checkpointer
from deep_agent_mcp.harness.checkpoint.base import Batch, Run, ThreadSlice
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import HarnessError, JournalAway
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.messages.message import AIMessage
from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.runs import lifecycle
from deep_agent_mcp.server.runs.active_run import ActiveRun
from deep_agent_mcp.server.runs.runs import RunManager
from deep_agent_mcp.server.runs.server_processes import ServerProcesses
from deep_agent_mcp.server.runs.supervisor import RunSupervisor
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.settings.state_dir import StateDir
from deep_agent_mcp.server.threads import journal_places
from tests.databases import Database, made_database
from tests.loop.models import Turns, says
from tests.server.same_agent import SameAgent

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
    monkeypatch.setattr(journal_places, "open_checkpointer", partial(open_checkpointer, timeout=3))
    log = tmp_path / "root" / "log"
    with anyio.fail_after(90):
        async with Line(database.conninfo).listening() as line, running(tmp_path, line.url) as app:
            run_id = await app.runs.start("work")
            await lines(log, 2)
            await line.cut()
            while app.runs.active:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            assert app.runs.doing(run_id) == "the journal cannot be used now; the run waits for it"
            with pytest.raises(HarnessError, match="the database of the journal failed"):
                await app.runs.wait(run_id, 0.2)
            line.mend()
            snapshot = await app.runs.wait(run_id, 60)
            assert (snapshot.run.status, snapshot.run.answer) == ("done", "end")
            assert snapshot.run.attempt == 2
            assert app.runs.doing(run_id) is None
    assert max(Counter(log.read_text().split()).values()) == 1


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look more often whether the journal is back."""
    monkeypatch.setattr(lifecycle, "_FIRST_LOOK", 0.02)
    monkeypatch.setattr(lifecycle, "_LAST_LOOK", 0.1)


class Flaky(MemoryCheckpointer):
    """A journal that can be made unusable: for writing, or for a number of reads."""

    def __init__(self) -> None:
        super().__init__()
        self.can_write = True
        self.failing_reads = 0
        self.refused = 0
        self.looked = anyio.Event()

    async def commit(self, batch: Batch) -> None:
        if not self.can_write:
            self._refuse()
        await super().commit(batch)

    async def run(self, run_id: str) -> Run | None:
        found = await super().run(run_id)
        if self.failing_reads and self.looked.is_set():
            self.failing_reads -= 1
            self._refuse()
        return found

    def _refuse(self) -> None:
        self.refused += 1
        self.looked.set()
        raise JournalAway("no room is left; nothing was stored")


@asynccontextmanager
async def supervised(journal: Flaky, place: Path) -> AsyncGenerator[RunSupervisor]:
    """Give a server's runs of an agent whose journal fails before its answer is stored."""

    def ends(_: object) -> AIMessage:
        if not journal.looked.is_set():
            journal.can_write = False
        return says("end")

    who = SameAgent(create_agent(Turns(ends), checkpointer=journal))
    servers = ServerProcesses(StateDir.open(place))
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            supervisor = RunSupervisor(
                who, journal, group, "me", servers, lambda thread_id, **_: None, Limits()
            )
            yield supervisor
            group.cancel_scope.cancel()


async def begun(supervisor: RunSupervisor) -> None:
    """Start a run, and return when it waits for the journal."""
    live = ActiveRun("run_1", "t")
    await supervisor.take_gate(live)

    async def work(agent: Agent, options: RunOptions) -> RunResult:
        return await agent.ainvoke("go", thread_id="t", options=options)

    supervisor.spawn(live, work)
    await live.finished.wait()
    assert isinstance(live.error, JournalAway) and "run_1" in supervisor.journal_wait


async def done(journal: Flaky) -> Run:
    run = await journal.run("run_1")
    while run is None or run.status == "running":
        await anyio.sleep(0.01)
        run = await journal.run("run_1")
    return run


async def test_a_run_waits_on_while_its_journal_can_be_read_but_not_written(tmp_path: Path) -> None:
    journal = Flaky()
    async with supervised(journal, tmp_path) as supervisor:
        await begun(supervisor)
        while journal.refused < 3:  # noqa: ASYNC110 - two attempts to continue have failed
            await anyio.sleep(0.01)
        assert "run_1" in supervisor.journal_wait or supervisor.live
        journal.can_write = True
        assert (await done(journal)).status == "done"
        assert "run_1" not in supervisor.journal_wait


async def test_a_journal_that_fails_again_while_a_run_waits_ends_only_the_attempt(
    tmp_path: Path,
) -> None:
    journal = Flaky()
    async with supervised(journal, tmp_path) as supervisor:
        await begun(supervisor)
        journal.can_write, journal.failing_reads = True, 5
        while journal.failing_reads:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        assert (await done(journal)).status == "done"


class Silent(MemoryCheckpointer):
    """A journal that does not answer any more."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = anyio.Event()

    async def load(self, *_: object, **__: object) -> ThreadSlice | None:
        self.asked.set()
        await anyio.sleep_forever()


@pytest.mark.parametrize("way", ["start", "drive"])
async def test_what_is_left_before_it_is_stored_is_not_said_to_work(
    tmp_path: Path, way: str
) -> None:
    journal = Silent()
    who = SameAgent(create_agent(Turns(says("end")), checkpointer=journal))
    servers = ServerProcesses(StateDir.open(tmp_path))
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            supervisor = RunSupervisor(
                who, journal, group, "me", servers, lambda thread_id, **_: None, Limits()
            )
            runs = RunManager(supervisor, who, journal, group)

            async def leave() -> None:
                await journal.asked.wait()
                for live in supervisor.live.values():  # as a replica without heartbeat does
                    live.control.leave()

            group.start_soon(leave)
            with pytest.raises(JournalAway, match="Nothing was done; send the call again"):
                await (runs.start("go") if way == "start" else runs.drive("look", {}, None))
            assert not await journal.find_runs(limit=1)
            group.cancel_scope.cancel()
