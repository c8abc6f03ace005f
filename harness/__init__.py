"""A durable deep-agent engine. It knows nothing of MCP and is usable on its own."""
