"""Guarded paths that are replaced or moved on the host while commands run.

The schedules are tried in one sandbox that nobody ends, each against a look at its mounts of its
own. What follows from a look that finds them changed is tried with jobs and sessions of their own.
"""

import ctypes
import os
import select
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import anyio.to_thread
import pytest

from deep_agent_mcp.harness.backends.mounts import MountedDirectory
from deep_agent_mcp.harness.policy import CallAuthorization, Policy, Rule
from deep_agent_mcp.harness.shell.bubblewrap import BubblewrapExecutionPolicy
from deep_agent_mcp.harness.shell.jobs import JobLimits, JobPool
from deep_agent_mcp.harness.shell.mount_guard import GUARD_LOST, MountGuard, MoveWatch
from deep_agent_mcp.harness.shell.mount_table import TableLimits, layout_of
from deep_agent_mcp.harness.shell.policies import Layout
from deep_agent_mcp.harness.shell.resource_limits import descendants
from deep_agent_mcp.harness.shell.session import ShellError, ShellSession, open_session
from deep_agent_mcp.harness.tools.tool import tool
from tests.shell.support import need_bubblewrap, text_of

EXECUTION = BubblewrapExecutionPolicy()
POLICY = Policy(
    [Rule("deny", path="**/*.hidden"), Rule("deny", tool="write_file", path="**/*.read")]
)
SECRET = "the-new-secret"


@tool
def execute(command: str) -> str:
    """Stand for the tool that a call is of."""
    return command


def layout(root: Path) -> Layout:
    bound = CallAuthorization(POLICY, "execute", {}, execute, execute, ("main",), "")
    return layout_of([MountedDirectory("/workspace", root)], bound, limits=TableLimits(points=999))


# --- schedules -------------------------------------------------------------------------------


def exchange(one: Path, other: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2):
        raise OSError(ctypes.get_errno(), "renameat2")


def rename_over(new: Path, path: Path) -> None:
    new.rename(path)


def move_away(new: Path, path: Path) -> None:
    path.rename(path.with_name("away"))
    new.rename(path)


def remove(new: Path, path: Path) -> None:
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink()
    new.rename(path)


def link_again(new: Path, path: Path) -> None:
    """Put the same file back: it has its number, but no mount any more."""
    new.unlink()
    os.link(path, new)
    path.unlink()
    os.link(new, path)


WAYS: dict[str, Callable[[Path, Path], None]] = {
    "renamed over": rename_over,
    "moved away": move_away,
    "exchanged": exchange,
    "removed": remove,
    "linked again": link_again,
}


@dataclass(frozen=True)
class Schedule:
    """What happens to one guarded path.

    Attributes:
        access: What commands can do with it.
        kind: Whether it is a file or a directory.
        depth: How many directories are above it.
        above: How many levels further up the replaced path is; 0 for the guarded path itself.
        way: How it is replaced.
    """

    access: str
    kind: str
    depth: int
    above: int
    way: str

    @property
    def top(self) -> str:
        return f"{self.access}-{self.kind}-{self.depth}-{self.above}-{self.way}".replace(" ", "_")

    def path(self, root: Path) -> Path:
        """Return the guarded path."""
        above = [f"d{number}" for number in range(self.depth)]
        return root.joinpath(self.top, *above, f"it.{self.access}")

    def replaced(self, root: Path) -> Path:
        """Return the path that is replaced."""
        return [self.path(root), *self.path(root).parents][self.above]

    def make(self, path: Path, text: str) -> None:
        """Make a guarded path, or another one in its place."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.kind == "file":
            path.write_text(f"{text}\n")
        else:
            path.mkdir()
            if text:
                (path / "in").write_text(f"{text}\n")

    def happen(self, root: Path) -> None:
        """Replace it."""
        replaced = self.replaced(root)
        new = replaced.with_name("new")
        self.make(new / self.path(root).relative_to(replaced), SECRET)
        WAYS[self.way](new, replaced)

    def try_it(self) -> str:
        """Return a command that succeeds if the path is not guarded any more."""
        path = self.path(Path("/workspace"))
        inside = f"{path}/in" if self.kind == "dir" else path
        if self.access == "read":
            return f"{{ : >{inside}; }} 2>/dev/null"
        return f"{{ read -r _ <{inside}; }} 2>/dev/null"


def schedules() -> Iterator[Schedule]:
    accesses, kinds = ("hidden", "read"), ("file", "dir")
    for access, kind, depth, way in product(accesses, kinds, range(4), WAYS):
        for above in range(depth + 1):
            if way == "linked again" and (above or kind == "dir"):
                continue  # directories have one link
            if above and way in ("renamed over", "removed"):
                continue  # they are not empty
            yield Schedule(access, kind, depth, above, way)


SCHEDULES = list(schedules())


@dataclass
class Outcome:
    """What came of a schedule: whether a look noticed it, what woke up, what commands can do."""

    noticed: bool = False
    woke: bool = False
    exposed: bool = False


async def inside(root: Path) -> tuple[ShellSession, int]:
    """Open a shell that sees a directory and that nobody ends; return it, and its process."""
    before = set(descendants(os.getpid()))
    table = await anyio.to_thread.run_sync(layout, root)
    launch = replace(EXECUTION.launch_in(table, None, {}), kept=(), watched=())
    session = await open_session(launch, EXECUTION)
    for pid in reversed([one for one in descendants(os.getpid()) if one not in before]):
        guard = MountGuard(pid)
        guard.close()
        if guard.has([one.place for one in table.mounts]):
            return session, pid
    raise AssertionError("no process has the mounts")


@cache
def outcomes() -> dict[Schedule, Outcome]:
    need_bubblewrap()
    found = {one: Outcome() for one in SCHEDULES}

    async def all_of_them(root: Path) -> None:
        for one in SCHEDULES:
            one.make(one.path(root), "" if one.kind == "dir" else "old")
        session, pid = await inside(root)
        try:
            tries = "; ".join(f"{one.try_it()} && echo {at}" for at, one in enumerate(SCHEDULES))
            assert text_of(await session.run(tries, 60)) == ""
            for one, outcome in found.items():
                path = one.path(root)
                watched = [str(above) for above in (path, *path.parents) if above != root]
                guard, moves = MountGuard(pid), MoveWatch(watched[: one.depth + 2])
                assert guard.intact()
                one.happen(root)
                outcome.noticed = not guard.intact()
                ready = select.select(moves.fds, [], [guard.fd], 0)
                outcome.woke = bool(ready[0] or ready[2])
                guard.close()
                for fd in moves.fds:
                    os.close(fd)
            for at in text_of(await session.run(tries, 60)).split():
                found[SCHEDULES[int(at)]].exposed = True
        finally:
            await session.close()

    with TemporaryDirectory() as root:
        anyio.run(all_of_them, Path(root).resolve())
    return found


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda one: one.top)
def test_what_frees_a_guarded_path_is_noticed_at_once(schedule: Schedule) -> None:
    assert len(SCHEDULES) >= 100
    outcome = outcomes()[schedule]
    assert outcome.exposed  # or there was nothing to notice
    assert (outcome.noticed, outcome.woke) == (True, True)


HARMLESS = {
    "written in place": "echo x >it.hidden; echo x >it.read",
    "permissions changed": "chmod 600 it.hidden it.read; chmod 700 d",
    "another file renamed": "echo >a; mv a b; echo >a; mv a b; rm b",
    "another directory moved": "mkdir a; mv a b; rmdir b",
    "something made in a directory above": "echo >d/a; mkdir d/b; mv d/a d/b/a; rm -r d/b",
    "something made in a guarded directory": "echo >dir.read/a; mv dir.read/a dir.read/b",
    "linked": "ln it.hidden a; rm a",
}


@pytest.mark.anyio
async def test_what_leaves_guarded_paths_in_place_ends_nothing(tmp_path: Path) -> None:
    need_bubblewrap()
    for name in ("it.hidden", "it.read", "d/it.hidden", "dir.read/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("old")
    session, pid = await inside(tmp_path)
    try:
        guard = MountGuard(pid)
        for what, command in HARMLESS.items():
            await session.run(command, 60)  # the sandbox's own attempts free nothing either
            assert guard.intact(), what
            await anyio.run_process(["sh", "-c", command], cwd=tmp_path)
            assert guard.intact(), what
        for name in ("it.hidden", "it.read", "d", "d/it.hidden", "dir.read", "dir.read/x"):
            await session.run(
                f"mv {name} z; rm -rf {name}; echo >z; mv z {name}; ln -f z {name}", 9
            )
            assert guard.intact(), name
        guard.close()
    finally:
        await session.close()


# --- what follows ----------------------------------------------------------------------------

LOOKING = """\
import os, sys
path, access = sys.argv[1:]
print("up", flush=True)
while True:
    try:
        with open(path, "r" if access == "hidden" else "r+") as file:
            os.write(1, file.read().encode())
    except OSError:
        pass
"""


def prepared(root: Path, schedule: Schedule) -> str:
    """Make what a schedule needs; return a command that looks at the path without a pause."""
    schedule.make(schedule.path(root), "old")
    (root / "look.py").write_text(LOOKING)
    return f"python3 look.py {schedule.path(Path('/workspace'))} {schedule.access}"


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def opened(root: Path) -> ShellSession:
    table = await anyio.to_thread.run_sync(layout, root)
    return await open_session(EXECUTION.launch_in(table, None, {}), EXECUTION)


FILES = [one for one in SCHEDULES if one.kind == "file" and one.depth == 2 and one.above < 2]


@pytest.mark.anyio
@pytest.mark.parametrize("schedule", FILES[::2], ids=lambda one: one.top)
async def test_a_job_is_stopped_and_says_nothing_of_what_it_saw(
    schedule: Schedule, tmp_path: Path
) -> None:
    need_bubblewrap()
    root = tmp_path / "project"
    command = prepared(root, schedule)
    pool = JobPool(tmp_path / "jobs", JobLimits())
    job = await pool.start(await opened(root), "t", "", command)
    await until(lambda: job.path.exists() and job.path.read_bytes() != b"")
    schedule.happen(root)
    assert await job.wait(60)
    assert job.result is not None
    assert job.result.passed == GUARD_LOST
    assert "replaced or moved" in job.ending
    assert job.path.read_text() == "up\n"


@pytest.mark.anyio
async def test_a_session_ends_with_what_it_left_running_and_the_next_one_is_guarded(
    tmp_path: Path,
) -> None:
    need_bubblewrap()
    root = tmp_path / "project"
    schedule = Schedule("hidden", "file", 1, 0, "renamed over")
    command = prepared(root, schedule)
    session = await opened(root)
    result = await session.run(f"{command} >log & until [ -s log ]; do sleep 0.01; done", 60)
    assert result.succeeded
    assert session.alive
    schedule.happen(root)
    await until(lambda: not session.alive)
    await session.close()
    again = await opened(root)
    told = text_of(await again.run(f"{schedule.try_it()} && echo seen; echo end", 60))
    await again.close()
    assert told == "end\n"


@pytest.mark.anyio
async def test_a_command_that_runs_is_stopped_and_says_so(tmp_path: Path) -> None:
    need_bubblewrap()
    schedule = Schedule("hidden", "dir", 1, 1, "moved away")
    schedule.make(schedule.path(tmp_path), "")
    session = await opened(tmp_path)
    async with anyio.create_task_group() as group:

        async def happen() -> None:
            await until((tmp_path / "up").exists)
            schedule.happen(tmp_path)

        group.start_soon(happen)
        look = f"cat {shlex.quote(str(schedule.path(Path('/workspace'))))}/in"
        result = await session.run(f"echo before; >up; until {look}; do :; done 2>/dev/null", 60)
    assert (result.passed, result.ending) == (GUARD_LOST, "ended")
    assert SECRET not in text_of(result)


@pytest.mark.anyio
async def test_a_path_that_is_replaced_while_a_shell_starts_starts_none(tmp_path: Path) -> None:
    need_bubblewrap()
    schedule = Schedule("hidden", "file", 1, 0, "renamed over")
    schedule.make(schedule.path(tmp_path), "old")
    table = await anyio.to_thread.run_sync(layout, tmp_path)
    launch = EXECUTION.launch_in(table, None, {})
    with pytest.raises(ShellError, match="was not run"):
        await open_session(replace(launch, kept=[*launch.kept, "/workspace/other"]), EXECUTION)
    session = await open_session(launch, EXECUTION)
    assert (await session.run("true", 60)).succeeded
    await session.close()
