"""An agent of Google's ADK that hands work to a deep agent, and shows what that one does.

    pip install -r adk.txt
    GOOGLE_API_KEY=… python adk_agent.py "Ask the deep agent to write /notes/plan.md."

Without a URL the server runs as a child of this program; with one, such as
http://127.0.0.1:8000/mcp, it is one that runs already.
"""

import asyncio
import os
import sys
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.runners import InMemoryRunner
from google.adk.tools.mcp_tool import (
    McpToolset,
    StdioConnectionParams,
    StreamableHTTPConnectionParams,
)
from google.genai.types import Content, Part
from mcp import StdioServerParameters
from mcp.types import ElicitRequestParams, ElicitResult

PROMPT = "Delegate work to the deep agent with `task`. If a run is still going, call `wait`."


async def show(progress: float, total: float | None, message: str | None) -> None:
    """Print what the deep agent is doing."""
    print(f"  … {message or progress}")


async def ask(context: Any, params: ElicitRequestParams) -> ElicitResult:
    """Let the person at the terminal decide what the deep agent asks."""
    print(f"\n{params.message}")
    said = await asyncio.to_thread(input, "approve or reject? ")
    return ElicitResult(action="accept", content={"decision": said.strip() or "reject"})


def connection(url: str | None) -> Any:
    """Say how to reach the deep agent."""
    if url:
        return StreamableHTTPConnectionParams(url=url, sse_read_timeout=600)
    args = ["serve", "--toolsets", "compact", "--approve", "write_file"]
    params = StdioServerParameters(command="deep-agent-mcp", args=args, env={**os.environ})
    return StdioConnectionParams(server_params=params, timeout=600)


async def main(goal: str, url: str | None = None) -> None:
    deep = McpToolset(
        connection_params=connection(url), progress_callback=show, elicitation_callback=ask
    )
    agent = LlmAgent(
        name="assistant", model="gemini-3-pro-preview", instruction=PROMPT, tools=[deep]
    )
    runner = InMemoryRunner(agent, app_name="deep")
    session = await runner.session_service.create_session(app_name="deep", user_id="me")
    async for event in runner.run_async(
        user_id="me",
        session_id=session.id,
        new_message=Content(role="user", parts=[Part(text=goal)]),
        run_config=RunConfig(streaming_mode=StreamingMode.SSE),
    ):
        if event.is_final_response() and event.content and event.content.parts:
            print("".join(part.text or "" for part in event.content.parts))
    await deep.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
