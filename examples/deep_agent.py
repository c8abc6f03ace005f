"""A deep agent over a directory, with a journal on disk: run it, read its history, fork it.

Run it with `python examples/deep_agent.py`. The model is scripted: no key, no network.
"""

import tempfile
from pathlib import Path

import anyio

from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.models.scripted import ScriptedModel

# What a real model would answer to two requests. Name one instead, such as
# create_deep_agent("anthropic:<model id>", …), and the rest of this file stays as it is.
SCRIPT = """
runs:
- match: Summarise
  agents:
    main:
    - tool_calls:
      - {name: write_todos, args: {todos: [{content: Summarise, status: in_progress}]}}
      - {name: read_file, args: {path: /notes.txt}}
    - expect: {results: {read_file: 42 users}}
      tool_calls:
      - {name: write_file, args: {path: /summary.md, content: "42 users signed up.\\n"}}
      - {name: write_todos, args: {todos: [{content: Summarise, status: completed}]}}
    - text: The summary is in /summary.md.
- match: one word
  agents:
    main:
    - expect: {results: {read_file: 42 users}}
      text: Growing.
"""


async def main(folder: Path) -> None:
    root = folder / "files"
    root.mkdir()
    (root / "notes.txt").write_text("Monday: 42 users signed up.\n", encoding="utf-8")
    (folder / "script.yaml").write_text(SCRIPT, encoding="utf-8")
    async with SqliteCheckpointer(folder / "journal.sqlite3") as checkpointer:
        agent = create_deep_agent(
            ScriptedModel(folder / "script.yaml"),
            backend=DirectoryBackend(root),
            checkpointer=checkpointer,
        )
        result = await agent.ainvoke("Summarise the notes.", thread_id="notes")
        print("answer:", result.run.answer)
        print("on disk:", (root / "summary.md").read_text(encoding="utf-8").strip())

        history = await agent.get_state_history("notes")
        for one in reversed(history):
            print(f"checkpoint {one.step}, next {one.next}: {one.summary}")

        # Go back to when the notes had been read and nothing was written, and ask otherwise.
        read = min((one for one in history if one.author == "tools"), key=lambda one: one.step)
        await agent.fork("notes", read.id)
        now = await agent.get_state("notes")
        print("todo after the fork:", now.values["todos"][0].status)
        result = await agent.ainvoke("What do they say, in one word?", thread_id="notes")
        print("answer of the other branch:", result.run.answer)
        print("checkpoints of both:", len(await agent.get_state_history("notes")))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        anyio.run(main, Path(name))
