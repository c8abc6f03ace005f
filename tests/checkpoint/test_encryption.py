"""Encrypted journals: the laws of every journal, what the disk shows, and how keys are changed."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.harness._internal.records import changed
from deep_agent_mcp.harness.checkpoint.base import (
    Batch,
    Checkpointer,
    FileChange,
    Interrupt,
    Rewrite,
    RunEvent,
    Snapshot,
    StoredWrite,
    TaskWrites,
    step_id,
)
from deep_agent_mcp.harness.checkpoint.codec import compress, decompress
from deep_agent_mcp.harness.checkpoint.conformance import LAWS, Law
from deep_agent_mcp.harness.checkpoint.encryption import EncryptedCheckpointer, require_plain
from deep_agent_mcp.harness.checkpoint.keyring import Keyring
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.record_encryption import RecordCipher
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import CheckpointError, KnownRun
from tests.checkpoint.records import THREAD, checkpoint, grow, interrupt, run, step_batch, task

pytestmark = pytest.mark.anyio

OLD, NEW = (Keyring.generate() for _ in range(2))
OLD_ID, NEW_ID = (Keyring.parse(key).ids[0] for key in (OLD, NEW))

SECRETS = tuple(
    f"secret-{name}"
    for name in (
        *("write", "snapshot", "author", "summary", "goal", "answer", "reason", "used", "key"),
        *("message", "payload", "schema", "reply", "early", "path", "before", "digest"),
        *("agent", "event"),
    )
)
"""One short text for each place that content can be in; short ones are not compressed."""


def sealed(journal: Checkpointer, *keys: str) -> EncryptedCheckpointer:
    return EncryptedCheckpointer(journal, Keyring.parse(",".join(keys or (NEW,))))


def full(thread: str = THREAD) -> Batch:
    """Return a step with every kind of record and every secret."""
    step, run_id = step_id(None), f"run_{thread}"
    asked = Interrupt(
        *(f"int_{thread}", thread, "", step_id(step), run_id, "question", ("main",)),
        message="secret-message",
        payload={"secret-payload": 1},
        answer_schema={"enum": ["secret-schema"]},
    )
    early = interrupt(
        f"early_{thread}", step, thread=thread, run_id=run_id, answer="secret-early", answered=True
    )
    done = run(
        run_id,
        thread=thread,
        goal="secret-goal",
        answer="secret-answer",
        reason="secret-reason",
        used="secret-used",
        idempotency_key=f"secret-key of {thread}",
        created_at=1.0,
        updated_at=1.0,
    )
    made = checkpoint(None, thread=thread, run_id=run_id, summary="secret-summary", created_at=1.0)
    return Batch(
        thread,
        writes=[
            task(step, "model", 0, "secret-write"),
            TaskWrites(step_id(step), "call_1", 0, (StoredWrite("files", LARGE),)),
        ],
        checkpoints=[changed(made, author="secret-author")],
        runs=[done],
        interrupts=[asked, early],
        answers={asked.id: ["secret-reply"]},
        file_changes=[
            FileChange(thread, run_id, "/secret-path", b"secret-before", "secret-digest"),
            FileChange(thread, run_id, "/new", None, None),
            FileChange(thread, run_id, "/large", LARGE, None),
        ],
        snapshots=[Snapshot(step, "schema", (StoredWrite("m", b"secret-snapshot", True),))],
        events=[
            RunEvent(run_id, "tasks", ("secret-agent",), {}, NOW),
            RunEvent(run_id, "tasks", (), {"is": "secret-event"}, NOW),
        ],
    )


LARGE, NOW = os.urandom(60_000), time.time()


async def contents(journal: Checkpointer, thread: str = THREAD) -> list[Any]:
    """Return all that a journal says of a thread."""
    run_id = f"run_{thread}"
    return [
        await journal.load(thread),
        await journal.load(thread, schema="schema"),
        await journal.history(thread),
        await journal.run(run_id),
        await journal.find_runs(thread_id=thread),
        [one for one in await journal.threads() if one.thread_id == thread],
        await journal.interrupts(run_id),
        await journal.file_changes(thread, 0),
        await journal.events(run_id),
    ]


def disk(path: Path) -> bytes:
    """Return every byte of the database and of its log, and what compressed events hold."""
    conn = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    events = [decompress(body) for (body,) in conn.execute("SELECT body FROM events")]
    conn.close()
    files = [one.read_bytes() for one in sorted(path.parent.glob(f"{path.name}*"))]
    return b"".join(files + events)


def shown(path: Path) -> set[str | bytes]:
    """Return the secrets that can be read on the disk."""
    seen = disk(path)
    found: set[str | bytes] = {one for one in SECRETS if one.encode() in seen}
    return found | ({LARGE[:20]} if LARGE[:20] in seen else set())


@pytest.mark.exhaustive(together=1)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.group}: {law.name}")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_law(kind: str, law: Law, path: Path):
    inner = MemoryCheckpointer if kind == "memory" else partial(SqliteCheckpointer, path)
    await law.verify(lambda: sealed(inner(), NEW, OLD))


# What the disk shows


@pytest.mark.parametrize("encrypted", [True, False])
async def test_no_content_can_be_found_on_the_disk(path: Path, encrypted: bool):
    inner = SqliteCheckpointer(path)
    async with sealed(inner) if encrypted else inner as journal:
        await journal.commit(full())
        await journal.copy_thread(THREAD, "copy")
        assert Path(f"{path}-wal").stat().st_size
        # Without a key all of it is there: the search finds what there is to be found.
        assert shown(path) == (set() if encrypted else {*SECRETS, LARGE[:20]})
    assert bool(shown(path)) != encrypted


async def test_content_comes_back_as_it_was(path: Path):
    async with MemoryCheckpointer() as plain, sealed(SqliteCheckpointer(path)) as journal:
        for one in (plain, journal):
            await one.commit(full())
        mine, theirs = await contents(journal), await contents(plain)
    assert mine[:5] == theirs[:5]
    assert mine[6:] == theirs[6:]
    assert mine[5][0].last_run == theirs[5][0].last_run


async def test_a_large_value_is_stored_once_whoever_writes_it(path: Path):
    value = os.urandom(200_000)
    async with sealed(SqliteCheckpointer(path)) as journal:
        for number in range(10):
            write = StoredWrite("files", value)
            batch = Batch(f"t{number}", writes=[TaskWrites(step_id(None), "c", 0, (write,))])
            await journal.commit(batch)
        await journal.vacuum()
    assert path.stat().st_size < 2 * len(value)


async def test_what_compresses_is_small_on_the_disk_too(path: Path):
    async with sealed(SqliteCheckpointer(path)) as journal:
        await journal.commit(step_batch(None, "text that says the same " * 50_000))
        assert await journal.thread_size(THREAD) < 20_000


# What somebody with access to the database can do


TAMPERED = [
    *(f"UPDATE runs SET {name} = %" for name in ("goal", "answer", "reason", "used")),
    "UPDATE runs SET idempotency_key = %",
    *(f"UPDATE checkpoints SET {name} = %" for name in ("author", "summary")),
    *(f"UPDATE interrupts SET {name} = %" for name in ("message", "payload", "answer_schema")),
    "UPDATE interrupts SET answer = %",
    *(f"UPDATE file_changes SET {name} = %" for name in ("path", "after_digest", "before")),
    *("UPDATE events SET body = %", "UPDATE checkpoints SET body = %"),
    "UPDATE blobs SET body = %",
]


@pytest.mark.parametrize("statement", TAMPERED)
async def test_a_changed_byte_of_any_column_is_refused(path: Path, statement: str):
    async with sealed(SqliteCheckpointer(path)) as journal:
        await journal.commit(full())
        await contents(journal)
        _, table, _, column, *_ = statement.split()
        conn = sqlite3.connect(path, isolation_level=None)
        conn.create_function("changed", 1, _changed)
        statement = statement.replace("%", f"changed({column})")
        assert conn.execute(f"{statement} WHERE {column} IS NOT NULL").rowcount, table
        conn.close()
        with pytest.raises(CheckpointError, match=r"cannot be opened|the journal key is wrong"):
            await contents(journal)


def _changed(value: str | bytes) -> str | bytes:
    """Change a byte in the middle of what is sealed; checksums are put right."""
    if isinstance(value, bytes):
        body = decompress(value)
        place = body.rfind(b"sealed:")
        place = len(body) - 5 if place < 0 else place + 20
        other = b"B" if body[place : place + 1] == b"A" else b"A"
        return compress(body[:place] + other + body[place + 1 :])
    place = len(value) // 2
    return value[:place] + ("B" if value[place] == "A" else "A") + value[place + 1 :]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET answer = goal",
        "UPDATE runs SET goal = (SELECT summary FROM checkpoints)",
        "UPDATE runs SET goal = (SELECT max(goal) FROM runs)",
        "UPDATE runs SET idempotency_key = goal",
        "UPDATE checkpoints SET author = summary",
        "UPDATE interrupts SET message = json_extract(answer_schema, '$.sealed')",
        "UPDATE interrupts SET answer_schema = payload",
        "UPDATE interrupts SET answer = (SELECT max(answer) FROM interrupts)",
        "UPDATE file_changes SET after_digest = path, path = coalesce(after_digest, path)",
    ],
)
async def test_content_that_was_moved_elsewhere_is_refused(path: Path, statement: str):
    async with sealed(SqliteCheckpointer(path)) as journal:
        for thread in (THREAD, "other"):
            await journal.commit(full(thread))
        conn = sqlite3.connect(path, isolation_level=None)
        conn.execute(statement)
        conn.close()
        with pytest.raises(CheckpointError, match="cannot be opened: it was damaged"):
            for thread in (THREAD, "other"):
                await contents(journal, thread)


async def test_content_that_somebody_made_up_is_refused(path: Path):
    async with sealed(SqliteCheckpointer(path)) as journal:
        await journal.commit(full())
        conn = sqlite3.connect(path, isolation_level=None)
        conn.execute("UPDATE runs SET goal = 'delete everything'")
        conn.close()
        with pytest.raises(CheckpointError, match="the goal of run run_thread_1 is not sealed"):
            await journal.run(f"run_{THREAD}")


# Keys


@pytest.fixture(params=["memory", "sqlite"])
async def inner(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[Checkpointer]:
    made = MemoryCheckpointer() if request.param == "memory" else SqliteCheckpointer(path)
    async with made:
        yield made


async def test_an_old_key_may_go_once_everything_is_resealed(inner: Checkpointer):
    old, both, new = sealed(inner, OLD), sealed(inner, NEW, OLD), sealed(inner, NEW)
    for thread in (THREAD, "other"):
        await old.commit(full(thread))
    before = [await contents(old, thread) for thread in (THREAD, "other")]

    with pytest.raises(
        CheckpointError, match=f"sealed with key {OLD_ID}.*not with {NEW_ID}"
    ) as why:
        await new.load(THREAD)
    assert OLD not in str(why.value) and NEW not in str(why.value)
    with pytest.raises(CheckpointError, match=OLD_ID):
        await new.check()
    with pytest.raises(CheckpointError, match=OLD_ID):
        await new.reseal()
    assert [await contents(both, thread) for thread in (THREAD, "other")] == before

    assert await both.reseal() == 2
    await new.check()
    assert [await contents(new, thread) for thread in (THREAD, "other")] == before
    with pytest.raises(CheckpointError, match=f"sealed with key {NEW_ID}"):
        await old.load(THREAD)


async def test_after_a_vacuum_nothing_sealed_with_the_old_key_is_left(path: Path):
    async with sealed(SqliteCheckpointer(path), OLD) as journal:
        await journal.commit(full())
    assert bytes.fromhex(OLD_ID) in disk(path)
    async with sealed(SqliteCheckpointer(path), NEW, OLD) as journal:
        await journal.reseal()
        await journal.vacuum()
        assert bytes.fromhex(OLD_ID) not in disk(path)
        assert bytes.fromhex(NEW_ID) in disk(path)


async def test_a_run_is_found_by_its_key_while_keys_are_being_changed(inner: Checkpointer):
    old, both = sealed(inner, OLD), sealed(inner, NEW, OLD)

    async def begin(journal: Checkpointer, name: str, at: float) -> None:
        begun = run(name, idempotency_key="long " * 50, created_at=at)
        await journal.commit(Batch(THREAD, runs=[begun]))

    async def found(journal: Checkpointer, **filters: Any) -> list[str]:
        runs = await journal.find_runs(idempotency_key="long " * 50, **filters)
        return [one.id for one in runs]

    await begin(old, "run_1", 1.0)
    assert await found(both) == ["run_1"]
    await begin(both, "run_2", 2.0)
    with pytest.raises(KnownRun):
        await begin(old, "run_3", 3.0)
    assert await found(both) == ["run_2", "run_1"]
    assert await found(both, limit=1) == ["run_2"]
    assert await found(both, limit=0) == []
    assert await found(both, status="failed") == []
    await both.reseal()
    assert await found(sealed(inner, NEW)) == ["run_2", "run_1"]
    assert await sealed(inner, NEW).find_runs(idempotency_key="other") == []


async def test_a_journal_is_encrypted_later_and_opened_again(inner: Checkpointer):
    journal = sealed(inner)
    await inner.commit(full())
    before = await contents(inner)
    await require_plain(inner)
    for refused in (journal.check, partial(journal.load, THREAD), journal.reseal):
        with pytest.raises(CheckpointError, match=r"is not sealed.*threads seal --plain"):
            await refused()

    assert await journal.seal_plain() == 1
    assert await contents(journal) == before
    with pytest.raises(CheckpointError, match=r"journal is encrypted.*journal_key_file"):
        await require_plain(inner)
    await sealed(inner, NEW, OLD).commit(full("other"))
    assert await sealed(inner, OLD, NEW).seal_plain() == 2  # what is sealed already is resealed
    assert await contents(sealed(inner, OLD)) == before

    assert await sealed(inner, OLD).unseal() == 2
    await require_plain(inner)
    assert await contents(inner) == before
    assert await sealed(inner, OLD).unseal() == 2


async def test_encrypting_leaves_nothing_readable_behind(path: Path):
    async with SqliteCheckpointer(path) as inner:
        await inner.commit(full())
        await sealed(inner).seal_plain()
        await inner.vacuum()
        assert not shown(path)


async def test_sealing_that_stopped_half_way_can_be_repeated(inner: Checkpointer):
    for thread in (THREAD, "other"):
        await inner.commit(full(thread))
    before = [await contents(inner, thread) for thread in (THREAD, "other")]
    journal = sealed(inner)
    await journal.seal_plain("other")
    with pytest.raises(CheckpointError, match="encrypted"):
        await require_plain(inner)  # as the thread that changed last is sealed first
    assert await journal.load("other") == before[1][0]
    with pytest.raises(CheckpointError, match="is not sealed"):
        await journal.load(THREAD)
    await journal.seal_plain()
    assert [await contents(journal, thread) for thread in (THREAD, "other")] == before


class StopsAfterOne(MemoryCheckpointer):
    """Cannot be written any more once a thread was rewritten."""

    left = 1

    async def rewrite(self, thread_id: str, rewrite: Rewrite) -> None:
        if not self.left:
            raise CheckpointError("the disk is full")
        self.left -= 1
        await super().rewrite(thread_id, rewrite)


async def test_a_journal_that_is_sealed_in_part_is_not_taken_for_a_plain_one():
    async with StopsAfterOne() as inner:
        for thread in (THREAD, "other"):
            await inner.commit(full(thread))
        for work in (sealed(inner).seal_plain, sealed(inner).unseal):
            inner.left = 1
            with pytest.raises(CheckpointError, match="the disk is full"):
                await work()
            with pytest.raises(CheckpointError, match="encrypted"):
                await require_plain(inner)
            inner.left = 2
            await sealed(inner).seal_plain()


async def test_a_file_that_looks_sealed_is_sealed_like_any_other(inner: Checkpointer):
    odd = [b"\x02sealed\x00" + os.urandom(40), b"\x02sealed\x00", b"sealed:AAAA"]
    goal = run("run_1", goal="sealed:AAAA", answer="sealed:")
    changes = [FileChange(THREAD, "run_1", "/odd", one, None) for one in odd]
    await inner.commit(Batch(THREAD, runs=[goal], file_changes=changes))
    journal = sealed(inner)
    await journal.seal_plain()
    assert [one.before for one in await journal.file_changes(THREAD, 0)] == odd[::-1]
    found = await journal.run("run_1")
    assert found == goal
    await journal.unseal()
    assert [one.before for one in await inner.file_changes(THREAD, 0)] == odd[::-1]


async def test_a_thread_without_runs_or_checkpoints_tells_nothing(inner: Checkpointer):
    await sealed(inner).check()
    await require_plain(inner)
    await grow(sealed(inner), "a")
    await inner.commit(Batch("empty", file_changes=[FileChange("empty", "r", "/f", None, None)]))
    with pytest.raises(CheckpointError, match="encrypted"):
        await require_plain(inner)
    await sealed(inner).check()


async def test_text_that_is_not_unicode_is_refused_and_nothing_is_stored(inner: Checkpointer):
    journal = sealed(inner)
    with pytest.raises(CheckpointError, match=r"cannot be stored.*fix the value"):
        await journal.commit(Batch(THREAD, runs=[run("run_1", goal="\ud800")]))
    assert await journal.threads() == []


async def test_half_a_character_in_an_event_comes_back(inner: Checkpointer):
    event = RunEvent("run_1", "tasks", ("main",), {"text": "\ud800"}, NOW)
    await sealed(inner).commit(Batch(THREAD, events=[event]))
    (found,) = await sealed(inner).events("run_1")
    assert found.data == event.data


# What it costs others


async def test_large_values_are_sealed_and_opened_off_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
):
    threads: list[int] = []
    seal, open_ = RecordCipher.seal_batch, RecordCipher.open

    def noted_seal(self: RecordCipher, batch: Batch) -> Batch:
        threads.append(threading.get_ident())
        return seal(self, batch)

    def noted_open(self: RecordCipher, record: Any) -> Any:
        threads.append(threading.get_ident())
        return open_(self, record)

    monkeypatch.setattr(RecordCipher, "seal_batch", noted_seal)
    monkeypatch.setattr(RecordCipher, "open", noted_open)
    async with sealed(MemoryCheckpointer()) as journal:
        await journal.commit(step_batch(None, "small"))
        await journal.load(THREAD)
        assert {*threads} == {threading.get_ident()}
        threads.clear()
        large = os.urandom(100_000).hex()
        await journal.commit(step_batch(step_id(None), large))
        await journal.load(THREAD)
        assert threads and threading.get_ident() not in threads


def test_the_cipher_is_imported_by_the_first_use_of_a_key():
    code = (
        "import sys; from deep_agent_mcp.harness.checkpoint import encryption, keyring, memory\n"
        "keys = keyring.Keyring.parse(keyring.Keyring.generate())\n"
        "assert 'cryptography' not in sys.modules\n"
        "encryption.EncryptedCheckpointer(memory.MemoryCheckpointer(), keys)\n"
        "assert 'cryptography' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(CheckpointError, match=r"deep-agent-mcp\[encryption\]"):
        sealed(MemoryCheckpointer())
