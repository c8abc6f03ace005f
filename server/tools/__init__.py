"""The tools of the MCP face. Their names and shapes stay."""
