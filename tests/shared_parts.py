"""Parts of clients and servers that a test process creates once and shares, to save time."""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["share_bundled_skills", "share_validators"]


def share_validators() -> None:
    """Make official clients with the same output schema share one validator.

    A client compiles the schema at its first call of a tool, which takes longer than most calls.
    """
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


def share_bundled_skills() -> None:
    """Make servers read the bundled skills only once: reading takes a third of their start."""
    if "deep_agent_mcp.server.agents.workplaces" not in sys.modules:
        return  # none of the tests has a server
    from deep_agent_mcp.harness.skills import SkillRegistry
    from deep_agent_mcp.server.agents.workplaces import bundled_skills

    read = SkillRegistry._listing
    place = bundled_skills()
    known: dict[Any, Any] = {}

    def shared(self: SkillRegistry, source: Any, before: Any, names: Any) -> Any:
        if source.directory != place:
            return read(self, source, before, names)
        if source not in known:
            known[source] = read(self, source, None, None)
        return known[source]

    SkillRegistry._listing = shared  # type: ignore[method-assign]
