"""A plugin for deep-agent-mcp: a tool, a middleware, a model and a backend."""
