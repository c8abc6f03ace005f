"""Puts this server into MCP clients: one entry in the file where each keeps its list of servers."""
