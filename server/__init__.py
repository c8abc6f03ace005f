"""The MCP face of the harness: command line, transports and handlers."""

if __name__ == "server":
    raise ImportError("server is a part of a package: import deep_agent_mcp.server instead")
