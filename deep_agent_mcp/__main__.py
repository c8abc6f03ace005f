"""The command line as a module: `python -m deep_agent_mcp`."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        # Python has put the current directory there, where agents may write: a file with the name
        # of a module that is imported later would run here.
        del sys.path[0]

    from .server.cli.main import main

    main()
