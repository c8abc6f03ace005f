"""Threads are found by words, status, agent and date; what needs a person comes first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from deep_agent_mcp.server.auth.caller import ALL_SCOPES, Caller
from deep_agent_mcp.server.studio import Studio, catalogue
from tests.studio.looking import calling_as, looking, script

pytestmark = pytest.mark.anyio

WRITE = {"name": "write_file", "args": {"path": "/x.txt", "content": "x"}}
RUNS = script(
    poem=[{"text": "Roses are red."}],
    prose=[{"text": "It was a dark night."}],
    ask=[{"text": "A lily it is.", "tool_calls": [WRITE]}, {"text": "Written."}],
)


def titles(page: dict[str, Any]) -> list[str]:
    return [one["title"] for one in page["threads"]]


async def test_words_of_goals_answers_and_ids_find_threads_and_waiting_ones_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with looking(tmp_path, RUNS, approve=("write_file",)) as server:
        asks = await server.call("task", goal="ask me")
        poem = await server.call("task", goal="a poem")
        await server.call("task", goal="some prose")
        page = await server.read("threads://search")
        assert titles(page) == ["ask me", "some prose", "a poem"]
        assert page["counts"] == {"needs_approval": 1, "done": 2}
        assert page["threads"][0]["open_questions"] == 1
        assert titles(await server.read("threads://search?q=RED%20roses")) == ["a poem"]
        assert titles(await server.read(f"threads://search?q={poem['thread_id']}")) == ["a poem"]
        by_step = await server.read("threads://search?q=lily%20ask")  # said on the way
        assert titles(by_step) == ["ask me"]
        assert "lily" in by_step["threads"][0]["match"]
        assert titles(await server.read("threads://search?status=waiting")) == ["ask me"]
        assert titles(await server.read("threads://search?status=done&sort=created")) == [
            "some prose", "a poem"
        ]  # fmt: skip
        assert titles(await server.read("threads://search?agent=nobody")) == []
        assert titles(await server.read("threads://search?until=2020-01-01")) == []
        assert len((await server.read("threads://search?since=1h"))["threads"]) == 3
        first = await server.read("threads://search?limit=2")
        assert (first["total"], first["next"]) == (3, "2")
        assert titles(await server.read("threads://search?limit=2&after=2")) == ["a poem"]
        # What has happened since is taken in.
        await server.call("reply", run_id=asks["run_id"], decision="reject")
        await server.call("task", goal="a poem", thread_id=poem["thread_id"])
        page = await server.read("threads://search")
        assert titles(page)[0] == "a poem"
        assert page["threads"][0]["runs"] == 2
        assert page["counts"] == {"done": 3}
        await server.app.journal.delete_thread(poem["thread_id"])
        monkeypatch.setattr(catalogue, "LOOK_SECONDS", 0.0)  # it is looked at every 2 s
        assert "a poem" not in titles(await server.read("threads://search"))
        with pytest.raises(MCPError, match="sort='age' cannot be used"):
            await server.read("threads://search?sort=age")
        for query in ("since=999999w", f"limit={'9' * 5_000}"):
            with pytest.raises(MCPError, match="cannot be used; give"):
                await server.read(f"threads://search?{query}")


async def test_nobody_finds_or_reads_threads_of_others(tmp_path: Path):
    async with looking(tmp_path, RUNS, approve=("write_file",)) as server:
        run = await server.call("task", goal="ask me")
        studio = Studio(server.app.services)
        uris = [
            f"thread://{run['thread_id']}/overview",
            f"run://{run['run_id']}/questions",
        ]
        for uri in uris:
            assert await studio.read(uri) is not None
        async with calling_as(Caller("eve", ALL_SCOPES - {"admin"})):
            for uri in ("inbox://questions", "threads://search"):
                found = await studio.read(uri)
                assert found is not None
                assert '"total":0' in found.contents[0].text  # type: ignore[union-attr]
            for uri in uris:
                with pytest.raises(Exception, match="There is no"):
                    await studio.read(uri)
