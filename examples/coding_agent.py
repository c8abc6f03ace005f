"""An agent that fixes a program: tests in a sandbox, rules for files and commands, an approval.

Run it with `python examples/coding_agent.py`; it needs bubblewrap (Linux). The model is scripted:
no key, no network.
"""

import tempfile
from pathlib import Path
from typing import Any

import anyio

from deep_agent_mcp import Policy, Rule, ScriptedModel, create_deep_agent
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.shell import BubblewrapExecutionPolicy

PROGRAM = "def double(number):\n    return number + 2\n"
TESTS = """\
import unittest
from program import double

class Doubles(unittest.TestCase):
    def test_of_seven(self):
        self.assertEqual(double(7), 14)
"""

POLICY = Policy(
    [
        Rule("deny", tool="*_file", path="/workspace/.env"),
        Rule("deny", tool="write_file", path="/workspace/tests/**", reason="tests are given"),
        Rule("allow", tool="execute", command=["python3 -B -m unittest", "cat", "touch"]),
        Rule("ask", tool="execute", reason="not on the list"),
    ]
)


def calls(name: str, **args: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "args": args}]}


# What a real model would answer, turn by turn.
SCRIPT = [
    calls("execute", command="cat .env; touch tests/mine.py"),
    calls("execute", command="python3 -B -m unittest discover tests"),
    calls("read_file", path="/workspace/program.py"),
    calls("edit_file", path="/workspace/program.py", old_string="+ 2", new_string="* 2"),
    calls("execute", command="python3 -B -m unittest discover tests"),
    calls("execute", command="cp program.py release.py"),
    {"text": "The program doubles; it is released."},
]


async def main(root: Path) -> None:
    (root / "tests").mkdir()
    (root / "program.py").write_text(PROGRAM, encoding="utf-8")
    (root / "tests/test_program.py").write_text(TESTS, encoding="utf-8")
    (root / ".env").write_text("PASSWORD=hunter2\n", encoding="utf-8")
    agent = create_deep_agent(
        ScriptedModel(SCRIPT),
        backend=DirectoryBackend(root),
        policy=POLICY,
        execution_policy=BubblewrapExecutionPolicy(command_timeout=20, total_processes=100),
    )
    result = await agent.ainvoke("Mend the program.")
    (question,) = result.interrupts
    print("asked:", question.payload["args"])
    result = await agent.aresume(result.run.id, {question.id: {"decision": "approve"}})
    for message in result.state["messages"]:
        if isinstance(message, ToolMessage) and message.name == "execute":
            facts = message.artifact
            assert isinstance(facts, dict)
            print("exit code:", facts["exit_code"], "|", str(facts["output"]).splitlines()[-1:])
    print("released:", (root / "release.py").read_text(encoding="utf-8").splitlines()[1].strip())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        anyio.run(main, Path(name))
