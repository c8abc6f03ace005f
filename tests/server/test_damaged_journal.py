"""A journal that is damaged under a server: clients are told what is wrong and what to do."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from mcp import Client, MCPError

from deep_agent_mcp.harness.errors import CheckpointError, JournalAway
from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.settings.sources import load_settings
from tests.e2e.servers import call, refused, text_of

pytestmark = pytest.mark.anyio

SCRIPT = {
    "runs": [
        {"match": "fail", "agents": {"main": [{"error": {"kind": "auth", "message": "No key."}}]}},
        {"match": "write", "agents": {"main": [{"text": "Written."}]}},
    ]
}


def settings(place: Path) -> Any:
    script = place / "script.yaml"
    script.write_text(yaml.safe_dump(SCRIPT), encoding="utf-8")
    given: dict[str, Any] = {"state_dir": str(place / "state"), "model": f"scripted:{script}"}
    return load_settings(given, {})


def spoil(place: Path, statement: str) -> None:
    conn = sqlite3.connect(place / "state" / "journal.sqlite3")
    with conn:
        conn.execute(statement)
    conn.close()


async def test_resources_of_a_damaged_thread_say_what_is_wrong(tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with create_app(settings(tmp_path)) as app, Client(app.server) as client:
            thread_id = (await call(client, "task", goal="write"))["thread_id"]
        spoil(tmp_path, "UPDATE checkpoints SET body = x'00'")
        spoil(tmp_path, "UPDATE pages SET body = x'00'")
        async with create_app(settings(tmp_path)) as app, Client(app.server) as client:
            for part in ("todos", "files", "transcript"):
                with pytest.raises(MCPError, match="journal salvage NEWFILE"):
                    await client.read_resource(f"thread://{thread_id}/{part}")
            assert "journal salvage NEWFILE" in await refused(client, "ls", thread_id=thread_id)


async def test_a_run_whose_usage_is_damaged_is_shown_and_does_not_go_on(tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with create_app(settings(tmp_path)) as app, Client(app.server) as client:
            failed = await client.call_tool("task", {"goal": "fail"})
            assert failed.structured_content is not None
            run_id = failed.structured_content["run_id"]
            assert failed.structured_content["status"] == "failed"
        spoil(tmp_path, "UPDATE runs SET used = '{\"model_calls\"- 1}'")
        async with create_app(settings(tmp_path)) as app, Client(app.server) as client:
            shown = await client.call_tool("wait", {"run_id": run_id})
            assert "No key." in text_of(shown) and "The journal is damaged" in text_of(shown)
            text = await refused(client, "reply", run_id=run_id)
            assert "The journal is damaged" in text and "journal check" in text


async def test_a_text_that_is_none_is_damage_and_not_a_journal_that_is_away(tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with create_app(settings(tmp_path)) as app, Client(app.server) as client:
            await call(client, "task", goal="write")
        spoil(tmp_path, "UPDATE runs SET goal = CAST(x'ff' AS TEXT)")
        with pytest.raises(CheckpointError, match="journal salvage NEWFILE") as refused:
            async with create_app(settings(tmp_path)):
                pass
        assert not isinstance(refused.value, JournalAway)
