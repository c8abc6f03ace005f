"""A client that was away reads what a run has done meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from click.testing import CliRunner, Result
from mcp.shared.exceptions import MCPError

from deep_agent_mcp.server.cli.main import cli
from tests.e2e.servers import Setup, call, connected, text_of

pytestmark = pytest.mark.anyio

WRITE = {"name": "write_file", "args": {"path": "/note.txt", "content": "x" * 9_000}}


def script(first: Any, *others: Any) -> dict[str, Any]:
    turns = [first, *others]
    return {"name": "events", "runs": [{"match": "work", "agents": {"main": turns}}]}


async def cli_events(setup: Setup, *args: str) -> Result:
    command = ["threads", "--state-dir", str(setup.state), "events", *args]
    return await anyio.to_thread.run_sync(lambda: CliRunner().invoke(cli, command))


async def test_another_client_of_the_next_server_reads_what_was_missed_page_by_page(tmp_path: Path):
    setup = Setup(tmp_path, script=script({"tool_calls": [WRITE]}, {"text": "Done."}))
    with anyio.fail_after(60):
        with setup.serving() as server:
            async with connected(server.target("http"), "auto") as client:
                done = await call(client, "task", goal="work")
                run_id = done["run_id"]
        with setup.serving() as server:
            async with connected(server.target("sse"), "legacy") as client:
                result = await client.call_tool("wait", {"run_id": run_id, "events_after": 0})
                data: dict[str, Any] = result.structured_content or {}
                assert [one["event"] for one in data["events"]] == [
                    "model_start", "model_end", "tool_start", "tool_end", "model_start", "model_end"
                ]  # fmt: skip
                assert data["events_next"] == 6
                assert data["events_more"] is False
                assert data["events_missing"] == 0
                text = text_of(result)
                assert "write_file" in text
                assert "tool_end" in text
                assert len(text) < 9_500
                later = await call(client, "wait", run_id=run_id, events_after=4)
                assert [one["seq"] for one in later["events"]] == [5, 6]
                none = await client.call_tool("wait", {"run_id": run_id, "events_after": 6})
                assert "none after 6" in text_of(none)
                (content,) = (await client.read_resource(f"run://{run_id}/events?after=5")).contents
                read = json.loads(content.text)  # type: ignore[union-attr]
                assert (read["run_id"], read["status"]) == (run_id, "done")
                assert [one["seq"] for one in read["events"]] == [6]
                with pytest.raises(MCPError, match="no run 'run_x'"):
                    await client.read_resource("run://run_x/events")
                templates = (await client.list_resource_templates()).resource_templates
                assert "run://{run_id}/events{?after}" in [one.uri_template for one in templates]
    shown = await cli_events(setup, run_id, "--after", "3")
    assert shown.stdout.splitlines()[0] == f"Run {run_id}: done"
    assert shown.stdout.splitlines()[2].startswith("4. ") and " main / " in shown.stdout
    listed = await cli_events(setup, run_id, "--json")
    assert [one["seq"] for one in json.loads(listed.stdout)["events"]] == [1, 2, 3, 4, 5, 6]
    refused = await cli_events(setup, run_id[:-1])
    assert refused.exit_code == 1
    assert run_id in refused.output


async def test_an_answer_with_many_events_stays_small_and_says_how_to_go_on(tmp_path: Path):
    turns = [
        {"tool_calls": [{"name": "glob", "args": {"pattern": f"{turn}{n}*"}} for n in "abc"]}
        for turn in range(12)
    ]
    setup = Setup(tmp_path, script=script(*turns, {"text": "word " * 2_000}))
    with anyio.fail_after(60), setup.serving() as server:
        async with connected(server.target("http"), "auto") as client:
            run_id = (await call(client, "task", goal="work"))["run_id"]
            seen: list[int] = []
            more = True
            while more:
                after = seen[-1] if seen else 0
                result = await client.call_tool("wait", {"run_id": run_id, "events_after": after})
                data: dict[str, Any] = result.structured_content or {}
                assert len(json.dumps(data)) < 9_500
                assert len(text_of(result)) < 9_500
                assert "truncated" not in data
                assert "answer_offset=3000" in data["next"]
                seen += [one["seq"] for one in data["events"]]
                more = data["events_more"]
            assert seen == list(range(1, 12 * 8 + 2 + 1))
