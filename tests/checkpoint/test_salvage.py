"""Damaged files: a check says so, and salvage saves what was there, up to the damage.

Whatever happens to the bytes of a file, salvage neither fails nor makes up a state.
"""

from __future__ import annotations

import os
import random
import socket
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint import EncryptedCheckpointer, Keyring, SqliteCheckpointer
from deep_agent_mcp.harness.checkpoint.base import Batch
from deep_agent_mcp.harness.checkpoint.sqlite.salvage import (
    backup_journal,
    check_journal,
    salvage_journal,
)
from deep_agent_mcp.harness.errors import CheckpointError, NewerDatabase
from tests.checkpoint.damaged_journals import (
    DAMAGES,
    PAGE,
    THREADS,
    Held,
    fill,
    flipped_byte,
    flipped_bytes,
    held,
    made,
    more_held,
    quick_folder,
)
from tests.checkpoint.records import task
from tests.loop.models import Turns, says
from tests.sampled_cases import few

pytestmark = pytest.mark.anyio

CASES = 13
"""Damaged files of each kind."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as made:
        yield made


async def _sound(path: Path) -> Held:
    async with SqliteCheckpointer(path) as journal:
        await fill(journal, random.Random(1))
        return await held(journal)


@pytest.fixture(scope="module")
def original() -> tuple[bytes, Held]:
    with quick_folder() as folder:
        content = anyio.run(_sound, folder / "journal.db")
        return (folder / "journal.db").read_bytes(), content


def written(folder: Path, data: bytes) -> Path:
    """Put a journal into a new file."""
    path = folder / f"{len(os.listdir(folder))}.db"
    path.write_bytes(data)
    return path


async def salvaged(path: Path, **options: Any) -> tuple[Path, list[Any]]:
    target = path.with_suffix(".new")
    return target, [*await salvage_journal(path, target, **options)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
async def test_no_damage_makes_salvage_fail_or_make_up_a_state(
    damage: Any, original: tuple[bytes, Held], folder: Path, pytestconfig: pytest.Config
) -> None:
    data, known = original
    saved = 0
    for case in few(pytestconfig, range(CASES), 3):
        spoiled = bytearray(data)
        damage(spoiled, random.Random(f"{damage.__name__} {case}"))
        path = written(folder, spoiled)
        target, told = await salvaged(path)
        assert path.read_bytes() == spoiled
        assert (await check_journal(target)).problems == []
        async with SqliteCheckpointer(target) as journal:
            found = await held(journal)
            await more_held(journal)
        assert sum(one.steps for one in told) == len(found)
        if not any(one.thread_id.startswith("salvaged-") for one in told):
            wrong = [key for key, state in found.items() if known.get(key) != state]
            assert not wrong, (case, wrong)
        lost = {one.thread_id for one in told if one.lost or not one.saved}
        if damage in (flipped_byte, flipped_bytes):  # may be in a text, which nothing vouches for
            continue
        assert lost or len(found) == len(known) or not told
        saved += len(found)
    assert saved > 0 or damage in (flipped_byte, flipped_bytes)


async def test_a_sound_journal_is_saved_whole(original: tuple[bytes, Held], folder: Path) -> None:
    data, known = original
    path = written(folder, data)
    target, told = await salvaged(path)
    assert [one.thread_id for one in told] == [*THREADS]
    assert all(one.saved and not one.lost and not one.problem for one in told)
    async with SqliteCheckpointer(path) as old, SqliteCheckpointer(target) as new:
        assert await held(new) == known
        assert await more_held(new) == await more_held(old)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600 or os.name == "nt"


@pytest.mark.parametrize("size", [16, 100, PAGE])
async def test_without_its_beginning_a_journal_is_saved_whole(
    size: int, original: tuple[bytes, Held], folder: Path
) -> None:
    data, known = original
    path = written(folder, bytes(size) + data[size:])
    with pytest.raises(CheckpointError, match="journal salvage NEWFILE"):
        await SqliteCheckpointer(path).open()
    assert (await check_journal(path)).problems
    target, _ = await salvaged(path)
    async with SqliteCheckpointer(target) as journal:
        assert await held(journal) == known


async def test_without_the_root_of_a_table_its_rows_are_found_by_their_index(folder: Path) -> None:
    path = folder / "journal.db"
    steps = 400
    async with SqliteCheckpointer(path) as journal:
        parent = None
        for thread in ("deleted", "kept"):
            parent, batch = None, Batch(thread, synced=False)
            for step in range(steps):
                one = made(thread, parent, step)
                write = task(one.id, "model", 0, f"{thread} {step}")
                batch = replace(
                    batch,
                    writes=[*batch.writes, write],
                    checkpoints=[*batch.checkpoints, one],
                )
                parent = one.id
            await journal.commit(batch)
        known = await held(journal)
        await journal.delete_thread("deleted")
    conn = sqlite3.connect(path)
    roots = dict(conn.execute("SELECT name, rootpage FROM sqlite_master").fetchall())
    conn.close()
    data = path.read_bytes()
    at = (roots["checkpoints"] - 1) * PAGE
    assert data[at] == 5  # there are pages below it
    spoiled = written(folder, data[:at] + bytes(PAGE) + data[at + PAGE :])
    target, told = await salvaged(spoiled)
    assert [(one.thread_id, one.steps) for one in told] == [("kept", steps)]
    async with SqliteCheckpointer(target) as journal:
        kept = {key: state for key, state in known.items() if key[0] == "kept"}
        assert await held(journal) == kept


async def test_what_is_in_the_log_alone_is_saved_up_to_where_the_log_is_damaged(
    folder: Path,
) -> None:
    async with SqliteCheckpointer(folder / "open.db") as journal:
        await fill(journal, random.Random(1))
        known = await held(journal)
        data, log = ((folder / f"open.db{end}").read_bytes() for end in ("", "-wal"))
    assert len(log) > len(data)
    for share in (1.0, 0.6):
        path = written(folder, data)
        at = int(len(log) * share)
        path.with_name(f"{path.name}-wal").write_bytes(log[:at] + bytes(len(log) - at))
        target, told = await salvaged(path)
        async with SqliteCheckpointer(target) as journal:
            found = await held(journal)
        assert found.items() <= known.items()
        assert (len(found) == len(known)) == (share == 1.0)
        assert len(found) > 5 and not any(one.lost for one in told)  # it is of an earlier moment


async def test_runs_that_lost_steps_have_failed_and_others_stay_as_they_were(
    original: tuple[bytes, Held], folder: Path
) -> None:
    path = written(folder, original[0])
    with sqlite3.connect(path) as conn:  # the last body of one thread
        conn.execute(
            "DELETE FROM pages WHERE page = (SELECT max(page) FROM pages JOIN scopes USING (scope)"
            " JOIN threads USING (thread) WHERE thread_id = 'long' AND ns = '')"
        )
    conn.close()
    report = await check_journal(path)
    (problem,) = report.problems
    assert "thread 'long' has lost steps:" in problem and "row" in problem
    target, told = await salvaged(path)
    by_id = {one.thread_id: one for one in told}
    assert not by_id["short"].lost and by_id["long"].lost["steps"] > 0
    async with SqliteCheckpointer(target) as journal:
        assert {one.status for one in await journal.find_runs(thread_id="short")} == {
            "running",
            "done",
        }
        left = await journal.find_runs(thread_id="long")
        assert "failed" in {one.status for one in left}
        assert "running" not in {one.status for one in left}
        assert all("damaged" in str(one.reason) for one in left if one.status == "failed")


async def test_a_sealed_journal_is_salvaged_with_its_key_or_without_but_not_with_another(
    folder: Path,
) -> None:
    path = folder / "journal.db"
    keys, wrong = (Keyring.parse(Keyring.generate()) for _ in range(2))
    async with EncryptedCheckpointer(SqliteCheckpointer(path), keys) as journal:
        await fill(journal, random.Random(1))
        known = await held(journal)
    for given in (keys, None):
        target, told = await salvaged(path, keys=given)
        assert not any(one.lost for one in told)
        async with EncryptedCheckpointer(SqliteCheckpointer(target), keys) as journal:
            assert await held(journal) == known
        assert (await check_journal(target, keys=given)).problems == []
        target.unlink()
    for call in (check_journal(path, keys=wrong), salvaged(path, keys=wrong)):
        with pytest.raises(CheckpointError, match="the journal key is wrong"):
            await call
    assert not path.with_suffix(".new").exists()
    with sqlite3.connect(path) as conn:  # where no checksum tells
        conn.execute("UPDATE checkpoints SET summary = 'sealed:AAAA' WHERE step = 3")
    conn.close()
    assert (await check_journal(path, keys=keys)).problems
    target, _ = await salvaged(path, keys=keys)
    async with EncryptedCheckpointer(SqliteCheckpointer(target), keys) as journal:
        found = await held(journal)
    assert found and found.items() < known.items()


async def test_a_journal_of_another_version_is_not_taken_for_a_damaged_one(folder: Path) -> None:
    path = folder / "journal.db"
    async with SqliteCheckpointer(path):
        pass
    with sqlite3.connect(path) as conn:
        conn.execute("PRAGMA user_version = 99")
        assert await salvaged(path)  # a flipped byte, for all that one can see
        path.with_suffix(".new").unlink()
        conn.execute("CREATE TABLE from_the_future (one, two)")
    for version, error in ((99, NewerDatabase), (2, CheckpointError)):
        with sqlite3.connect(path) as conn:
            conn.execute(f"PRAGMA user_version = {version}")
        conn.close()
        with pytest.raises(error, match="version of this program"):
            await salvaged(path)
        assert not path.with_suffix(".new").exists()


async def test_a_run_whose_usage_is_damaged_is_saved_without_it(
    original: tuple[bytes, Held], folder: Path
) -> None:
    path = written(folder, original[0])
    with sqlite3.connect(path) as conn:
        conn.execute("UPDATE runs SET used = ?  WHERE id = 'run_long_0'", ('{"model_calls"- 3}',))
    conn.close()
    (problem,) = (await check_journal(path)).problems
    assert "thread 'long' has lost usage: 1: what a run has used" in problem
    target, told = await salvaged(path)
    assert [(one.thread_id, dict(one.lost)) for one in told] == [
        ("short", {}),
        ("long", {"usage": 1}),
    ]
    assert (await check_journal(target)).problems == []
    async with SqliteCheckpointer(target) as journal:
        run = await journal.run("run_long_0")
        assert run is not None and run.used == ""


async def test_a_database_of_another_program_is_not_salvaged(folder: Path) -> None:
    path = folder / "other.db"
    with sqlite3.connect(path) as conn:
        conn.execute("CREATE TABLE songs (title)")
    conn.close()
    for call in (check_journal(path), salvaged(path), backup_journal(path, folder / "copy")):
        with pytest.raises(CheckpointError, match="database of another program"):
            await call
    assert [*folder.iterdir()] == [path]


@pytest.mark.skipif(os.name == "nt", reason="files of POSIX systems")
@pytest.mark.parametrize("kind", ["pipe", "directory", "device", "link to a device", "socket"])
async def test_what_is_no_file_is_refused_and_not_waited_for(kind: str, folder: Path) -> None:
    path = folder / "journal.db"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(path))
        case "link to a device":
            path.symlink_to("/dev/zero")
        case _:
            path = Path("/dev/null")
    target = folder / "new"
    with anyio.fail_after(20):
        for call in (
            check_journal(path),
            salvage_journal(path, target),
            backup_journal(path, target),
        ):
            with pytest.raises(CheckpointError, match="is not a regular file"):
                await call
    assert not target.exists()


async def test_no_file_is_overwritten(original: tuple[bytes, Held], folder: Path) -> None:
    path, target = written(folder, original[0]), folder / "mine"
    target.write_text("precious")
    for call in (salvage_journal(path, target), backup_journal(path, target)):
        with pytest.raises(CheckpointError, match="exists already"):
            await call
    assert target.read_text() == "precious"
    for call in (
        salvage_journal(path, folder / "no" / "such"),
        backup_journal(path, folder / "no" / "such"),
    ):
        with pytest.raises(CheckpointError, match="cannot be written"):
            await call


async def test_a_backup_made_beside_commits_is_the_journal_at_one_moment(folder: Path) -> None:
    path = folder / "journal.db"
    async with SqliteCheckpointer(path) as journal:
        await fill(journal, random.Random(1))
        known = await held(journal)
        going = anyio.Event()

        async def commit() -> None:
            parent = None
            for step in range(200):
                one = made("late", parent, step)
                batch = Batch("late", writes=[task(one.id, "m", 0, "x" * 500)], checkpoints=[one])
                await journal.commit(replace(batch, synced=False))
                parent = one.id
                going.set()

        async with anyio.create_task_group() as group:
            group.start_soon(commit)
            await going.wait()
            size = await backup_journal(path, folder / "copy.db")
    assert size == (folder / "copy.db").stat().st_size
    assert os.name == "nt" or stat.S_IMODE((folder / "copy.db").stat().st_mode) == 0o600
    assert (await check_journal(folder / "copy.db")).problems == []
    async with SqliteCheckpointer(folder / "copy.db") as copy:
        found = await held(copy)
    late = [key for key in found if key[0] == "late"]
    assert late and {key: found[key] for key in found if key[0] != "late"} == known


async def test_a_damaged_journal_is_not_backed_up_as_if_it_were_sound(
    original: tuple[bytes, Held], folder: Path
) -> None:
    data, target = original[0], folder / "copy.db"
    no_text = data.replace(b"CREATE TABLE", b"\x93REATE TABLE")
    in_a_row = data.replace(b"did 3 of short", b"did \xff of short")
    assert data not in (no_text, in_a_row)
    for spoiled in (
        bytes(100) + data[100:],
        data[: 20 * PAGE] + bytes(PAGE) + data[21 * PAGE :],
        no_text,  # SQLite's error quotes it, so the error's text is not Unicode
        in_a_row,  # SQLite does not look at what a text says
    ):
        with pytest.raises(CheckpointError, match=r"is damaged.*journal salvage NEWFILE"):
            await backup_journal(written(folder, spoiled), target)
        assert not target.exists()


@pytest.mark.parametrize("turn", [0, 1])
@pytest.mark.parametrize("place", ["index", "row"])
async def test_a_wrong_bit_in_the_id_of_a_runs_first_step_costs_no_other_thread_or_run(
    place: str, turn: int, folder: Path
) -> None:
    path, saved = folder / "journal.db", folder / "saved.db"
    async with SqliteCheckpointer(path) as journal:
        agent = create_agent(Turns(says("ok"), says("ok again")), checkpointer=journal)
        await agent.ainvoke("start", thread_id="t")
        await agent.ainvoke("more", thread_id="t")
        steps = len(await journal.history("t"))
    before = turn * steps // 2
    with sqlite3.connect(path) as opened:
        asked = "SELECT id FROM checkpoints ORDER BY seq LIMIT 1 OFFSET ?"
        ((key,),) = opened.execute(asked, (before,)).fetchall()
    opened.close()
    stored = key if isinstance(key, bytes) else int(key).to_bytes(8, "big", signed=True)
    data = bytearray(path.read_bytes())
    found = [at for at in range(len(data)) if data.startswith(stored, at)]
    damaged: list[tuple[int, int]] = []
    for at in found:
        data[at] ^= 1
        (folder / f"{at}.db").write_bytes(data)
        data[at] ^= 1
        (thread,) = await salvage_journal(folder / f"{at}.db", saved.with_suffix(f".{at}"))
        damaged.append((thread.steps, thread.lost.get("steps", 0)))
    expected = (steps, 0) if place == "index" else (before, steps - before)
    assert expected in damaged, damaged
