"""Two real servers on one journal accept the same tokens, request states and principals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
from click.testing import CliRunner, Result

from deep_agent_mcp.harness.checkpoint.keyring import Keyring
from deep_agent_mcp.server.cli.main import cli
from tests.databases import Database, made_database
from tests.e2e.conftest import SCRIPT
from tests.e2e.servers import HttpServer
from tests.replicas.machines import Machine
from tests.replicas.round_robin import RoundRobin
from tests.replicas.servers import journal_url

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


@dataclass
class Pair:
    """Two replicas that ask for tokens."""

    place: Path
    url: str
    key: str

    def machine(self, name: str, **env: str) -> Machine:
        place = self.place / name
        place.mkdir(exist_ok=True)
        flags = ["--replicas", "--shared-root", "--auth", "token", "--approve", "edit_file"]
        return Machine(place, flags, {**self.env, **env}, SCRIPT, files=self.place / "files")

    @property
    def env(self) -> dict[str, str]:
        return {"DEEP_AGENT_JOURNAL": self.url, "DEEP_AGENT_JOURNAL_KEY": self.key}

    async def token(self, *args: str) -> Result:
        """Run `deep-agent-mcp token` on a machine on which no server is."""
        command = ["token", "--replicas", "--state-dir", str(self.place / "elsewhere"), *args]
        run = CliRunner(env=self.env).invoke
        return await anyio.to_thread.run_sync(lambda: run(cli, command))

    async def bearer(self, name: str) -> dict[str, Any]:
        scopes = [f"--scope={one}" for one in ("drive", "delegate", "approve")]
        made = await self.token("create", name, *scopes, "--json")
        assert made.exit_code == 0, made.output
        return json.loads(made.stdout)

    @contextmanager
    def serving(self) -> Iterator[tuple[HttpServer, HttpServer]]:
        with ExitStack() as stack:
            a, b = (stack.enter_context(self.machine(one).serving()) for one in "ab")
            yield a, b


@pytest.fixture(scope="module")
def pair(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    place = tmp_path_factory.mktemp("pair")
    (place / "files").mkdir()
    return Pair(place, journal_url(database), Keyring.generate())


async def ask(url: str, token: str, method: str, **params: Any) -> httpx2.Response:
    """Send one request of 2026-07-28."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    }
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
    }
    if "name" in params:
        headers["Mcp-Name"] = params["name"]
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    async with httpx2.AsyncClient(timeout=60, verify=False) as http:  # reading CAs takes long
        return await http.post(url, json=body, headers=headers)


async def call(url: str, token: str, tool: str, *, again: Any = None, **args: Any) -> Any:
    """Call a tool and return its result."""
    answer = await ask(url, token, "tools/call", name=tool, arguments=args, **(again or {}))
    text = answer.text
    if answer.headers["content-type"].startswith("text/event-stream"):
        text = [line for line in text.splitlines() if line.startswith("data: ")][-1][6:]
    found = json.loads(text)
    assert "result" in found, found
    return found["result"]


async def until_status(url: str, token: str, status: int) -> None:
    with anyio.fail_after(30):
        while (await ask(url, token, "tools/list")).status_code != status:  # noqa: ASYNC110
            await anyio.sleep(0.05)


async def test_what_one_replica_hands_out_the_other_one_takes(pair: Pair) -> None:
    with anyio.fail_after(120), pair.serving() as servers:
        a, b = (one.listening["url"] for one in servers)
        ann = await pair.bearer("ann")
        token = ann["token"]
        # A token of the command line holds on both, at once.
        for url in (a, b):
            assert (await ask(url, token, "tools/list")).status_code == 200
            assert (await ask(url, "dam_" + "0" * 12, "tools/list")).status_code == 401
        # The state of a question that A has sealed is accepted by B.
        written = await call(a, token, "write_file", path="/plan.txt", content="first")
        thread = written["structuredContent"]["thread_id"]
        edit = {"path": "/plan.txt", "old_string": "first", "new_string": "second"}
        edit["thread_id"] = thread
        asked = await call(a, token, "edit_file", **edit)
        assert asked["resultType"] == "input_required"
        accepted = {"action": "accept", "content": {"decision": "approve"}}
        again = {
            "inputResponses": dict.fromkeys(asked["inputRequests"], accepted),
            "requestState": asked["requestState"],
        }
        done = await call(b, token, "edit_file", again=again, **edit)
        assert not done.get("isError"), done
        assert (pair.place / "files" / "plan.txt").read_text() == "second"
        # Revoked, it ends on both.
        assert (await pair.token("revoke", ann["id"])).exit_code == 0
        for url in (a, b):
            await until_status(url, token, 401)
    assert not [*pair.place.rglob("tokens.json"), *pair.place.rglob("principals.jsonl")]


async def test_the_run_of_a_principal_whom_only_the_dead_one_has_met_goes_on(pair: Pair) -> None:
    with anyio.fail_after(120), pair.serving() as (a, b):
        token = (await pair.bearer("eve"))["token"]
        begun = await call(a.listening["url"], token, "task", goal="take your time", wait_seconds=0)
        run_id = begun["structuredContent"]["run_id"]
        other = (await pair.bearer("ann"))["token"]  # so that B has met somebody, but not her
        assert (await ask(b.listening["url"], other, "tools/list")).status_code == 200
        a.kill()
        shown = await pair_runs(pair, run_id, attempt=2)
        assert shown["at_work"] is True
        ended = await call(b.listening["url"], token, "cancel", run_id=run_id)
        assert ended["structuredContent"]["status"] == "cancelled"


async def pair_runs(pair: Pair, run_id: str, attempt: int) -> Any:
    """Return what the command line says of a run once it is at an attempt."""
    command = ["runs", "--state-dir", str(pair.place / "elsewhere"), "show", run_id, "--json"]
    run = CliRunner(env={**pair.env, "DEEP_AGENT_REPLICAS": "true"}).invoke
    with anyio.fail_after(30):
        while True:
            shown = await anyio.to_thread.run_sync(lambda: run(cli, command))
            assert shown.exit_code == 0, shown.output
            found = json.loads(shown.stdout)
            if found["attempt"] >= attempt:
                return found


async def test_a_replica_with_another_key_says_so_and_does_not_start(pair: Pair) -> None:
    with anyio.fail_after(60), pair.serving() as (a, _):
        wrong = pair.machine("c", DEEP_AGENT_JOURNAL_KEY=Keyring.generate())
        with pytest.raises(AssertionError, match=r"(?s)key.*Nothing was started"), wrong.serving():
            pass
        token = (await pair.bearer("ann"))["token"]
        assert (await ask(a.listening["url"], token, "tools/list")).status_code == 200


async def test_a_balancer_that_knows_nothing_is_enough(pair: Pair) -> None:
    with anyio.fail_after(60), pair.serving() as servers:
        async with RoundRobin.serving([one.listening["url"] for one in servers]) as balancer:
            token = (await pair.bearer("ben"))["token"]
            written = await call(balancer.url, token, "write_todos", todos=[])
            thread = written["structuredContent"]["thread_id"]
            for number in range(6):
                path = f"/ben-{number}.txt"
                await call(
                    balancer.url, token, "write_file", thread_id=thread, path=path, content="x"
                )
            done = await call(balancer.url, token, "task", goal="write a note", thread_id=thread)
            assert done["structuredContent"]["answer"] == "The note is written."
            assert min(balancer.requests) >= 4
