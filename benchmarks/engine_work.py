"""One replica of the engine benchmark, controlled by lines on standard input.

Each line is a JSON object. `{"start": 3, "goal": "work 1", "as": "ann"}` starts runs on behalf of a
principal and answers with their ids; `{"memory": true}` answers with resident MiB.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from benchmarks.replica_work import agent
from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.auth.caller import ALL_SCOPES, Caller, current_caller
from deep_agent_mcp.server.python_agents.source import AgentSource
from deep_agent_mcp.server.settings.sources import load_settings

_AT_ONCE = 16


async def _serve(flags: dict[str, Any]) -> None:
    settings = load_settings(flags, {})
    async with create_app(settings, source=AgentSource(agent)) as app:
        _say({})
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            _say(await _do(app, json.loads(line)))


async def _do(app: App, order: dict[str, Any]) -> dict[str, Any]:
    if "memory" in order:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return {"mib": pages * os.sysconf("SC_PAGE_SIZE") / 2**20}
    caller = Caller(order["as"], ALL_SCOPES)
    current_caller.set(caller)
    await app.shared.principals.note(caller)
    ids: list[str] = []
    room = anyio.CapacityLimiter(_AT_ONCE)

    async def start() -> None:
        async with room:
            ids.append(await app.runs.start(order["goal"]))

    async with anyio.create_task_group() as group:
        for _ in range(order["start"]):
            group.start_soon(start)
    return {"ids": ids}


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    anyio.run(_serve, json.loads(sys.argv[1]))
