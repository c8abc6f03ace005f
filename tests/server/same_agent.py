"""One agent for everything, as `RunManager` takes it."""

from dataclasses import dataclass

from deep_agent_mcp.harness.agent import Agent


@dataclass
class SameAgent:
    """Returns an agent, whoever asks."""

    agent: Agent
    prepares: bool = False

    def __call__(self, id_: str = "") -> Agent:
        return self.agent

    async def prepare(self, id_: str = "") -> None: ...
