"""A server in this process, with a scripted agent on a directory, and a client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import anyio
import yaml
from mcp import Client
from mcp.types import Request, RequestParams, Result

from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.auth.caller import Caller, current_caller
from deep_agent_mcp.server.settings.sources import load_settings


class AnyParams(RequestParams):
    model_config = {"extra": "allow"}


class AnyRequest(Request[AnyParams, str]):
    method: str
    params: AnyParams


class AnyResult(Result):
    model_config = {"extra": "allow"}


@dataclass
class Looking:
    """A client and its server, both in this process."""

    app: App
    client: Client
    root: Path

    async def read(self, uri: str) -> Any:
        """Return the content of a resource."""
        (content,) = (await self.client.read_resource(uri)).contents
        return json.loads(content.text)  # type: ignore[union-attr]

    async def call(self, tool: str, **args: Any) -> dict[str, Any]:
        """Return the data of a tool's result; a task without a thread starts a new one."""
        if tool == "task":
            args.setdefault("thread_id", "new")
        result = await self.client.call_tool(tool, args)
        assert result.structured_content is not None, result.content
        return result.structured_content

    async def said(self, tool: str, **args: Any) -> str:
        """Return the text of a tool's result."""
        result = await self.client.call_tool(tool, args)
        return "\n".join(getattr(one, "text", "") for one in result.content)

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of a method other than a tool call."""
        request = AnyRequest(method=method, params=AnyParams(**params))
        result = await self.client.session.send_request(cast("Any", request), AnyResult)
        return result.model_dump()

    async def question(self, run_id: str) -> dict[str, Any]:
        """Return the only open question of a run with all its fields."""
        asked = await self.read(f"run://{run_id}/questions")
        (only,) = [one for one in asked["questions"] if not one["answered"]]
        return await self.read(f"run://{run_id}/questions/{only['id']}")


def script(**runs: list[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """Return a script: turns of the main agent, or of each agent, by a word in the goal."""
    return {
        "name": "looked-at",
        "runs": [
            {"match": word, "agents": turns if isinstance(turns, dict) else {"main": turns}}
            for word, turns in runs.items()
        ],
    }


@asynccontextmanager
async def looking(place: Path, runs: Any = None, **flags: Any) -> AsyncIterator[Looking]:
    """Serve in this process until the block ends."""
    root = place / "root"
    root.mkdir(exist_ok=True)
    given: dict[str, Any] = {"state_dir": str(place / "state"), "root": str(root), **flags}
    if runs is not None:
        (place / "script.yaml").write_text(yaml.safe_dump(runs, sort_keys=False))
        given["model"] = f"scripted:{place / 'script.yaml'}"
    with anyio.fail_after(60):
        async with (
            create_app(load_settings(given, {})) as app,
            Client(app.server) as client,
        ):
            yield Looking(app, client, root)


@asynccontextmanager
async def calling_as(caller: Caller) -> AsyncIterator[None]:
    """Run the block as this caller."""
    token = current_caller.set(caller)
    try:
        yield
    finally:
        current_caller.reset(token)
