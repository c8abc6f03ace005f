"""Memory files: what the agent is always told."""
