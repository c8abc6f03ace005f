"""An agent of Pydantic AI that hands work to a deep agent, and shows what that one does.

    pip install -r pydantic.txt
    OPENAI_API_KEY=… python pydantic_agent.py "Ask the deep agent to write /notes/plan.md."

Without a URL the server runs as a child of this program; with one, such as
http://127.0.0.1:8000/mcp, it is one that runs already.
"""

import asyncio
import os
import sys
from typing import Any

from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

PROMPT = "Delegate work to the deep agent with `task`. If a run is still going, call `wait`."


async def show(done: float, total: float | None, text: str | None) -> None:
    """Print what the deep agent is doing."""
    print(f"  … {text or done}")


async def ask(message: str, kind: Any, params: Any, context: Any) -> ElicitResult[Any]:
    """Let the person at the terminal decide what the deep agent asks."""
    print(f"\n{message}")
    said = await asyncio.to_thread(input, "approve or reject? ")
    return ElicitResult(action="accept", content={"decision": said.strip() or "reject"})


async def main(goal: str, url: str | None = None) -> None:
    args = ["serve", "--toolsets", "compact", "--approve", "write_file"]
    deep = MCPToolset(
        url or StdioTransport("deep-agent-mcp", args, env={**os.environ}),
        elicitation_handler=ask,
        progress_handler=show,
        init_timeout=60,  # a server's first start after its installation can take more than 5 s
    )
    agent = Agent("openai-chat:gpt-5.2", toolsets=[deep], instructions=PROMPT)
    async with agent, agent.run_stream(goal) as result:
        print(await result.get_output())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
