"""The agents of `examples/clients`: other frameworks' agents that delegate to this server.

Their own models are scripted, as is the server's; the frameworks, the protocols and both processes
are real.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from filelock import FileLock

from tests.e2e.servers import Setup
from tests.fake_anthropic import FakeAnthropic
from tests.fake_anthropic.answers import Answer
from tests.fake_vendors import FakeChat, FakeGoogle, FakeResponses, Reply, ReplyCall
from tests.fork_server import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

EXAMPLES = ROOT / "examples" / "clients"
GOAL = "Ask the deep agent to write the plan."
DONE = "It is in /notes/plan.md."
APART = ("langchain.txt",)
"""Requirements that do not go with the others: another major version of the SDK of MCP."""
SCRIPT = {
    "runs": [
        {
            "match": "write the plan",
            "agents": {
                "main": [
                    {
                        "tool_calls": [
                            {
                                "name": "write_file",
                                "args": {"path": "/notes/plan.md", "content": "1. Ask.\n"},
                            }
                        ]
                    },
                    {"expect": {"results": {"write_file": "plan.md"}}, "text": "Written."},
                ]
            },
        }
    ]
}


def with_run(text: str, request: Mapping[str, Any]) -> str:
    """Name the run that a request told of."""
    found = re.findall(r"run_[0-9a-f]+", json.dumps(request))
    return text.replace("RUN", found[-1]) if found else text


class Chat(FakeChat):
    pass


class Responses(FakeResponses):
    def frames(self, reply: Reply, body: Mapping[str, Any]) -> Iterable[bytes]:
        for one in reply.calls:
            one.arguments = with_run(one.arguments, body)
        return super().frames(reply, body)


class Anthropic(FakeAnthropic):
    def _next(self, body: dict[str, Any]) -> Answer:
        answer = super()._next(body).model_dump_json(exclude_defaults=True)
        return Answer.model_validate_json(with_run(answer, body))


TASK = ReplyCall("task", json.dumps({"goal": "write the plan"}))
APPROVED = {"run_id": "RUN", "decision": "approve"}


def forms(kind: type[Any]) -> AbstractAsyncContextManager[Any]:
    """The model of a framework that shows the server's forms to a person."""
    return kind(Reply(calls=[TASK]), Reply(text=DONE))


def conversation() -> AbstractAsyncContextManager[Any]:
    """The model of one that shows none: it asks, and passes the decision on."""
    answer = ReplyCall("reply", json.dumps(APPROVED))
    asks = Reply(text="It wants to write /notes/plan.md. May it?")
    return Responses(Reply(calls=[TASK]), asks, Reply(calls=[answer]), Reply(text=DONE))


def claude() -> AbstractAsyncContextManager[Any]:
    """Claude, whose call of `reply` a person confirms."""
    goes = {"tool_calls": [{"name": "mcp__deep__task", "input": {"goal": "write the plan"}}]}
    replies = {"tool_calls": [{"name": "mcp__deep__reply", "input": APPROVED}]}
    # It asks for more than these turns: titles, and whatever it thinks of next.
    last = {"text": DONE, "repeat": True}
    return Anthropic([goes, replies, last], check=lambda _: None)


AGENTS = {
    "langchain": (lambda: forms(Chat), "approve", "write_file waits for an answer"),
    "pydantic": (lambda: forms(Chat), "approve", "write_file waits for an answer"),
    "adk": (lambda: forms(FakeGoogle), "approve", "write_file waits for an answer"),
    "openai": (conversation, "yes", "needs_approval"),
    "claude": (claude, "yes", "mcp__deep__reply"),
}


@pytest.fixture(scope="session")
def pythons(environments: Path) -> Mapping[str, Path]:
    """The interpreters of environments with the frameworks, by the name of the example."""
    folder = environments / "frameworks"
    folder.mkdir(parents=True, exist_ok=True)
    files = sorted(EXAMPLES.glob("*.txt"))
    groups = {
        "apart": [one for one in files if one.name in APART],
        "together": [one for one in files if one.name not in APART],
    }
    with FileLock(folder / "lock"):  # other test processes want them too
        for name, wanted in groups.items():
            if not (folder / name / "installed").exists():
                install(folder / name, wanted)
                (folder / name / "installed").touch()
    script = Path("Scripts" if sys.platform == "win32" else "bin", "python")
    return {one.stem: folder / name / script for name, those in groups.items() for one in those}


def install(place: Path, requirements: Sequence[Path]) -> None:
    """Make an environment with the newest releases that requirements allow."""
    uv = [sys.executable, "-m", "uv"]
    files = [word for one in requirements for word in ("-r", str(one))]
    for command in (
        [*uv, "venv", "--quiet", "--clear", str(place)],
        [*uv, "pip", "install", "--quiet", "--python", str(place), *files],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr


def test_every_example_is_run() -> None:
    assert {one.stem for one in EXAMPLES.glob("*.txt")} == set(AGENTS)
    assert {one.name.removesuffix("_agent.py") for one in EXAMPLES.glob("*.py")} == set(AGENTS)


@pytest.mark.parametrize(
    ("name", "transport"),
    [*((name, "stdio") for name in AGENTS), ("langchain", "http")],
)
async def test_an_agent_delegates_follows_and_takes_an_approval(
    name: str, transport: str, pythons: Mapping[str, Path], tmp_path: Path
) -> None:
    model, answer, seen = AGENTS[name]
    script = tmp_path / "script.yaml"
    script.write_text(yaml.safe_dump(SCRIPT), encoding="utf-8")
    command = [str(pythons[name]), str(EXAMPLES / f"{name}_agent.py"), GOAL]
    async with model() as api:
        env = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "DEEP_AGENT_MODEL": f"scripted:{script}",
            "DEEP_AGENT_STATE_DIR": str(tmp_path / "state"),
            **{f"{one}_API_KEY": "key" for one in ("OPENAI", "ANTHROPIC", "GOOGLE")},
            "OPENAI_BASE_URL": f"{api.url}/v1",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "ANTHROPIC_BASE_URL": api.url,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "GOOGLE_GEMINI_BASE_URL": api.url,
        }
        if transport == "http":
            flags = ("--toolsets", "compact", "--approve", "write_file")
            (tmp_path / "server").mkdir()
            setup = Setup(tmp_path / "server", flags, script=SCRIPT)
            with setup.serving() as server:
                said = await run([*command, server.target("http")], env, answer)
        else:
            said = await run(command, env, answer)
    assert DONE in said, said
    assert seen in said, said


async def run(command: Sequence[str], env: Mapping[str, str], answer: str) -> str:
    with anyio.fail_after(100):
        done = await anyio.run_process(
            command, input=f"{answer}\n".encode(), env=env, check=False, stderr=subprocess.STDOUT
        )
    assert done.returncode == 0, done.stdout.decode()
    return done.stdout.decode()
