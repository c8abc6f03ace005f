"""A provider of agents for `RunManager` that always returns the same agent."""

from dataclasses import dataclass

from deep_agent_mcp.harness.agent import Agent


@dataclass
class SameAgent:
    """A callable that returns one agent for every name."""

    agent: Agent
    prepares: bool = False

    def __call__(self, id_: str = "") -> Agent:
        return self.agent

    async def prepare(self, id_: str = "") -> None: ...
