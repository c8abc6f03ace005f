"""Work given to an agent at a terminal: runs and conversations, in this process or on a server."""
