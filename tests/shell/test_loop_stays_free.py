"""Opening, using and ending shells never holds the event loop up."""

import os
from pathlib import Path

import anyio
import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.middleware.commands.shell import ShellToolMiddleware
from deep_agent_mcp.harness.shell.policies import HostExecutionPolicy
from tests.loop.models import Turns, call, says

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.name == "nt", reason="shells need a POSIX system"),
]


@pytest.mark.parametrize("place", ["startup", "command", "shutdown"])
async def test_the_event_loop_goes_on_while_a_shell_waits(place: str, tmp_path: Path) -> None:
    """The shell waits for a word that only another task of the same event loop says."""
    for name in ("waiting", "go"):
        os.mkfifo(tmp_path / name)
    heard = os.open(tmp_path / "waiting", os.O_RDONLY | os.O_NONBLOCK)
    said = os.open(tmp_path / "go", os.O_RDWR | os.O_NONBLOCK)
    waits = "echo up >waiting; read -r _ <go"
    commands = {"startup": "true", "command": "true", "shutdown": "true", place: waits}
    middleware = ShellToolMiddleware(
        tmp_path,
        execution_policy=HostExecutionPolicy(),
        startup_commands=[commands["startup"]],
        shutdown_commands=[commands["shutdown"], "echo ended >>ended"],
    )
    model = Turns(says("", call("c", "shell", command=commands["command"])), says("done"))
    agent = create_agent(model, middleware=[middleware])
    answers: list[str] = []

    async def run() -> None:
        answers.append((await agent.ainvoke("Go")).run.answer)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await anyio.wait_readable(heard)
            os.write(said, b"go on\n")
    for one in (heard, said):
        os.close(one)
    assert answers == ["done"]
    assert (tmp_path / "ended").read_text() == "ended\n"
