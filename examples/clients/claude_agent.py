"""An agent of the Claude Agent SDK that hands work to a deep agent, with a person's approvals.

    pip install -r claude.txt
    ANTHROPIC_API_KEY=… python claude_agent.py "Ask the deep agent to write /notes/plan.md."

Claude may call `task` and `wait` freely. A run that needs an approval comes back with its question,
and the answer, a call of `reply`, goes through this program, which asks you first. Without a URL
the server runs as a child of Claude; with one, such as http://127.0.0.1:8000/mcp, it runs already.
"""

import asyncio
import os
import sys
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
    PermissionResultDeny,
    TextBlock,
    ToolPermissionContext,
    ToolUseBlock,
)

PROMPT = """Delegate work to the deep agent with its tool `task`. While it is running, call
`wait`. If it needs an approval, call `reply` with decision "approve": the user is asked before
it counts."""


async def ask(
    tool: str, args: dict[str, Any], context: ToolPermissionContext
) -> PermissionResultAllow | PermissionResultDeny:
    """Let the person at the terminal decide what Claude may not do by itself."""
    print(f"\n{tool} {args}")
    said = await asyncio.to_thread(input, "yes or no? ")
    if said.strip() in ("y", "yes"):
        return PermissionResultAllow()
    return PermissionResultDeny(message="The user said no. Reject the call with reply.")


def server(url: str | None) -> Any:
    """Say how to reach the deep agent."""
    if url:
        return {"type": "http", "url": url}
    args = ["serve", "--toolsets", "compact", "--approve", "write_file"]
    return {"type": "stdio", "command": "deep-agent-mcp", "args": args, "env": {**os.environ}}


async def main(goal: str, url: str | None = None) -> None:
    options = ClaudeAgentOptions(
        system_prompt=PROMPT,
        mcp_servers={"deep": server(url)},
        allowed_tools=["mcp__deep__task", "mcp__deep__wait", "mcp__deep__threads"],
        tools=[],
        can_use_tool=ask,
    )
    async with ClaudeSDKClient(options) as claude:
        await claude.query(goal)
        async for message in claude.receive_response():
            if isinstance(message, AssistantMessage):
                for block in message.content:
                    if isinstance(block, ToolUseBlock):
                        print(f"  … {block.name} {block.input}")
                    elif isinstance(block, TextBlock):
                        print(block.text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
