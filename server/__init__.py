"""The MCP face of the harness: command line, transports and handlers."""
