"""A job that goes on when its run has ended, and is seen to by the next one.

Run it with `python examples/background_job.py`. Commands run in a bubblewrap sandbox (Linux), or
without one where none can be made. The model is scripted: no key, no network.
"""

import tempfile
from pathlib import Path

import anyio

from deep_agent_mcp import ScriptedModel, create_deep_agent
from deep_agent_mcp.harness.agent import RunResult
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.shell import (
    BubblewrapExecutionPolicy,
    ExecutionPolicy,
    HostExecutionPolicy,
)

BUILD = "echo waiting; until [ -e sources ]; do sleep 0.1; done; wc -l <sources >result; echo built"

# What a real model would answer, turn by turn.
SCRIPT = [
    {"tool_calls": [{"name": "execute", "args": {"command": BUILD, "background": True}}]},
    {
        "expect": {"results": {"execute": "was started"}},
        "tool_calls": [{"name": "job", "args": {"action": "wait", "seconds": 0.5}}],
    },
    {"expect": {"results": {"job": "running for"}}, "text": "The build waits for its sources."},
    {"tool_calls": [{"name": "job", "args": {"action": "wait", "seconds": 30}}]},
    {"expect": {"results": {"job": "exit code 0"}}, "text": "It is built."},
]


def execution() -> ExecutionPolicy:
    """Return a sandbox if one can be made here."""
    sandbox = BubblewrapExecutionPolicy()
    try:
        sandbox.check()
    except AgentBuildError:
        return HostExecutionPolicy()
    return sandbox


def show(result: RunResult) -> None:
    seen = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    facts = seen[-1].artifact
    assert isinstance(facts, dict)
    print("output:", str(facts["output"]).split())
    print("answer:", result.run.answer)


async def main(root: Path) -> None:
    agent = create_deep_agent(
        ScriptedModel(SCRIPT), backend=DirectoryBackend(root), execution_policy=execution()
    )
    try:
        show(await agent.ainvoke("Build it.", thread_id="build"))
        (root / "part").write_text("one\ntwo\n", encoding="utf-8")
        (root / "part").rename(root / "sources")  # what the job waits for, while no run goes on
        show(await agent.ainvoke("Is it built?", thread_id="build"))
        print("result:", (root / "result").read_text(encoding="utf-8").strip(), "lines")
    finally:
        await agent.aclose()  # ends jobs that still run


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        anyio.run(main, Path(name))
