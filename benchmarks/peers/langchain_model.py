"""The scripted model and the tool for LangChain's agents; it runs in their environment."""
# pyright: basic

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import measure
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult


def noop(number: int) -> str:
    """Do nothing."""
    return measure.RESULT


class ScriptModel(BaseChatModel):
    """A model with the same answers as our scripted model, chosen by the last message."""

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
