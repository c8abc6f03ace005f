"""A deep agent with scripted turns for each agent, and helpers to read the results of a run."""

from collections.abc import Callable, Mapping
from typing import Any

from deep_agent_mcp.harness.agent import Agent, RunResult
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, ToolMessage
from deep_agent_mcp.harness.models.base import ChatRequest
from tests.loop.models import Turn, Turns, call, says

__all__ = ["Cast", "family", "handle_in", "task", "told"]


class Cast(Turns):
    """A model with turns for each calling agent; each agent has its own position."""

    def __init__(self, **turns: list[Turn]) -> None:
        super().__init__()
        self.plays: Mapping[str, list[Turn]] = turns
        self.turns = [self._next] * 1_000

    def _next(self, request: ChatRequest) -> AIMessage:
        turns = self.plays[request.agent.replace("-", "_")]
        own = [
            one for one in request.messages
            if isinstance(one, AIMessage) and one.name == request.agent
        ]  # fmt: skip
        turn = turns[min(len(own), len(turns) - 1)]
        if isinstance(turn, Exception):
            raise turn
        return turn(request) if callable(turn) else turn

    def asked_by(self, agent: str) -> list[ChatRequest]:
        """Return the requests of one agent."""
        return [one for one in self.requests if one.agent == agent]


def family(turns: Mapping[str, list[Turn]] | Turns, *args: Any, **options: Any) -> Agent:
    model = turns if isinstance(turns, Turns) else Cast(**turns)
    return create_deep_agent(model, *args, **options)


def task(call_id: str, description: str, subagent: str = "", task_id: str = "") -> Any:
    more = {"subagent_type": subagent, "task_id": task_id}
    return call(call_id, "task", description=description, **{k: v for k, v in more.items() if v})


def told(result: RunResult) -> list[ToolMessage]:
    return [one for one in result.state["messages"] if isinstance(one, ToolMessage)]


def handle_in(request: ChatRequest) -> str:
    """Return the task id in the newest result of a request."""
    results = [one for one in request.messages if isinstance(one, ToolMessage)]
    artifact = results[-1].artifact
    assert isinstance(artifact, dict)
    return str(artifact["task_id"])


def heard(request: ChatRequest) -> list[str]:
    """Return the human messages in a request."""
    return [one.text for one in request.messages if isinstance(one, HumanMessage)]


def last(text: Callable[[str], str]) -> Turn:
    return lambda request: says(text(request.messages[-1].text))
