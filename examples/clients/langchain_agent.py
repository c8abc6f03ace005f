"""An agent in LangChain that hands work to a deep agent, and shows what that one does.

    pip install -r langchain.txt
    OPENAI_API_KEY=… python langchain_agent.py "Ask the deep agent to write /notes/plan.md."

The deep agent's own model comes from the server's settings. Without a URL the server runs as a
child of this program; with one, such as http://127.0.0.1:8000/mcp, it is one that runs already.
"""

import asyncio
import os
import sys
from typing import Any

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_mcp_adapters.callbacks import CallbackContext, Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp.types import ElicitRequestParams, ElicitResult

PROMPT = "Delegate work to the deep agent with `task`. If a run is still going, call `wait`."


async def show(
    done: float, total: float | None, text: str | None, context: CallbackContext
) -> None:
    """Print what the deep agent is doing."""
    print(f"  … {text or done}")


async def ask(mcp: Any, params: ElicitRequestParams, context: CallbackContext) -> ElicitResult:
    """Let the person at the terminal decide what the deep agent asks."""
    print(f"\n{params.message}")
    said = await asyncio.to_thread(input, "approve or reject? ")
    return ElicitResult(action="accept", content={"decision": said.strip() or "reject"})


def server(url: str | None) -> dict[str, Any]:
    """Say how to reach the deep agent."""
    if url:
        return {"transport": "streamable_http", "url": url}
    args = ["serve", "--toolsets", "compact", "--approve", "write_file"]
    return {"transport": "stdio", "command": "deep-agent-mcp", "args": args, "env": {**os.environ}}


async def main(goal: str, url: str | None = None) -> None:
    callbacks = Callbacks(on_progress=show, on_elicitation=ask)
    client = MultiServerMCPClient({"deep": server(url)}, callbacks=callbacks)
    # One session for all calls: they land on one thread, and stdio starts the server once.
    async with client.session("deep") as session:
        tools = await load_mcp_tools(session, callbacks=callbacks, server_name="deep")
        model = init_chat_model("openai:gpt-5.2", streaming=True)
        agent = create_agent(model, tools, system_prompt=PROMPT)
        result = await agent.ainvoke({"messages": [{"role": "user", "content": goal}]})
        print(result["messages"][-1].text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
