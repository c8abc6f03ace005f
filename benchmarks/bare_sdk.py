"""The baseline for `delegate`: the same model calls with only the Anthropic SDK.

`python -m benchmarks.bare_sdk [ours]` reads a line with a number of runs, makes their calls, and
prints the processor time. Tool results are sent immediately. With `ours`, the calls go through our
model class, to measure its cost in addition to the SDK.
"""

from __future__ import annotations

import resource
import sys
from typing import Any

import anyio
from anthropic import AsyncAnthropic

from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, Message, ToolMessage
from deep_agent_mcp.harness.models.anthropic import AnthropicModel
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.tools.schemas import ToolSpec

MODEL = "claude-sonnet-5-5"
GOAL = "Write four files, as in benchmark 7731."
OURS = AnthropicModel(MODEL, max_tokens=8_000)
TOOL: dict[str, Any] = {
    "name": "write_file",
    "description": "Writes a file.",
    "input_schema": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
        "required": ["path", "content"],
    },
}


async def main(side: str) -> None:
    run = {"sdk": _sdk, "ours": _ours}[side]
    async with AsyncAnthropic() as client:
        for line in sys.stdin:
            began = _seconds()
            for _ in range(int(line)):
                await run(client)
            print(_seconds() - began, flush=True)


async def _ours(_: AsyncAnthropic) -> None:
    messages: list[Message] = [HumanMessage(GOAL)]
    tool = ToolSpec(TOOL["name"], TOOL["description"], TOOL["input_schema"])
    while True:
        answer: AIMessage | None = None
        async for piece in OURS.stream(ChatRequest(messages, tools=[tool])):
            if isinstance(piece, AIMessage):
                answer = piece
        assert answer is not None
        messages.append(answer)
        if not answer.tool_calls:
            return
        messages += [
            ToolMessage(call.id, f"wrote {call.args['path']}", name=call.name)
            for call in answer.tool_calls
        ]


async def _sdk(client: AsyncAnthropic) -> None:
    messages: list[Any] = [{"role": "user", "content": GOAL}]
    while True:
        async with client.messages.stream(
            model=MODEL,
            max_tokens=8_000,
            messages=messages,
            tools=[TOOL],  # type: ignore[list-item]
        ) as stream:
            async for _ in stream:
                pass
            answer = await stream.get_final_message()
        calls = [block for block in answer.content if block.type == "tool_use"]
        if not calls:
            return
        messages.append({"role": "assistant", "content": answer.content})
        results = [
            {"type": "tool_result", "tool_use_id": one.id, "content": f"wrote {one.input['path']}"}  # type: ignore[index]
            for one in calls
        ]
        messages.append({"role": "user", "content": results})


def _seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    anyio.run(main, *(sys.argv[1:] or ["sdk"]))
