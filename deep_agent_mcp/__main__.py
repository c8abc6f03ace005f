"""The command line as a module: `python -m deep_agent_mcp`."""

from __future__ import annotations

from .server.cli.main import main

if __name__ == "__main__":
    main()
