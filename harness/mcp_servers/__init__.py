"""Tools of other MCP servers, mounted into an agent.

`MCPToolsMiddleware` takes servers by name and offers their tools. The protocol's SDK is only
imported when a server is first used.
"""

from .config import HttpServer, MCPServer, OAuth, SseServer, StdioServer
from .connections import ServerStatus
from .mapping import servers_from_json, servers_from_mapping
from .middleware import MCPToolsMiddleware
from .oauth_tokens import LoginStore, TokenFiles
from .tools import MCPTool

__all__ = [
    "HttpServer",
    "LoginStore",
    "MCPServer",
    "MCPTool",
    "MCPToolsMiddleware",
    "OAuth",
    "ServerStatus",
    "SseServer",
    "StdioServer",
    "TokenFiles",
    "servers_from_json",
    "servers_from_mapping",
]
