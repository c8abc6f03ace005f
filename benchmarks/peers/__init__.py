"""Our agents beside deepagents, on the same work; see `compare`."""
