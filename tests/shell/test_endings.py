"""Nothing that a shell started outlives its session, however that ends."""

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import anyio
import anyio.to_thread
import pytest

from deep_agent_mcp.harness.shell import supervisor
from deep_agent_mcp.harness.shell.policies import ExecutionPolicy, HostExecutionPolicy
from deep_agent_mcp.harness.shell.session import ShellError, ShellSession, open_session
from tests.ports_and_waits import growing
from tests.shell.support import Witness, opened, other_process, policy_of, text_of

pytestmark = pytest.mark.anyio


async def test_closing_ends_what_commands_left_running(
    policy: ExecutionPolicy, tmp_path: Path, witness: Callable[[], Witness]
) -> None:
    plain, leaver, orphan = witness(), witness(), witness()
    async with opened(policy, tmp_path) as session:
        await session.run(plain.held(), 60)
        await session.run(leaver.held("setsid"), 60)
        await session.run(f"(({orphan.held('setsid')}) &)", 60)  # its parents are gone
        for one in (plain, leaver, orphan):
            await one.started()
    assert all(one.is_gone() for one in (plain, leaver, orphan))


async def test_what_a_shell_leaves_behind_ends_with_it(
    policy: ExecutionPolicy, tmp_path: Path, witness: Callable[[], Witness]
) -> None:
    one = witness()
    async with opened(policy, tmp_path) as session:
        await session.run(one.held("setsid"), 60)
        await one.started()
        assert (await session.run("exit", 60)).ending == "ended"
        assert one.is_gone()


async def test_a_cancelled_call_ends_the_session_before_it_returns(
    policy: ExecutionPolicy, tmp_path: Path, witness: Callable[[], Witness]
) -> None:
    one = witness()
    async with opened(policy, tmp_path) as session:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(session.run, f"{one.held('setsid')} sleep 1000", 1000.0)
                await one.started()
                group.cancel_scope.cancel()
        assert one.is_gone()
        assert not session.alive


@pytest.mark.parametrize("name", ["host", "bubblewrap"])
async def test_nothing_survives_a_crash_of_the_process_that_owns_the_session(
    name: str, tmp_path: Path, witness: Callable[[], Witness]
) -> None:
    policy_of(name)
    plain, leaver, shell = witness(), witness(), witness()
    script = f"""
        import anyio
        from pathlib import Path
        from tests.shell.support import opened, policy_of

        async def main():
            async with opened(policy_of({name!r}), Path({str(tmp_path)!r})) as session:
                await session.run({plain.held()!r}, 60)
                await session.run({leaver.held("setsid")!r}, 60)
                await session.run({f"exec sh -c 'echo up; exec sleep 1000' >{shell.path}"!r}, 1000)

        anyio.run(main)
    """
    with other_process("-c", dedent(script)) as child:
        for one in (plain, leaver, shell):
            await one.started()
        child.kill()
        for one in (plain, leaver, shell):
            await one.gone()


async def test_a_session_that_nobody_uses_ends_by_itself(
    tmp_path: Path, witness: Callable[[], Witness]
) -> None:
    one = witness()
    async with opened(HostExecutionPolicy(idle_timeout=0.2), tmp_path) as session:
        assert (await session.run(one.held(), 60)).ending == "done"
        await one.started()
        await one.gone()


async def test_so_does_one_in_which_nothing_was_ever_run(tmp_path: Path) -> None:
    async with opened(HostExecutionPolicy(idle_timeout=0.2), tmp_path) as session:
        with anyio.fail_after(30):
            await session._process.wait()
        assert not session.alive


async def test_a_command_that_kills_its_supervisor_ends_the_session(
    tmp_path: Path, witness: Callable[[], Witness]
) -> None:
    one = witness()
    async with opened(HostExecutionPolicy(), tmp_path) as session:
        await session.run(one.held(), 60)
        await one.started()
        result = await session.run("kill -9 $PPID; sleep 1000", 60)
        assert (result.ending, result.exit_code) == ("ended", 137)
        assert not session.alive
        await one.gone()


async def test_a_shell_whose_supervisor_dies_alone_is_killed(
    witness: Callable[[], Witness],
) -> None:
    one = witness()
    ours, theirs = socket.socketpair()
    options = {
        "argv": ["sh", "-c", f"echo up >{one.path}; exec sleep 1000 >{one.path}"],
        "inputs": {},
        "own_keyring": False,
        "lease": 100,
        "grace": 1,
        "limits": {},
        "cleanup": [],
        "most_processes": 0,
        "most_memory": 0,
        "watched": [],
    }
    told = json.dumps(options).encode()
    ours.sendall(len(told).to_bytes(8, "big") + told)
    arguments = [supervisor.__file__, str(theirs.fileno())]
    with ours, theirs, other_process(*arguments, pass_fds=(theirs.fileno(),)) as child:
        await one.started()
        child.kill()
        await one.gone()


async def test_signals_to_the_whole_group_do_not_reach_the_supervisor(
    tmp_path: Path, witness: Callable[[], Witness]
) -> None:
    one = witness()
    async with opened(HostExecutionPolicy(), tmp_path) as session:
        await session.run(one.held("setsid"), 60)
        await one.started()
        result = await session.run("kill -TERM $PPID; echo there; kill -9 0", 60)
        assert (result.ending, result.exit_code) == ("ended", 137)
        assert text_of(result) == "there\n"
        assert one.is_gone()


async def test_a_session_can_be_used_from_another_event_loop(tmp_path: Path) -> None:
    async def first() -> ShellSession:
        policy = HostExecutionPolicy()
        session = await open_session(policy.launch(None, tmp_path, {}), policy.limits)
        await session.run("X=kept", 60)
        return session

    async def second(session: ShellSession) -> str:
        try:
            return text_of(await session.run("echo $X", 60))
        finally:
            await session.close()

    session = await anyio.to_thread.run_sync(anyio.run, first)
    assert await anyio.to_thread.run_sync(anyio.run, second, session) == "kept\n"


async def test_shutdown_commands_run_last_and_are_bounded(tmp_path: Path) -> None:
    for seconds in growing(0.5):  # within which the shell has to start, too
        with suppress(ShellError):
            async with opened(HostExecutionPolicy(startup_timeout=seconds), tmp_path) as session:
                await session.run("X=done", 60)
                with anyio.fail_after(60 + seconds):
                    await session.close(["echo $X >last", "sleep 1000", "echo never >never"])
        if (tmp_path / "last").exists():
            break
    assert (tmp_path / "last").read_text() == "done\n"
    assert not (tmp_path / "never").exists()
