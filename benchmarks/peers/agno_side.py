"""Agno's side; it runs in its own environment.

`PYTHON benchmarks/peers/agno_side.py MEASURE …`
"""
# pyright: basic

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import measure
from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse

CHECKPOINTS = {"step": "tool-batch", "end": "runs"}
"""Agno's names of the times to store a run; the second is its default."""


def noop(number: int) -> str:
    """Do nothing."""
    return measure.RESULT


@dataclass
class ScriptModel(Model):
    """A model with the same answers as our scripted model, chosen by the last message."""

    id: str = "script"
    name: str = "Script"
    provider: str = "Script"
    delay: float = 0.0

    def invoke(self, messages, **kwargs):
        return _answer(messages)

    async def ainvoke(self, messages, **kwargs):
        if self.delay:
            await asyncio.sleep(self.delay)  # noqa: TID251 - anyio is not its dependency
        return _answer(messages)

    def invoke_stream(self, messages, **kwargs):
        yield _answer(messages)

    async def ainvoke_stream(self, messages, **kwargs):
        yield await self.ainvoke(messages)

    def _parse_provider_response(self, response, **kwargs):
        return response

    def _parse_provider_response_delta(self, response):
        return response


def _answer(messages):
    for message in reversed(messages):
        text = message.tool_call_id if message.role == "tool" else message.content
        if isinstance(text, str) and text.startswith("rounds-"):
            break
    done, total = (int(part) for part in text.split("-")[1:])
    if done == total:
        return ModelResponse(role="assistant", content="Finished.")
    function = {"name": "noop", "arguments": json.dumps({"number": done})}
    call = {"id": f"rounds-{done + 1}-{total}", "type": "function", "function": function}
    return ModelResponse(role="assistant", content="Next.", tool_calls=[call])


class Runs:
    def __init__(self, agent) -> None:
        self.agent = agent

    async def __call__(self, goal, thread):
        result = await self.agent.arun(goal, session_id=thread)
        assert result.content.endswith("Finished."), result.content


def stored_agent(journal, delay, stored):
    # `AsyncSqliteDb` was slower, and lost runs to "database is locked" with 100 at once.
    from agno.db.sqlite import SqliteDb

    return Agent(
        id=stored,
        model=ScriptModel(delay=delay),
        tools=[noop],
        db=SqliteDb(db_file=str(journal)),
        checkpoint=CHECKPOINTS[stored],
        telemetry=False,
    )


@asynccontextmanager
async def agent(journal, *, parent, delay):
    if journal is None:
        yield Runs(Agent(model=ScriptModel(delay=delay), tools=[noop], telemetry=False))
        return
    made = stored_agent(journal, delay, os.environ.get("PEERS_STORED", "step"))
    yield Runs(made)
    made.db.close()


if __name__ == "__main__":
    measure.main(sys.modules[__name__])
