"""MCP handlers: resources, prompts, sessions and announcements."""
