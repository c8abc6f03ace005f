"""What replicas share beside the journal: the first one makes it, the others find it, sealed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest
from click.testing import CliRunner, Result
from psycopg.sql import SQL, Identifier

from deep_agent_mcp.harness.checkpoint.keyring import Keyring
from deep_agent_mcp.harness.errors import HarnessError
from deep_agent_mcp.harness.mcp_servers.oauth_tokens import Login
from deep_agent_mcp.server.agenda.opening import book_of, opened_agenda
from deep_agent_mcp.server.agenda.schedules import Work
from deep_agent_mcp.server.auth.caller import ALL_SCOPES, Caller, UnknownPrincipal
from deep_agent_mcp.server.auth.mounted_logins import login_store
from deep_agent_mcp.server.auth.shared_state import SharedState, open_shared_state
from deep_agent_mcp.server.auth.tokens import TokenVerifier, new_token
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.replicas.sealed_values import SealError
from deep_agent_mcp.server.settings.settings import Settings
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.settings.state_dir import StateDir
from tests.databases import Database, made_database

pytestmark = pytest.mark.anyio

ANN = Caller("ann", ALL_SCOPES)
BEN = Caller("ben", ALL_SCOPES)


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


class Replicas:
    """Settings of replicas, each with a state directory of its own, on tables of their own."""

    def __init__(self, database: Database, place: Path) -> None:
        self.database = database
        self.place = place
        self.name = f"r{uuid4().hex[:12]}"
        known = database.conn.info
        where = f"{known.user}@{known.host}:{known.port}/{known.dbname}"
        self.url = f"postgresql://{where}?schema={self.name}"

    def settings(self, machine: str, *keys: str) -> Settings:
        chosen = {"replicas": "true", "journal": self.url, "state_dir": str(self.place / machine)}
        if keys:
            chosen["journal_key"] = ",".join(keys)
        return load_settings(chosen, {})

    @asynccontextmanager
    async def shared(self, machine: str, *keys: str) -> AsyncIterator[SharedState]:
        settings = self.settings(machine, *keys)
        async with open_shared_state(settings, StateDir.open(settings.state_dir)) as shared:
            yield shared

    async def command(self, *args: str, keys: tuple[str, ...] = ()) -> Result:
        group, *rest = args
        flags = ["--journal", self.url, "--state-dir", str(self.place / "command")]
        env = {"DEEP_AGENT_REPLICAS": "true", "DEEP_AGENT_JOURNAL_KEY": ",".join(keys)}
        run = CliRunner(env=env).invoke
        return await anyio.to_thread.run_sync(lambda: run(cli, [group, *flags, *rest]))

    def stored(self) -> bytes:
        """Return all that the tables of shared values hold."""
        found = b""
        for table in ("shared", "principals", "tokens"):
            named = SQL("SELECT t::text FROM {} AS t").format(
                Identifier(f"{self.name}_replicas", table)
            )
            for (row,) in self.database.execute(named):
                hexadecimal = row.partition("\\x")[2].rstrip(')"')
                found += row.encode() + bytes.fromhex(hexadecimal)
        return found

    def execute(self, statement: str) -> None:
        self.database.execute(statement.replace("TABLES", f"{self.name}_replicas"))


@pytest.fixture
def replicas(database: Database, tmp_path: Path) -> Replicas:
    return Replicas(database, tmp_path)


async def test_replicas_that_start_together_agree_on_the_key(replicas: Replicas) -> None:
    keys: list[bytes] = []

    async def start(machine: str) -> None:
        async with replicas.shared(machine) as shared:
            keys.append(shared.key)

    async with anyio.create_task_group() as group:
        for machine in "abcd":
            group.start_soon(start, machine)
    await start("e")
    assert len(keys) == 5 and len(set(keys)) == 1 and len(keys[0]) == 32
    assert not list(replicas.place.rglob("request_state.key"))


async def test_a_principal_that_one_replica_has_met_is_known_to_the_others(
    replicas: Replicas,
) -> None:
    async with replicas.shared("a") as a, replicas.shared("b") as b:
        assert not a.principals.knows(ANN)
        await a.principals.note(ANN)
        assert a.principals.knows(ANN) and not b.principals.knows(ANN)
        run_id = ANN.new_id("run")
        with pytest.raises(UnknownPrincipal):
            b.principals.of(run_id)
        assert await b.principals.find(run_id) == b.principals.of(run_id) == "ann"
        assert await b.principals.find("thr_0123456789abcdef") == ""
        with pytest.raises(UnknownPrincipal, match="has called a replica again"):
            await b.principals.find(BEN.new_id("thr"))


async def test_all_may_note_a_principal_at_once(replicas: Replicas) -> None:
    async with AsyncExitStack() as stack:
        all_ = [await stack.enter_async_context(replicas.shared(one)) for one in "abc"]
        async with anyio.create_task_group() as group:
            for one in all_ * 3:
                group.start_soon(one.principals.note, ANN)
        assert [one.principals.of(ANN.new_id("thr")) for one in all_] == ["ann"] * 3


async def test_two_principals_of_one_digest_are_not_mistaken(replicas: Replicas) -> None:
    async with replicas.shared("a") as a, replicas.shared("b") as b:
        await a.principals.note(BEN)
        replicas.execute(f"UPDATE \"TABLES\".principals SET owner = '{ANN.owner}'")
        with pytest.raises(HarnessError, match="of another principal"):
            await b.principals.note(ANN)
        assert not b.principals.knows(ANN)


async def test_with_a_key_nobody_who_reads_the_database_learns_anything(
    replicas: Replicas,
) -> None:
    key = Keyring.generate()
    record, _ = new_token("ann", ("drive",))
    async with replicas.shared("a", key) as shared:
        await shared.principals.note(ANN)
        await shared.tokens.add(record)
        stored = replicas.stored()
        assert ANN.owner.encode() in stored and record.id.encode() in stored
        for secret in (b"ann", b"drive", record.digest.encode(), shared.key):
            assert secret not in stored
    async with replicas.shared("b", key) as again:
        assert again.key == shared.key
        assert [one.id for one in await again.tokens.all()] == [record.id]


async def test_without_a_key_the_tables_can_be_read(replicas: Replicas) -> None:
    async with replicas.shared("a") as shared:
        await shared.principals.note(ANN)
        assert b"ann" in replicas.stored() and shared.key in replicas.stored()


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ((0,), (1,), "encrypted with the key"),
        ((0,), (), "no key is set"),
        ((), (0,), "not encrypted, but a journal key is set"),
    ],
)
async def test_another_key_is_refused_in_so_many_words(
    replicas: Replicas, first: tuple[int, ...], second: tuple[int, ...], words: str
) -> None:
    keys = [Keyring.generate(), Keyring.generate()]
    async with replicas.shared("a", *(keys[one] for one in first)) as a:
        before = replicas.stored()
        with pytest.raises(SealError, match=words) as refused:
            async with replicas.shared("b", *(keys[one] for one in second)):
                pass
        assert "Nothing was changed" in str(refused.value)
        assert not any(key in str(refused.value) for key in keys)
        assert replicas.stored() == before
    async with replicas.shared("a", *(keys[one] for one in first)) as again:
        assert again.key == a.key


async def test_a_sealed_value_opens_only_where_it_was_stored(replicas: Replicas) -> None:
    key = Keyring.generate()
    async with replicas.shared("a", key) as a, replicas.shared("b", key) as b:
        await a.principals.note(ANN)
        replicas.execute(f"UPDATE \"TABLES\".principals SET owner = '{BEN.owner}'")
        with pytest.raises(SealError, match="was altered"):
            await b.principals.find(BEN.new_id("run"))


async def test_keys_are_changed_with_those_of_the_journal(replicas: Replicas) -> None:
    old, new = Keyring.generate(), Keyring.generate()
    record, token = new_token("ann", ("drive",))
    async with replicas.shared("a", old) as shared:
        await shared.principals.note(ANN)
        await shared.tokens.add(record)
    login, work = Login("https://x.example.com", {}, {}), Work("", "0 * * * *", "UTC", "Tidy up.")
    settings = replicas.settings("a", old)
    await anyio.to_thread.run_sync(login_store(settings).write, "x", login)
    async with opened_agenda(settings) as tables:
        await book_of(settings, tables).add("tidy", work)
    done = await replicas.command("threads", "seal", keys=(new, old))
    assert done.exit_code == 0, done.output
    with pytest.raises(SealError, match="encrypted with the key"):
        async with replicas.shared("b", old):
            pass
    async with replicas.shared("b", new) as again:
        assert again.key == shared.key
        assert await again.principals.find(ANN.new_id("run")) == "ann"
        assert await TokenVerifier(again.tokens).verify_token(token) is not None
    settings = replicas.settings("b", new)
    assert await anyio.to_thread.run_sync(login_store(settings).read, "x") == login
    async with opened_agenda(settings) as tables:
        assert [one.work for one in await book_of(settings, tables).all()] == [work]


async def test_encryption_begins_and_ends_with_that_of_the_journal(replicas: Replicas) -> None:
    key = Keyring.generate()
    async with replicas.shared("a") as shared:
        await shared.principals.note(ANN)
    refused = await replicas.command("threads", "seal", keys=(key,))
    assert refused.exit_code == 1 and "seal --plain" in refused.output
    done = await replicas.command("threads", "seal", "--plain", keys=(key,))
    assert done.exit_code == 0, done.output
    assert b"ann" not in replicas.stored()
    done = await replicas.command("threads", "unseal", "--yes", keys=(key,))
    assert done.exit_code == 0, done.output
    async with replicas.shared("b") as again:
        assert again.key == shared.key
        assert await again.principals.find(ANN.new_id("run")) == "ann"
