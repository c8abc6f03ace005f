"""The side of deepagents; it runs in its own environment.

`PYTHON benchmarks/peers/deepagents_side.py MEASURE …`
"""
# pyright: basic

from __future__ import annotations

import json
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import measure
from deepagents import create_deep_agent
from langchain_core.messages import HumanMessage
from langchain_model import ScriptModel, noop
from langgraph.checkpoint.memory import InMemorySaver


class Runs:
    def __init__(self, agent) -> None:
        self.agent = agent

    def _config(self, thread):
        return {"configurable": {"thread_id": thread}, "recursion_limit": 100_000}

    async def __call__(self, goal, thread):
        inputs = {"messages": [HumanMessage(goal)]}
        result = await self.agent.ainvoke(inputs, self._config(thread))
        assert result["messages"][-1].content == "Finished."

    async def history(self, thread):
        return len([one async for one in self.agent.aget_state_history(self._config(thread))])

    states = history  # its history always includes the states


@asynccontextmanager
async def agent(journal, *, parent, delay):
    async with AsyncExitStack() as stack:
        saver = InMemorySaver() if journal is None else None
        if journal is not None:
            from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

            saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(str(journal)))
        # Without a journal, it needs no saver; ours always has one, in memory.
        checkpointer = None if journal is None else saver
        yield Runs(create_deep_agent(ScriptModel(delay=delay), [noop], checkpointer=checkpointer))


async def prompt():
    from langchain_core.utils.function_calling import convert_to_openai_tool

    model = ScriptModel()
    await create_deep_agent(model, []).ainvoke({"messages": [HumanMessage("rounds-0-0")]})
    tools, messages = model.seen
    schemas = [convert_to_openai_tool(one)["function"] for one in tools]
    return len(str(messages[0].text)) + sum(len(json.dumps(one)) for one in schemas)


async def grep(root, pattern):
    return len((await _files(root).agrep(pattern)).matches or [])


async def glob(root, pattern):
    return len((await _files(root).aglob(pattern)).matches or [])


def _files(root):
    from deepagents.backends import FilesystemBackend

    return FilesystemBackend(root_dir=root, virtual_mode=True)


if __name__ == "__main__":
    measure.main(sys.modules[__name__])
