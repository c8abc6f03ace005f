"""Tools of other MCP servers, mounted into an agent.

`MCPToolsMiddleware` takes servers by name and offers their tools. Nothing here imports the
protocol's SDK before a server is first used.
"""

from .config import HttpServer, MCPServer, SseServer, StdioServer
from .middleware import MCPToolsMiddleware
from .tools import MCPTool

__all__ = [
    "HttpServer",
    "MCPServer",
    "MCPTool",
    "MCPToolsMiddleware",
    "SseServer",
    "StdioServer",
]
