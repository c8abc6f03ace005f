"""Making a client, which may import an SDK, holds up nobody else."""

import gc

import pytest

from deep_agent_mcp.harness.models.wire import LoopClients

pytestmark = pytest.mark.anyio


class Model:
    """Something that has a client."""


@pytest.fixture(autouse=True)
def _collections_are_on():
    gc.enable()


async def test_no_garbage_is_collected_while_a_client_is_made_and_it_is_afterwards():
    seen = []
    clients = LoopClients("tests")
    assert await clients.get(Model(), "key", lambda: seen.append(gc.isenabled()) or "client")
    assert seen == [False]
    assert gc.isenabled()


async def test_garbage_is_collected_again_when_a_client_cannot_be_made():
    def fail():
        raise OSError("no such server")

    with pytest.raises(OSError):
        await LoopClients("tests").get(Model(), "key", fail)
    assert gc.isenabled()


async def test_who_has_turned_collections_off_keeps_them_off():
    gc.disable()
    try:
        await LoopClients("tests").get(Model(), "key", lambda: "client")
        assert not gc.isenabled()
    finally:
        gc.enable()
