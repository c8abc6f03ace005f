from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import anyio
import pytest

from deep_agent_mcp.harness.shell import pool as pool_module
from deep_agent_mcp.harness.shell.policies import HostExecutionPolicy
from deep_agent_mcp.harness.shell.pool import Seat, SessionPool
from deep_agent_mcp.harness.shell.session import ShellError, ShellSession, open_session
from tests.shell.support import Witness, text_of

pytestmark = pytest.mark.anyio

POLICY = HostExecutionPolicy()


async def _open(seat: Seat) -> ShellSession:
    return await open_session(POLICY.launch(None, await seat.workspace(), {}), POLICY.limits)


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncGenerator[SessionPool]:
    pool = SessionPool(_open, tmp_path, ())
    yield pool
    await pool.aclose()


async def run(pool: SessionPool, key: tuple[str, str], command: str) -> tuple[str, bool]:
    """Return what a command wrote, and whether its shell was new."""
    async with pool.turn(key) as (seat, fresh):
        assert seat.session is not None
        return text_of(await seat.session.run(command, 60)), fresh


async def test_turns_are_in_the_order_of_the_calls(pool: SessionPool) -> None:
    async def one(number: int) -> None:
        await run(pool, ("r", ""), f"echo {number} >>log")

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(one, number)
    assert (await run(pool, ("r", ""), "cat log"))[0].split() == list("012345")


async def test_too_many_idle_sessions_are_ended_oldest_first(
    pool: SessionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_MOST_SEATS", 2)
    for name in "abc":
        await run(pool, (name, ""), f"X={name}")
    assert await run(pool, ("b", ""), "echo $X") == ("b\n", False)
    assert await run(pool, ("a", ""), "echo $X") == ("\n", True)


async def test_sessions_of_subagents_end_with_their_run_and_no_others(pool: SessionPool) -> None:
    keys = [("r", ""), ("r", "task:a@1"), ("r", "task:a@1/task:b@2"), ("s", "task:a@1")]
    for key in keys:
        await run(pool, key, "true")
    await pool.close(("r", "task:a@1"))
    assert [(await run(pool, key, "true"))[1] for key in keys] == [False, True, True, False]
    await pool.close(("r", ""))
    assert [(await run(pool, key, "true"))[1] for key in keys] == [True, True, True, False]


async def test_a_call_that_waited_while_the_session_was_closed_gets_one_that_can_be_closed(
    pool: SessionPool, witness: Callable[[], Witness]
) -> None:
    first, second, key = witness(), witness(), ("r", "")
    async with anyio.create_task_group() as group:
        group.start_soon(run, pool, key, f"{first.held()} sleep 1000")
        await first.started()
        group.start_soon(run, pool, key, second.held())
        await anyio.wait_all_tasks_blocked()
        await pool.close(key, orderly=False)
        await second.started()
    assert first.is_gone()
    assert not second.is_gone()
    await pool.close(key)
    assert second.is_gone()


async def test_a_session_that_cannot_be_opened_leaves_the_place_free(tmp_path: Path) -> None:
    shells = iter([["/nowhere"], None])

    async def open_one(seat: Seat) -> ShellSession:
        workspace = await seat.workspace()
        return await open_session(POLICY.launch(next(shells), workspace, {}), POLICY.limits)

    pool = SessionPool(open_one, tmp_path, ())
    with pytest.raises(ShellError):
        await run(pool, ("r", ""), "true")
    assert await run(pool, ("r", ""), "echo ok") == ("ok\n", True)
    await pool.aclose()


async def test_a_session_that_has_ended_leaves_nothing_once_another_is_opened() -> None:
    pool = SessionPool(_open, None, ())
    async with pool.turn(("a", "")) as (seat, _):
        assert seat.session is not None
        place = await seat.workspace()
        await seat.session.run("exit", 60)
    assert place.exists()
    async with pool.turn(("b", "")):
        assert not place.exists()
    await pool.aclose()
