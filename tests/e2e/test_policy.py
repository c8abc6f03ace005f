"""A policy file guards what clients drive and what they delegate, and may be edited meanwhile."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import MCPError

from tests.e2e.conftest import WRITE
from tests.e2e.servers import HttpServer, Setup, call, connected, refused

pytestmark = pytest.mark.anyio

DENY = '[[rule]]\naction = "deny"\ntool = "write_file"\npath = "/note*"\nreason = "no notes"\n'
HIDE = '[[rule]]\naction = "deny"\npath = "/hidden/**"\n'
SCRIPT = {
    "name": "policy",
    "runs": [
        {
            "match": "write a note",
            "agents": {"main": [{"tool_calls": [WRITE]}, {"text": "I tried."}]},
        }
    ],
}


def health(server: HttpServer) -> dict[str, Any]:
    url = server.listening["url"].replace("/mcp", "/healthz")
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


async def until(condition: Any) -> None:
    while not await condition():  # noqa: ASYNC110 - another process is waited for
        await anyio.sleep(0.02)


async def test_a_policy_holds_for_driven_and_delegated_calls_and_is_reloaded(
    tmp_path: Path,
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(DENY + HIDE)
    setup = Setup(tmp_path, flags=["--policy", str(rules)], script=SCRIPT)
    with anyio.fail_after(60), setup.serving() as server:
        async with connected(server.target("http"), "auto") as client:
            text = await refused(client, "write_file", path="/note.txt", content="x")
            assert "rule 1 of rules.toml: no notes" in text
            done = await call(client, "task", goal="write a note")
            assert done["status"] == "done"
            assert not (setup.root / "note.txt").exists()

            (setup.root / "hidden").mkdir()
            (setup.root / "hidden" / "a.txt").write_text("x")
            files = f"thread://{done['thread_id']}/files"
            listed = await client.read_resource(files)
            assert "hidden" not in str(listed.contents)
            with pytest.raises(MCPError, match="The policy guards it"):
                await client.read_resource(f"{files}/hidden/a.txt")

            rules.write_text("[[rule]]\naction = 5\n")

            async def broken() -> bool:
                return health(server).get("broken_policy") == ["rules.toml"]

            await until(broken)
            await refused(client, "write_file", path="/note.txt", content="x")

            rules.write_text("# no rules\n")

            async def mended() -> bool:
                return "broken_policy" not in health(server)

            await until(mended)
            await call(client, "write_file", path="/note.txt", content="x")
            assert "a.txt" in str((await client.read_resource(f"{files}/hidden/a.txt")).contents)
    log = (tmp_path / "stderr.txt").read_text()
    assert "rules.toml:2: action = 5 is not one of" in log
    assert "Its last good rules stay in use" in log
    assert "the policy has changed" in log
