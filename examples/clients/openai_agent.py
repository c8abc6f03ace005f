"""An agent of the OpenAI Agents SDK that hands work to a deep agent, as a conversation.

    pip install -r openai.txt
    OPENAI_API_KEY=… python openai_agent.py "Ask the deep agent to write /notes/plan.md."

This SDK shows no forms of MCP servers. A run that needs an approval therefore comes back with its
question, the model asks you, and hands your decision on with `reply`. Without a URL the server runs
as a child of this program; with one, such as http://127.0.0.1:8000/mcp, it runs already.
"""

import asyncio
import os
import sys
from contextlib import suppress

from agents import Agent, ItemHelpers, ModelSettings, Runner, TResponseInputItem
from agents.mcp import MCPServer, MCPServerStdio, MCPServerStreamableHttp

PROMPT = """Delegate work to the deep agent with `task` and wait_seconds 10. While it is running,
call `wait`. If it needs an approval, show the user the call, ask, and pass on what they decide with
`reply`. Never decide for them."""


def server(url: str | None) -> MCPServer:
    """Return the deep agent."""
    if url:
        return MCPServerStreamableHttp({"url": url}, client_session_timeout_seconds=120)
    args = ["serve", "--toolsets", "compact", "--approve", "write_file"]
    return MCPServerStdio(
        {"command": "deep-agent-mcp", "args": args, "env": {**os.environ}},
        client_session_timeout_seconds=120,
    )


async def main(goal: str, url: str | None = None) -> None:
    async with server(url) as deep:
        agent = Agent(
            "Assistant",
            instructions=PROMPT,
            mcp_servers=[deep],
            model_settings=ModelSettings(store=False),
        )
        said: list[TResponseInputItem] = [{"role": "user", "content": goal}]
        while True:
            result = Runner.run_streamed(agent, said)
            async for event in result.stream_events():
                if event.type == "run_item_stream_event":
                    if event.item.type == "tool_call_output_item":
                        print(f"  … {str(event.item.output)[:200]}")
                    elif event.item.type == "message_output_item":
                        print(ItemHelpers.text_message_output(event.item))
            try:
                answer = await asyncio.to_thread(input, "you> ")
            except EOFError:
                return
            said = [*result.to_input_list(), {"role": "user", "content": answer}]


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
