"""The MCP face: handlers, resources, prompts, sessions and announcements."""
