"""A run that needs the model of its client goes to the replica that the client talks to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from tests.databases import made_database
from tests.e2e.client_model import ClientModel, calls, says
from tests.e2e.servers import HttpServer, call, connected
from tests.replicas.machines import Machine, balanced
from tests.replicas.servers import journal_url, waited

pytestmark = pytest.mark.anyio

LOOK = ("ls", {"path": "/"})
STORY = {"look twice": [calls(LOOK), calls(LOOK), says("Seen twice.")]}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[HttpServer]]:
    """Two replicas without a model or a key."""
    files = tmp_path_factory.mktemp("files")
    places = [tmp_path_factory.mktemp(name) for name in ("a", "b")]
    with contextmanager(made_database)() as database:
        env = {"DEEP_AGENT_JOURNAL": journal_url(database)}
        a, b = (Machine(one, ("--replicas", "--shared-root"), env, files=files) for one in places)
        with a.serving() as at_a, b.serving() as at_b:
            yield [at_a, at_b]


async def test_a_run_follows_its_client_to_another_replica(servers: list[HttpServer]) -> None:
    model = ClientModel(STORY)
    at_a, at_b = (one.listening["url"] for one in servers)
    with anyio.fail_after(30):  # a run without a client is paused after a minute
        async with connected(at_a, "legacy", **model.options) as client:
            begun = await call(client, "task", goal="look twice", wait_seconds=0)
        async with connected(at_b, "legacy", **model.options) as client:
            done = await waited(client, begun["run_id"])
    assert (done["status"], done["answer"]) == ("done", "Seen twice.")
    assert len(model.asked) == 3


async def test_answers_of_a_client_count_on_whichever_replica_gets_them(
    servers: list[HttpServer], tmp_path: Path
) -> None:
    model = ClientModel(STORY)
    with balanced(tmp_path, servers) as url, anyio.fail_after(40):
        async with connected(url, "auto", **model.options) as client:
            done = await call(client, "task", goal="look twice", thread_id="new")
            if done["status"] == "running":
                done = await waited(client, done["run_id"])
    assert (done["status"], done["answer"]) == ("done", "Seen twice.")
    assert len(model.asked) == 3
