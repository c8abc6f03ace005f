"""AgentOS with two of Agno's agents, over HTTP and MCP; it runs in Agno's environment.

`PYTHON benchmarks/peers/agno_server.py PORT FOLDER`
"""
# pyright: basic

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from agno.os import AgentOS
from agno_side import CHECKPOINTS, stored_agent


def main(port, folder):
    agents = [stored_agent(Path(folder) / "os.db", 0.0, stored) for stored in CHECKPOINTS]
    system = AgentOS(agents=agents, mcp=True, telemetry=False)
    system.serve(app=system.get_app(), port=int(port), access_log=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
