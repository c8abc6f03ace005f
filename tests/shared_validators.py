"""The official client's validators of results, made once for a process.

A client compiles the schema of a tool's results when it first calls the tool, which takes longer
than most calls. Tests have a new client each, and nearly all of them the same tools.
"""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["share_validators"]


def share_validators() -> None:
    """Let clients that are told the same schema have the same validator."""
    if "mcp.client.session" not in sys.modules:
        return  # none of the tests has a client
    from mcp.client.session import ClientSession

    compiled = ClientSession._output_schema_validator
    known: dict[str, Any] = {}

    def shared(self: ClientSession, name: str, output_schema: dict[str, Any]) -> Any:
        text = json.dumps(output_schema)
        if text not in known:
            known[text] = compiled(self, name, output_schema)
        return known[text]

    ClientSession._output_schema_validator = shared  # type: ignore[method-assign]
