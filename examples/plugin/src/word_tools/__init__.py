"""A plugin for deep-agent-mcp: a tool, a middleware and a model."""
