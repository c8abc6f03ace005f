"""The first call of a server: what takes long is done away from the event loop."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.settings import launch_rules
from deep_agent_mcp.server.settings.sources import load_settings
from tests.e2e.servers import call, refused

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("tool", ["write_todos", "task"])
async def test_rules_are_compiled_in_another_thread_at_the_first_call_and_hold(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[threading.Thread] = []
    globs = launch_rules._launch_globs

    def watched(*given: Any) -> Any:
        compiled.append(threading.current_thread())
        return globs(*given)

    monkeypatch.setattr(launch_rules, "_launch_globs", watched)
    (tmp_path / "root").mkdir()
    script = tmp_path / "script.yaml"
    script.write_text("agents: {'*': [{tool_calls: [{name: ls, args: {path: /}}]}, {text: Done.}]}")
    given = {"root": str(tmp_path / "root"), "state_dir": str(tmp_path / "state")}
    settings = load_settings({**given, "model": f"scripted:{script}", "protect": "deny"}, {})
    with anyio.fail_after(60):
        async with create_app(settings) as app, Client(app.server) as client:
            assert compiled == []  # it would delay the start
            arguments = {"write_todos": {"todos": []}, "task": {"goal": "Look", "thread_id": "new"}}
            for _ in range(2):
                await call(client, tool, **arguments[tool])
            told = await refused(client, "write_file", path="/.envrc", content="x")
    assert "only a person can edit it" in told
    assert compiled and threading.main_thread() not in compiled
