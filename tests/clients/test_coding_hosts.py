"""Codex, Gemini CLI and opencode themselves, each with the entry that `install` writes for it.

Their models are scripts, behind the APIs of their vendors.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.clients.conftest import TOUR
from tests.e2e.servers import Setup
from tests.fake_vendors.chat import FakeChat, check_schema
from tests.fake_vendors.google import FakeGoogle
from tests.fake_vendors.responses import FakeResponses
from tests.fake_vendors.server import Reply, ReplyCall

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400), pytest.mark.exhaustive]

HERE = {"thread_id": "tour"}
TODOS = [{"content": "look at it", "status": "in_progress"}]
STEPS: list[tuple[str, dict[str, Any]]] = [
    ("write_todos", {"todos": TODOS, **HERE}),
    ("write_file", {"path": "/tour.txt", "content": "a line of the tour\n", **HERE}),
    ("read_file", {"path": "/tour.txt", **HERE}),
    ("task", {"goal": "write a note", **HERE}),
    ("task", {"goal": "a moment", "wait_seconds": 0, **HERE}),
    ("wait", {"run_id": "tour"}),
    ("read_file", {"path": "/nowhere", **HERE}),
]
SEEN = ["look at it", "tour.txt", "a line of the tour", "The note is written.", "running"]
SEEN += ["That was a moment.", "no such file"]
TOOLS = {
    *("write_todos", "ls", "read_file", "write_file", "edit_file", "glob", "grep", "skill"),
    *("task", "wait", "reply", "cancel", "threads", "rewind"),
}
RESOURCE = {"server": "deep-agent", "uri": "threads://recent"}


class Host:
    """A host with an entry for a server, and without anything of whoever runs the tests."""

    def __init__(self, place: Path, name: str, config: str) -> None:
        self.home = place / "home"
        self.home.mkdir()
        (place / "server").mkdir()
        setup = Setup(place / "server", script=TOUR)
        kept = {one: os.environ[one] for one in ("PATH", "LANG") if one in os.environ}
        self.env = {**kept, "HOME": str(self.home)}
        flags = setup.command("stdio")[4:]
        at = flags.index("--transport")
        command = [sys.executable, "-m", "deep_agent_mcp", "install", name, "--"]
        command += [*flags[:at], *flags[at + 2 :], "--toolsets", "all"]
        subprocess.run(
            command, env=self.env, cwd=self.home, check=True, capture_output=True, timeout=120
        )
        self.config = self.home / config

    def configure(self, **more: Any) -> None:
        """Add to the configuration, which is JSON."""
        self.config.write_text(json.dumps({**json.loads(self.config.read_text()), **more}))

    async def tour(self, command: Sequence[Path | str], **env: str) -> None:
        """Let its model go on the tour."""
        with anyio.fail_after(240):
            done = await anyio.run_process(
                [*map(str, command)],
                env={**self.env, **env},
                cwd=self.home,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        said = done.stdout.decode() + done.stderr.decode()
        assert done.returncode == 0 and "All seen." in said, said[-6_000:]


def script(*calls: ReplyCall) -> list[Reply]:
    """Return what the model says: a call each time, and then that it has seen all."""
    return [*(Reply(calls=[one]) for one in calls), Reply("All seen.")]


def expect(results: Sequence[str], *more: str) -> None:
    """Check what a model was shown of its calls."""
    assert len(results) == len(SEEN) + len(more)
    for result, wanted in zip(results, [*SEEN, *more], strict=True):
        assert wanted in result


class _Codex(FakeResponses):
    def check(self, body: Mapping[str, Any]) -> None:
        for one in functions(body):
            check_schema(one["name"], one["parameters"])


def functions(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return our tools as Codex offers them."""
    spaces = [one for one in body["tools"] if one.get("name") == "mcp__deep_agent"]
    return [tool for one in spaces for tool in one["tools"]]


async def test_codex(coding_hosts: Mapping[str, list[Path]], tmp_path: Path) -> None:
    host = Host(tmp_path, "codex", ".codex/config.toml")
    steps = [ReplyCall(one, json.dumps(args), namespace="mcp__deep_agent") for one, args in STEPS]
    steps.append(ReplyCall("read_mcp_resource", json.dumps(RESOURCE)))
    async with _Codex(*script(*steps)) as api:
        # It does not wait for servers by itself, so its model may begin without their tools.
        entry = host.config.read_text().replace("\nargs", "\nrequired = true\nargs")
        provider = {"name": "fake", "base_url": f"{api.url}/v1", "wire_api": "responses"}
        lines = [f"{key} = {json.dumps(value)}" for key, value in provider.items()]
        head = 'model = "gpt-5"\nmodel_provider = "fake"\n'
        table = "\n".join(["[model_providers.fake]", *lines, 'env_key = "FAKE_KEY"'])
        host.config.write_text(f"{head}{entry}\n{table}\n")
        command = [*coding_hosts["codex"], "exec", "--skip-git-repo-check"]
        command += ["--dangerously-bypass-approvals-and-sandbox", "Go on the tour."]
        await host.tour(command, FAKE_KEY="x")
    assert {one["name"] for one in functions(api.requests[0])} == TOOLS
    items = api.requests[-1]["input"]
    expect(
        [str(one["output"]) for one in items if one.get("type") == "function_call_output"], "tour"
    )


class _Gemini(FakeGoogle):
    def check(self, body: Mapping[str, Any]) -> None:
        for one in declarations(body):
            check_schema(one["name"], one["parametersJsonSchema"])


def declarations(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return our tools as Gemini CLI offers them."""
    every = [one for tools in body["tools"] for one in tools["functionDeclarations"]]
    return [one for one in every if one["name"].startswith("mcp_deep-agent_")]


async def test_gemini_cli(coding_hosts: Mapping[str, list[Path]], tmp_path: Path) -> None:
    host = Host(tmp_path, "gemini", ".gemini/settings.json")
    host.configure(security={"auth": {"selectedType": "gemini-api-key"}})
    steps = [
        # It adds this argument to all tools, and passes it on.
        ReplyCall(f"mcp_deep-agent_{one}", json.dumps({**args, "wait_for_previous": True}))
        for one, args in STEPS
    ]
    steps.append(ReplyCall("read_mcp_resource", json.dumps(RESOURCE)))
    async with _Gemini(*script(*steps)) as api:
        command = [*coding_hosts["gemini"], "--yolo", "--model", "gemini-2.5-pro"]
        key = {"GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": api.url}
        trust = {"GEMINI_CLI_TRUST_WORKSPACE": "true"}
        await host.tour([*command, "--prompt", "Go on the tour."], **key, **trust)
    offered = {one["name"].removeprefix("mcp_deep-agent_") for one in declarations(api.requests[0])}
    assert offered == TOOLS
    parts = [one for content in api.requests[-1]["contents"] for one in content["parts"]]
    results = [one["functionResponse"] for one in parts if "functionResponse" in one]
    expect([json.dumps(one["response"]) for one in results], "tour")


class _Opencode(FakeChat):
    def check(self, body: Mapping[str, Any]) -> None:
        for one in body.get("tools", ()):
            check_schema(one["function"]["name"], one["function"]["parameters"])

    def reply_to(self, body: Mapping[str, Any]) -> Reply:
        # Beside the conversation it asks for a title.
        return super().reply_to(body) if body.get("tools") else Reply("A tour")


async def test_opencode(coding_hosts: Mapping[str, list[Path]], tmp_path: Path) -> None:
    host = Host(tmp_path, "opencode", ".config/opencode/opencode.json")
    steps = [ReplyCall(f"deep-agent_{one}", json.dumps(args)) for one, args in STEPS]
    async with _Opencode(*script(*steps)) as api:
        options = {"baseURL": f"{api.url}/v1", "apiKey": "x"}
        models = {"models": {"m": {"name": "m"}}}
        fake = {"npm": "@ai-sdk/openai-compatible", "name": "Fake", "options": options, **models}
        host.configure(provider={"fake": fake}, small_model="fake/m", autoupdate=False)
        command = [*coding_hosts["opencode"], "run", "--model", "fake/m", "Go on the tour."]
        await host.tour(command, OPENCODE_DISABLE_MODELS_FETCH="1")
    asked = [one for one in api.requests if one.get("tools")]
    names = {one["function"]["name"] for one in asked[0]["tools"]}
    assert {f"deep-agent_{one}" for one in TOOLS} <= names
    messages = asked[-1]["messages"]
    expect([str(one["content"]) for one in messages if one["role"] == "tool"])
