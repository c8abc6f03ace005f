"""Subagents as Markdown files: their tools, permissions and limits, and going on with one.

Run it with `python examples/agents_as_files.py`. The model is scripted: no key, no network.
"""

from pathlib import Path

from deep_agent_mcp import ScriptedModel, SubAgentRegistry, create_deep_agent

AGENTS = Path(__file__).parent / "agents"


def use(name: str, **args: str) -> dict[str, object]:
    return {"name": name, "args": args}


# What a real model would answer, turn by turn, for each of the agents.
SCRIPT = {
    "agents": {
        "main": [
            {"tool_calls": [use("write_file", path="/src/a.py", content="print('hi'\n")]},
            {
                "tool_calls": [
                    use("task", description="Review /src/a.py.", subagent_type="reviewer"),
                    use("task", description="Name the file.", subagent_type="twin"),
                ]
            },
            {"text": "The file needs a parenthesis."},
        ],
        "reviewer": [
            {"tool_calls": [use("read_file", path="/src/a.py")]},
            {"tool_calls": [use("write_file", path="/src/a.py", content="print('hi')\n")]},
            {"tool_calls": [use("write_file", path="/notes.md", content="Line 1: no ')'.\n")]},
            {"text": "One problem, on line 1."},
        ],
        # It is a copy: what its caller wrote is part of what it knows.
        "twin": [{"text": "The file is /src/a.py."}],
    }
}


def main() -> None:
    registry = SubAgentRegistry(AGENTS)
    for name, subagent in registry.subagents.items():
        print("subagent:", name, "-", subagent.description.split(".")[0])

    agent = create_deep_agent(ScriptedModel(SCRIPT), subagents=registry)
    result = agent.invoke("Review the file.", thread_id="t")
    for message in result.state["messages"]:
        if message.type == "tool" and message.name == "task":
            print("report:", message.text.splitlines()[0])
    print("files:", ", ".join(sorted(result.state["files"])))
    print("unchanged:", result.state["files"]["/src/a.py"].content.strip())
    print("answer:", result.run.answer)


if __name__ == "__main__":
    main()
