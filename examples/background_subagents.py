"""Three subagents work side by side in the background.

Run it with `python examples/background_subagents.py`. The models are scripted: no key, no network.
"""

import tempfile
from pathlib import Path

import anyio

from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.models.scripted import ScriptedModel
from deep_agent_mcp.harness.subagents.background.launcher import BackgroundSubAgents
from deep_agent_mcp.harness.subagents.definitions import SubAgent

# What real models would answer.
SCRIPT = """
agents:
  main:
  - tool_calls:
    - {name: start_task, args: {description: First sold when, subagent_type: historian}}
    - {name: start_task, args: {description: Why is it bitter, subagent_type: chemist}}
    - {name: start_task, args: {description: What does it cost, subagent_type: economist}}
    - {name: write_file, args: {path: /report.md, content: "# Tea\\n"}}
  - tool_calls:
    - {name: check_tasks, args: {wait_seconds: 60}}
  - expect: {results: {check_tasks: Tannins, start_task: Started}}
    tool_calls:
    - {name: read_file, args: {path: /history.md}}
    - name: edit_file
      args: {path: /report.md, old_string: "# Tea", new_string: "# Tea\\nBitter by tannins."}
  - expect: {results: {read_file: "1657"}}
    text: Sold since 1657, bitter by tannins, four pence a cup.
  historian:
  - tool_calls:
    - {name: write_file, args: {path: /history.md, content: "1657: sold in a coffee house.\\n"}}
  - text: Since 1657; see /history.md.
  chemist:
  - text: Tannins.
  economist:
  - text: Four pence a cup.
"""

RESEARCHERS = [
    SubAgent("historian", "Finds out when things happened.", "You are a historian."),
    SubAgent("chemist", "Knows what things are made of.", "You are a chemist."),
    SubAgent("economist", "Knows what things cost.", "You are an economist."),
]


async def main(folder: Path) -> None:
    (folder / "script.yaml").write_text(SCRIPT, encoding="utf-8")
    async with (
        SqliteCheckpointer(folder / "journal.sqlite3") as journal,
        # Tasks work while this is entered. What is left goes on when the next one is.
        BackgroundSubAgents(journal, max_running=4) as background,
    ):
        model = ScriptedModel(folder / "script.yaml")
        agent = create_deep_agent(model, subagents=RESEARCHERS, background=background)
        result = await agent.ainvoke("Tell me about tea.", thread_id="tea")
        print("answer:", result.run.answer)
        print("files:", ", ".join(sorted(result.state["files"])))
        for task_id, task in result.state["background_tasks"].items():
            view = await background.look(f"tea.{task_id}")
            print(f"{task['agent']}: {view.status}: {view.run.answer}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        anyio.run(main, Path(name))
