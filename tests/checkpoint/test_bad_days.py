"""Bad days of the journal on disk: full and read-only disks, a log that lost its end, damage."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path

import pytest
from anyio import create_task_group, fail_after
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from deep_agent_mcp.harness.checkpoint.base import step_id
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import CheckpointError
from tests.checkpoint.bad_days import THREADS
from tests.checkpoint.committer import full_batch
from tests.checkpoint.test_processes import ROOT, check_whole, killed_after, line
from tests.fork_server import environment
from tests.pipe_client import open_process

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.name != "posix", reason="limits and permissions of POSIX"),
]

NOBODY = 65_534

# The owner of a file may always change its mode, and the journal does.
two_users = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs the right to be somebody else"
)


@asynccontextmanager
async def sufferer(*args: str) -> AsyncGenerator[tuple[Process, BufferedByteReceiveStream]]:
    command = [sys.executable, "-m", "tests.checkpoint.bad_days", *args]
    async with await open_process(command, environment(ROOT), ROOT) as process:
        assert process.stdout is not None
        try:
            yield process, BufferedByteReceiveStream(process.stdout)
        finally:
            if process.returncode is None:
                process.kill()


@contextmanager
def small_disk(size: int) -> Generator[Path]:
    """Mount a file system of so many bytes."""
    with tempfile.TemporaryDirectory() as name:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", name]
        if not sys.platform.startswith("linux") or shutil.which("mount") is None:
            pytest.skip("needs Linux")
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("needs the right to mount")
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", "--lazy", name], check=True)


def remount(disk: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(disk)], check=True)


def check_file(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


# Full disks


async def until_full(out: BufferedByteReceiveStream, path: Path) -> dict[str, int]:
    """Return how many steps of each thread were acknowledged before the journal refused."""
    stored = dict.fromkeys(THREADS, 0)
    refused: set[str] = set()
    while (words := await line(out)) != "waits":
        what, thread, text = words.split(maxsplit=2)
        if what == "stored":
            assert thread not in refused
            assert int(text) == stored[thread]
            stored[thread] += 1
        else:
            assert "Nothing was stored" in text and str(path) in text and "disk" in text
            refused.add(thread)
    assert refused == set(THREADS)
    return stored


async def check_stored(path: Path, stored: dict[str, int]) -> None:
    """See that there is what was acknowledged, and nothing that was refused."""
    async with SqliteCheckpointer(path) as journal:
        assert {one.thread_id for one in await journal.threads()} == {
            thread for thread, steps in stored.items() if steps
        }
        for thread, steps in stored.items():
            if steps:
                await check_whole(journal, thread, at_least=steps - 1)
                assert len(await journal.history(thread, limit=10_000)) == steps


async def fill_and_go_on(path: Path, make_room: Callable[[], object], *limit: str) -> None:
    with fail_after(50):
        async with sufferer("fill", str(path), *limit) as (process, out):
            stored = await until_full(out, path)
            assert sum(stored.values()) > 0
            await check_stored(path, stored)
            make_room()
            assert process.stdin is not None
            await process.stdin.send(b"go\n")
            while (words := await line(out)) != "done":
                what, thread, step = words.split()
                assert (what, int(step)) == ("stored", stored[thread])
                stored[thread] += 1
            assert await process.wait() == 0
        await check_stored(path, stored)
    check_file(path)


@pytest.mark.parametrize("limit", [600_000, 1_500_000, 6_000_000])
async def test_a_file_that_may_not_grow_loses_nothing_and_the_journal_goes_on(
    path: Path, limit: int
) -> None:
    # The limit is the child's own; the largest one is met after the log was folded in.
    await fill_and_go_on(path, lambda: None, str(limit))


@pytest.mark.parametrize("size", [700_000, 8_000_000])
async def test_a_full_disk_loses_nothing_and_the_journal_goes_on_when_room_is_made(
    size: int,
) -> None:
    with small_disk(size + 4_000_000) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(4_000_000))
        await fill_and_go_on(disk / "journal.db", ballast.unlink)


async def test_a_process_killed_on_a_full_disk_loses_nothing_either() -> None:
    with small_disk(2_000_000) as disk, fail_after(50):
        path = disk / "journal.db"
        async with sufferer("fill", str(path)) as (process, out):
            stored = await until_full(out, path)
            process.kill()
            await process.wait()
        # How much the next process can do is up to SQLite: it may find room by folding the log in.
        for words in await visited(path):
            assert words == "stored" or words.startswith("read") or str(path) in words
        remount(disk, "size=4000000")
        assert (await visited(path))[-1] == "stored"
        async with SqliteCheckpointer(path) as journal:
            for info in await journal.threads():
                if info.thread_id not in stored:
                    await journal.delete_thread(info.thread_id)
        await check_stored(path, stored)
        check_file(path)


@pytest.mark.parametrize("known", [False, True])
async def test_a_journal_that_cannot_be_opened_on_a_full_disk_says_that_it_is_full(
    known: bool,
) -> None:
    with small_disk(1_000_000) as disk:
        path = disk / "journal.db"
        if known:
            async with SqliteCheckpointer(path):
                pass
        with (disk / "ballast").open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4096)):
                pass
        with pytest.raises(CheckpointError, match=r"because its disk is full.*Make room"):
            await SqliteCheckpointer(path).open()
        (disk / "ballast").unlink()
        async with SqliteCheckpointer(path):
            pass


async def lines(process: Process, out: BufferedByteReceiveStream) -> list[str]:
    """Return all that a process writes; it must end well."""
    text = out.buffer
    assert process.stdout is not None
    async for chunk in process.stdout:
        text += chunk
    assert await process.wait() == 0
    return text.decode().splitlines()


# Read-only files


async def visited(path: Path, *user: str) -> list[str]:
    with fail_after(30):
        async with sufferer("visit", str(path), *user) as (process, out):
            return await lines(process, out)


@contextmanager
def read_only(directory: Path) -> Generator[None]:
    """Let everybody but the superuser only read."""
    for each in (*directory.iterdir(), directory):
        each.chmod(0o555 if each.is_dir() else 0o444)
    try:
        yield
    finally:
        directory.chmod(0o755)
        for each in directory.iterdir():
            each.chmod(0o600)


@contextmanager
def open_directory() -> Generator[Path]:
    """Make a directory that others may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


async def grow(path: Path, steps: int, *threads: str) -> None:
    async with SqliteCheckpointer(path) as journal:
        for thread in threads:
            parent = None
            for step in range(steps):
                await journal.commit(full_batch(thread, parent, step))
                parent = step_id(parent)


@two_users
async def test_a_closed_journal_that_may_only_be_read_is_refused_by_name_and_left_alone() -> None:
    with open_directory() as directory:
        path = directory / "journal.db"
        await grow(path, 3, "t0", "t1")
        content = path.read_bytes()
        with read_only(directory):
            read, commit = await visited(path, str(NOBODY))
        assert read.startswith("refused read") and commit.startswith("refused commit")
        for text in (read, commit):
            assert str(path) in text and "writable" in text
        assert path.read_bytes() == content
        assert [each.name for each in directory.iterdir()] == [path.name]


@two_users
async def test_a_journal_in_use_can_be_read_by_who_may_not_write_it() -> None:
    with open_directory() as directory:
        path = directory / "journal.db"
        async with SqliteCheckpointer(path) as journal:
            parent = None
            for step in range(3):
                await journal.commit(full_batch("t0", parent, step))
                parent = step_id(parent)
            with read_only(directory):
                read, commit = await visited(path, str(NOBODY))
            assert read == "read t0 2"
            assert commit.startswith("refused commit") and str(path) in commit
            assert "Nothing was stored" in commit and "permissions" in commit
            await journal.commit(full_batch("t0", parent, 3))
            await check_whole(journal, "t0", at_least=3)
            assert len(await journal.threads()) == 1
        check_file(path)


@two_users
async def test_what_a_killed_process_left_can_be_read_by_who_may_not_write_it() -> None:
    with open_directory() as directory:
        path = directory / "journal.db"
        with fail_after(50):
            last = await killed_after(path, 40)
        log = Path(f"{path}-wal").read_bytes()
        with read_only(directory):
            *read, commit = await visited(path, str(NOBODY))
        found = {words.split()[1]: int(words.split()[2]) for words in read}
        assert found.keys() >= last.keys()
        assert all(found[thread] >= step for thread, step in last.items())
        assert commit.startswith("refused commit") and str(path) in commit
        assert Path(f"{path}-wal").read_bytes() == log
        async with SqliteCheckpointer(path) as journal:
            for thread, step in found.items():
                await check_whole(journal, thread, at_least=step)
                assert len(await journal.history(thread, limit=10_000)) == step + 1


async def test_on_a_read_only_disk_the_journal_is_refused_by_name_and_nothing_is_lost() -> None:
    with small_disk(8_000_000) as disk:
        path = disk / "journal.db"
        with fail_after(50):
            last = await killed_after(path, 40)
        before = {each.name: each.read_bytes() for each in disk.iterdir()}
        remount(disk, "ro")
        texts = await visited(path)
        remount(disk, "rw")
        assert texts[-1].startswith("refused commit")
        for text in texts:
            assert text.startswith("read") or str(path) in text
        assert {each.name: each.read_bytes() for each in disk.iterdir()} == before
        async with SqliteCheckpointer(path) as journal:
            for thread, step in last.items():
                await check_whole(journal, thread, at_least=step)


# A log without its end

HEADER, FRAME = 32, 24
"""Bytes of SQLite's log before the first frame, and of each frame before its page."""


def frames_of(log: bytes) -> tuple[int, int, int]:
    """Return how often the log began anew, its frames since then, and the bytes of a frame."""
    page, times = struct.unpack(">II", log[8:16])
    size = FRAME + page
    frames = 0
    while log[HEADER + frames * size + 8 : HEADER + frames * size + 16] == log[16:24]:
        frames += 1
    return times, frames, size


async def killed_with_a_log(path: Path, acknowledgements: int, times: int) -> int:
    """Kill a committer; return the bytes of its log that are not folded into the file."""
    for more in range(0, 200, 40):
        await killed_after(path, acknowledgements + more)
        began, frames, size = frames_of(Path(f"{path}-wal").read_bytes())
        # At a thousand frames SQLite begins to fold them in: what is cut off then was promised
        # to be on disk, and nothing could go on from it.
        if began >= times and 20 < frames < 1_000:
            return HEADER + frames * size
        shutil.rmtree(path.parent)
    raise AssertionError("no committer was killed between two foldings of its log")


async def heads(journal: SqliteCheckpointer) -> dict[str, int]:
    """Check each thread there is, and return its newest step."""
    found: dict[str, int] = {}
    for info in await journal.threads():
        head = await journal.load(info.thread_id)
        assert head is not None
        found[info.thread_id] = head.checkpoint.step
        await check_whole(journal, info.thread_id, at_least=0)
    return found


async def goes_on(path: Path) -> dict[str, int]:
    """Open a journal, check it, add a step to each thread, and check it again as a new one."""
    async with SqliteCheckpointer(path) as journal:
        found = await heads(journal)
        for thread in THREADS:
            head = await journal.load(thread)
            parent, step = (head.checkpoint.id, head.checkpoint.step + 1) if head else (None, 0)
            await journal.commit(full_batch(thread, parent, step))
    async with SqliteCheckpointer(path) as journal:
        assert await heads(journal) == {thread: found.get(thread, -1) + 1 for thread in THREADS}
    return found


@pytest.mark.parametrize(
    ("acknowledgements", "times"), [(40, 0), (400, 1)], ids=["the first log", "a later one"]
)
async def test_a_log_that_lost_its_end_leaves_whole_steps_and_commits_go_on(
    path: Path, tmp_path: Path, acknowledgements: int, times: int
) -> None:
    with fail_after(55):
        size = await killed_with_a_log(path, acknowledgements, times)
        log = Path(f"{path}-wal").read_bytes()
        chance = random.Random(acknowledgements)
        places = sorted({0, 1, HEADER, size, *(chance.randrange(size) for _ in range(12))})
        broken = tmp_path / "broken"
        before: dict[str, int] = {}
        for place in places:
            for end in (b"", chance.randbytes(size - place + 5_000)):
                broken.mkdir()
                shutil.copy(path, broken)
                (broken / f"{path.name}-wal").write_bytes(log[:place] + end)
                found = await goes_on(broken / path.name)
                assert all(found.get(thread, -1) >= step for thread, step in before.items())
                before = found
                shutil.rmtree(broken)
        async with SqliteCheckpointer(path) as journal:
            assert await heads(journal) == before  # with all of the log nothing is missing


async def test_a_changed_byte_in_the_log_ends_it_there(path: Path, tmp_path: Path) -> None:
    with fail_after(50):
        size = await killed_with_a_log(path, 40, 0)
        log = bytearray(Path(f"{path}-wal").read_bytes())
        chance = random.Random(3)
        for number in range(10):
            place = chance.randrange(size)
            changed = log.copy()
            changed[place] ^= 1 << chance.randrange(8)
            broken = tmp_path / f"broken-{number}"
            broken.mkdir()
            shutil.copy(path, broken)
            (broken / f"{path.name}-wal").write_bytes(changed)
            (broken / f"{path.name}-shm").write_bytes(chance.randbytes(32_768))
            await goes_on(broken / path.name)


# Damaged files

Operation = Callable[[SqliteCheckpointer], Awaitable[object]]
OPERATIONS: list[Operation] = [
    lambda journal: journal.open(),
    lambda journal: journal.threads(),
    lambda journal: journal.load("t0"),
    lambda journal: journal.history("t0"),
    lambda journal: journal.namespaces("t0"),
    lambda journal: journal.run("run_t0"),
    lambda journal: journal.find_runs(thread_id="t1"),
    lambda journal: journal.interrupts("run_t0"),
    lambda journal: journal.file_changes("t1", 0),
    lambda journal: journal.thread_size("t1"),
    lambda journal: journal.commit(full_batch("t2", None, 0)),
    lambda journal: journal.prune(keep_latest=3),
    lambda journal: journal.delete_thread("t1"),
    lambda journal: journal.vacuum(),
]

REMEDIES = ("journal salvage newfile", "check the disk")


async def refusals(path: Path, journal: SqliteCheckpointer) -> int:
    """Use a damaged journal in every way; return how many ways were refused."""
    count = 0
    for operation in OPERATIONS:
        try:
            await operation(journal)
        except CheckpointError as error:
            count += 1
            text = str(error)
            assert any(remedy in text.lower() for remedy in REMEDIES), text
            assert str(path) in text or "ancestor" in text, text
    return count


PAGE = 4_096


def cut(content: bytearray, chance: random.Random) -> None:
    del content[chance.randrange(1, len(content)) :]


def cut_at_a_page(content: bytearray, chance: random.Random) -> None:
    del content[PAGE * chance.randrange(1, len(content) // PAGE) :]


def cut_in_the_header(content: bytearray, chance: random.Random) -> None:
    del content[chance.randrange(1, 100) :]


def garbage(content: bytearray, chance: random.Random) -> None:
    for _ in range(8):
        at = PAGE * chance.randrange(len(content) // PAGE)
        content[at : at + PAGE] = chance.randbytes(PAGE)


def zeros(content: bytearray, chance: random.Random) -> None:
    for _ in range(8):
        at = PAGE * chance.randrange(1, len(content) // PAGE)
        content[at : at + PAGE] = bytes(PAGE)


def swapped(content: bytearray, chance: random.Random) -> None:
    for _ in range(8):
        one, other = (PAGE * chance.randrange(1, len(content) // PAGE) for _ in range(2))
        page = content[one : one + PAGE]
        content[one : one + PAGE] = content[other : other + PAGE]
        content[other : other + PAGE] = page


Damage = Callable[[bytearray, random.Random], None]
DAMAGES: list[Damage] = [cut, cut_at_a_page, cut_in_the_header, garbage, zeros, swapped]


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_file_is_refused_by_name_with_a_remedy_however_it_is_used(
    path: Path, damage: Damage
) -> None:
    await grow(path, 20, "t0", "t1")
    content = path.read_bytes()
    chance = random.Random(damage.__name__)
    refused = 0
    with fail_after(55):
        for _ in range(8):
            damaged = bytearray(content)
            damage(damaged, chance)
            path.write_bytes(damaged)
            for left in (Path(f"{path}-wal"), Path(f"{path}-shm")):
                left.unlink(missing_ok=True)
            journal = SqliteCheckpointer(path)
            refused += await refusals(path, journal)
            await journal.close()
    assert refused > 8


@pytest.mark.parametrize("damage", [cut_at_a_page, garbage, zeros])
async def test_a_file_that_is_damaged_while_it_is_open_is_refused_by_name_too(
    path: Path, damage: Damage
) -> None:
    await grow(path, 20, "t0", "t1")
    content = bytearray(path.read_bytes())
    damage(content, random.Random(5))
    async with SqliteCheckpointer(path) as journal:
        with path.open("r+b") as file:
            file.write(content)
            file.truncate(len(content))
        with fail_after(30):
            assert await refusals(path, journal) > 0


async def test_a_damaged_journal_that_is_moved_away_makes_room_for_a_new_one(path: Path) -> None:
    await grow(path, 3, "t0")
    path.write_bytes(random.Random(1).randbytes(PAGE * 10))
    with pytest.raises(CheckpointError, match="Move it away, together with its -wal and -shm"):
        await SqliteCheckpointer(path).open()
    path.rename(path.with_suffix(".damaged"))
    await grow(path, 3, "t0")
    async with SqliteCheckpointer(path) as journal:
        await check_whole(journal, "t0", at_least=2)


async def test_readers_and_writers_of_a_damaged_journal_all_get_an_answer(path: Path) -> None:
    await grow(path, 20, "t0", "t1")
    content = bytearray(path.read_bytes())
    garbage(content, random.Random(7))
    content[:PAGE] = path.read_bytes()[:PAGE]
    path.write_bytes(content)
    answers: list[object] = []

    async def use(operation: Operation) -> None:
        try:
            await operation(journal)
            answers.append(None)
        except CheckpointError as error:
            answers.append(error)

    with fail_after(30):
        async with SqliteCheckpointer(path) as journal, create_task_group() as group:
            for _ in range(10):
                for operation in OPERATIONS[1:-1]:
                    group.start_soon(use, operation)
    assert len(answers) == 10 * len(OPERATIONS[1:-1])
