"""The side of deepagents; run with the interpreter of its own environment.

`PYTHON benchmarks/peers/deepagents_side.py MEASURE …`
"""
# pyright: basic

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import measure
from deepagents import create_deep_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver


def noop(number: int) -> str:
    """Do nothing."""
    return measure.RESULT


class ScriptModel(BaseChatModel):
    """The same turns as ours: the place is read off the last message."""

    delay: float = 0.0
    seen: list = []

    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, tools, **kwargs):
        self.seen[:] = [tools]
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.seen[1:] = [messages]
        return ChatResult(generations=[ChatGeneration(message=_answer(messages))])

    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
        if self.delay:
            await asyncio.sleep(self.delay)  # noqa: TID251 - anyio is not its dependency
        return self._generate(messages)


def _answer(messages):
    for message in reversed(messages):
        text = message.tool_call_id if isinstance(message, ToolMessage) else message.content
        if isinstance(message, ToolMessage | HumanMessage) and text.startswith(("rounds-", "fan-")):
            break
    kind, done, total = text.split("-")
    done, total = int(done), int(total)
    if kind == "rounds" and done < total:
        call = {"id": f"rounds-{done + 1}-{total}", "name": "noop", "args": {"number": done}}
        return AIMessage("Next.", tool_calls=[call])
    if kind == "fan" and done == 0:
        args = {"description": "rounds-0-1", "subagent_type": "general-purpose"}
        calls = [
            {"id": f"fan-{number}-{total}", "name": "task", "args": args}
            for number in range(1, total + 1)
        ]
        return AIMessage("All at once.", tool_calls=calls)
    return AIMessage("Finished.")


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

    states = history  # its history always holds the states


@asynccontextmanager
async def agent(journal, *, parent, delay):
    async with AsyncExitStack() as stack:
        saver = InMemorySaver() if journal is None else None
        if journal is not None:
            from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

            saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(str(journal)))
        # Without a journal it needs no saver; ours always has one, in memory.
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
