"""Comparison of a delegated run on LangGraph Server, over its HTTP API, with one on our server.

`python -m benchmarks langgraph` installs LangGraph from PyPI, or uses the environment of
`--python`. It measures the server that needs no account: `langgraph dev`, which stores its state in
memory and polls for queued runs every half second. So its elapsed time is not comparable; its
processor time is.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from contextlib import closing
from pathlib import Path

from benchmarks.peers.served import AT_ONCE, GOAL, RunClient, RunServer, delegated, our_server
from benchmarks.peers.sides import PEERS, interpreter, versions
from benchmarks.report import Report

__all__ = ["run"]

PACKAGES = ("langgraph-cli[inmem]", "langgraph-api", "langgraph", "langchain")


def run(rounds: int = 9, python: str | None = None) -> Report:
    """Measure both servers alternately, `rounds` times each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = python or interpreter(folder / "env", PACKAGES)
        with closing(our_server(folder)) as ours, closing(_langgraph(folder, python)) as theirs:
            measures = delegated("langgraph", ours, theirs, rounds)
        return Report("langgraph", measures, (), versions(python, PACKAGES))


def _langgraph(folder: Path, python: str) -> RunServer:
    graphs = {"agent": f"{PEERS / 'langgraph_graph.py'}:agent"}
    config = folder / "langgraph.json"
    config.write_text(json.dumps({"dependencies": ["."], "graphs": graphs}), encoding="utf-8")
    options = ("--no-browser", "--no-reload", "--server-log-level", "ERROR", "--port", "{port}")
    # All requested runs may be active at the same time.
    jobs = ("--n-jobs-per-worker", str(AT_ONCE))
    command = (str(Path(python).parent / "langgraph"), "dev", "--config", str(config))
    return RunServer((*command, *options, *jobs), _wait, mcp=False, cwd=folder)


async def _wait(client: RunClient) -> bool:
    message = {"role": "user", "content": GOAL}
    body = {"assistant_id": "agent", "if_not_exists": "create", "input": {"messages": [message]}}
    done = await client.post(f"/threads/{uuid.uuid4()}/runs/wait", body)
    return done["messages"][-1]["content"] == "Finished."
