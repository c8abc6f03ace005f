"""Background tasks on replicas: parent and child may be apart, and either server may be killed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest
import yaml
from mcp import Client

from benchmarks.replica_trio import Fleet, Replica, replicas
from tests.databases import Database, made_database
from tests.e2e.servers import call
from tests.replicas.servers import NAMES, clients, journal_url, start, until, waited

pytestmark = [pytest.mark.anyio, pytest.mark.exhaustive(cases=1)]


def calling(name: str, **args: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "args": args}]}


def starting(agent: str) -> dict[str, Any]:
    return calling("start_task", description="Do it.", subagent_type=agent)


def digging(side: str) -> list[dict[str, Any]]:
    """Return the turns of a child whose command lasts until there is a file `go`."""
    command = f"echo {side} >> begun; until [ -e go ]; do sleep 0.05; done"
    return [calling("execute", command=command), {"text": f"The {side} side is dug."}]


TOLD = {"check_tasks": ["The left side is dug.", "The right side is dug."]}
CHECK = calling("check_tasks", wait_seconds=60)
SCRIPT = {
    "agents": {
        "left": digging("left"),
        "right": digging("right"),
        "asker": [calling("write_todos", todos=[]), {"text": "It was allowed."}],
    },
    "runs": [
        {
            "match": "dig",
            "agents": {
                "main": [
                    *(starting("left"), starting("right"), CHECK),
                    {"expect": {"results": TOLD}, "text": "Both sides are dug."},
                ]
            },
        },
        {"match": "ask", "agents": {"main": [starting("asker"), {"text": "Begun."}]}},
    ],
}


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


@pytest.fixture(scope="module", params=["dbos", "local"])
def fleet(
    request: pytest.FixtureRequest, database: Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    place = tmp_path_factory.mktemp("fleet")
    for folder in ("root", "agents"):
        (place / folder).mkdir()
    for name in SCRIPT["agents"]:
        text = f"---\nname: {name}\ndescription: Works.\n---\n\nWork.\n"
        (place / "agents" / f"{name}.md").write_text(text, encoding="utf-8")
    (place / "script.yaml").write_text(yaml.safe_dump(SCRIPT), encoding="utf-8")
    flags = (
        *("--engine", request.param, "--workers", "1", "--drain-seconds", "0"),
        *("--background-subagents", "--approve", "write_todos"),
        *("--root", str(place / "root"), "--shared-root", "--execute", "host"),
        *("--model", f"scripted:{place / 'script.yaml'}", "--agents", str(place / "agents")),
    )
    with replicas(place, journal_url(database), NAMES, start=start, flags=flags, agent="") as fleet:
        yield fleet
        (place / "root" / "go").touch()  # commands of killed servers end, too


async def children_of(client: Client, run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the newest run of each task of a run's thread."""
    threads = (await call(client, "threads"))["threads"]
    begin = f"{run['thread_id']}.task-"
    return [one["last_run"] for one in threads if one["thread_id"].startswith(begin)]


def carriers(fleet: Fleet, run_ids: Sequence[str]) -> list[Replica]:
    """Return the replicas that runs are on."""
    schema = fleet.url.rpartition("=")[2]
    with psycopg.connect(fleet.url.partition("?")[0]) as conn:
        ids = f'SELECT id FROM "{schema}_replicas".replicas ORDER BY started_at'
        names = dict(zip((one for (one,) in conn.execute(ids.encode())), fleet.all, strict=True))
        found: list[Replica] = []
        for run_id in run_ids:
            owner = f'SELECT owner FROM "{schema}_journal".runs WHERE id = %s'
            row = conn.execute(owner.encode(), (run_id.encode(),)).fetchone()
            assert row is not None
            found.append(fleet.all[names[bytes(row[0]).decode()]])
        return found


async def test_a_task_is_answered_anywhere_and_cancelled_with_its_caller(fleet: Fleet) -> None:
    async with clients(*fleet.all.values()) as (a, b, c):
        parent = await call(a, "task", goal="ask")
        (child,) = await children_of(b, parent)
        assert (await waited(b, child["run_id"]))["status"] == "needs_approval"
        allowed = await call(c, "reply", run_id=child["run_id"], decision="approve")
        assert (await waited(a, child["run_id"]))["answer"] == "It was allowed.", allowed

        parent = await call(a, "task", goal="dig", wait_seconds=0)
        await until(lambda: len(begun(fleet)) == 2)
        await call(c, "cancel", run_id=parent["run_id"])
        ended = [(await waited(a, one["run_id"])) for one in await children_of(b, parent)]
        assert [one["status"] for one in ended] == ["cancelled"] * 2
        (fleet.place / "root" / "begun").unlink()


def begun(fleet: Fleet) -> list[str]:
    file = fleet.place / "root" / "begun"
    return file.read_text().split() if file.exists() else []


async def test_the_servers_of_a_task_and_of_its_caller_may_be_killed(fleet: Fleet) -> None:
    async with clients(fleet.all["a"]) as (a,):
        parent = await call(a, "task", goal="dig", wait_seconds=0)
        await until(lambda: len(begun(fleet)) == 2)
        children = [one["run_id"] for one in await children_of(a, parent)]
    (above, *below) = carriers(fleet, [parent["run_id"], *children])
    # With one place for tasks on each, two of them are never all where their caller is.
    apart = next((one for one in below if one is not above), above)
    apart.kill()
    living = [one for one in fleet.all.values() if one not in (apart, above)]
    async with clients(*living) as (client, *_):
        moved = children[below.index(apart)]
        assert (await waited(client, moved))["status"] == "done"
        if above is not apart:
            above.kill()
        (fleet.place / "root" / "go").touch()
        done = await waited(client, parent["run_id"])
        assert (done["status"], done["answer"]) == ("done", "Both sides are dug.")
        for child in children:
            assert (await waited(client, child))["status"] == "done"
        assert sorted(begun(fleet)) == ["left", "right"]
        page = await call(client, "wait", run_id=parent["run_id"], events_after=0)
        names = [one.get("name") for one in page["events"] if one.get("event") == "tool_end"]
        assert names.count("check_tasks") == 1
