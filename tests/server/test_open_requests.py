"""What clients are asked ends with the server, with its time, and with whoever takes it back."""

from __future__ import annotations

import anyio
import pytest

from deep_agent_mcp.server.sampling.client_model import OpenRequests

pytestmark = pytest.mark.anyio


async def test_a_server_that_ends_takes_back_what_is_open_and_asks_nothing_more() -> None:
    requests = OpenRequests()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:

            async def ask(started: anyio.Event) -> None:
                with requests.asking(600):
                    started.set()
                    await anyio.sleep_forever()

            for _ in range(3):
                started = anyio.Event()
                group.start_soon(ask, started)
                await started.wait()
            requests.close()
        await ask(anyio.Event())


async def test_a_client_has_so_much_time_and_no_more() -> None:
    requests = OpenRequests()
    with anyio.fail_after(60):
        with requests.asking(0.01):
            await anyio.sleep_forever()
        with requests.asking(600) as scope:
            scope.cancel()
            await anyio.sleep_forever()
        with pytest.raises(ZeroDivisionError), requests.asking(600):
            raise ZeroDivisionError
