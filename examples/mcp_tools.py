"""Tools of another MCP server in an agent: offered, judged by a rule, and answering a question.

Run it with `python examples/mcp_tools.py`. It starts a small MCP server of its own as a child
process, written with the official SDK. The model is scripted: no key, no network.
"""

import sys
from typing import Annotated

import anyio

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.mcp_servers import MCPToolsMiddleware, StdioServer
from deep_agent_mcp.harness.models.scripted import ScriptedModel
from deep_agent_mcp.harness.policy import Policy, Rule


def serve() -> None:
    """Be the other server: one harmless tool, one that asks a person, one that destroys."""
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Elicit, Resolve
    from mcp.types import ToolAnnotations
    from pydantic import BaseModel

    class Size(BaseModel):
        grams: int

    def which_size(kind: str) -> Elicit[Size]:
        return Elicit(f"How many grams of {kind}?", Size)

    mcp = MCPServer("bakery")

    @mcp.tool(annotations=ToolAnnotations(read_only_hint=True))
    def breads() -> list[str]:
        return ["rye", "spelt"]

    @mcp.tool(annotations=ToolAnnotations(destructive_hint=False))
    def bake(kind: str, size: Annotated[Size, Resolve(which_size)]) -> str:
        return f"{size.grams} g of {kind}"

    @mcp.tool()
    def close_shop() -> str:
        return "closed for ever"

    mcp.run("stdio")


SCRIPT = [
    {"tool_calls": [{"name": "bakery_breads"}, {"name": "bakery_close_shop"}]},
    {"tool_calls": [{"name": "bakery_bake", "args": {"kind": "rye"}}]},
    {"expect": {"last": "750 g of rye"}, "text": "There is rye bread."},
]


async def main() -> None:
    servers = {"bakery": StdioServer(sys.executable, [__file__, "serve"])}
    tools = MCPToolsMiddleware(servers)
    rules = Policy([Rule("deny", server="bakery", destructive=True, reason="the shop stays open")])
    agent = create_agent(ScriptedModel(SCRIPT), middleware=[tools], policy=rules)
    try:
        result = await agent.ainvoke("Get me some bread.")
        for message in result.state["messages"]:
            if message.type == "tool":
                print(f"{message.name}: {message.status}")
        (question,) = result.interrupts
        print(question.message)
        answer = {"action": "accept", "content": {"grams": 750}}
        result = await agent.aresume(result.run.id, {question.id: answer})
        print("answer:", result.run.answer)
    finally:
        await tools.aclose()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else anyio.run(main)
