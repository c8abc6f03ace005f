"""A deep agent with background tasks, with scripted turns for each agent."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Any

import anyio

from deep_agent_mcp.harness.agent import Agent, RunResult
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, ToolMessage
from deep_agent_mcp.harness.models.base import ChatRequest, Delta
from deep_agent_mcp.harness.subagents.background.launcher import BackgroundSubAgents
from deep_agent_mcp.harness.subagents.background.tasks import TaskView
from deep_agent_mcp.harness.subagents.definitions import AnySubAgent, SubAgent
from tests.loop.models import call, says

Turn = AIMessage | Exception | Callable[[ChatRequest], AIMessage | Awaitable[AIMessage]]

DIGGER = SubAgent("digger", "Digs.", "You dig.")


class Cast:
    """A model with turns for each calling agent; each transcript has its own position."""

    name = "cast:test"
    context_window = None
    native_output = False

    def __init__(self, **turns: Sequence[Turn]) -> None:
        self.plays = turns
        self.requests: list[ChatRequest] = []

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        self.requests.append(request)
        yield Delta("text", "…")
        place = sum(isinstance(one, AIMessage) and one.source is None for one in request.messages)
        turn = self.plays[request.agent][place]
        if isinstance(turn, Exception):
            raise turn
        answer = turn(request) if callable(turn) else turn
        yield await answer if isawaitable(answer) else answer

    async def aclose(self) -> None:
        pass

    def asked_by(self, agent: str) -> list[ChatRequest]:
        return [one for one in self.requests if one.agent == agent]


class Gate:
    """A turn that sets an event when it is reached, and waits until it may answer."""

    def __init__(self, *answers: AIMessage) -> None:
        self.answers = list(answers)
        self.reached = anyio.Event()
        self.open = anyio.Event()
        self.running = 0
        self.most = 0

    async def __call__(self, request: ChatRequest) -> AIMessage:
        self.running += 1
        self.most = max(self.most, self.running)
        self.reached.set()
        try:
            await self.open.wait()
        finally:
            self.running -= 1
        return AIMessage(self.answers[0].content)


def family(
    background: BackgroundSubAgents,
    turns: Mapping[str, Sequence[Turn]] | Cast,
    *args: Any,
    subagents: Sequence[AnySubAgent] = (DIGGER,),
    **options: Any,
) -> Agent:
    model = turns if isinstance(turns, Cast) else Cast(**turns)
    return create_deep_agent(model, *args, subagents=subagents, background=background, **options)


def start(call_id: str, description: str = "dig", subagent: str = "digger") -> Any:
    return call(call_id, "start_task", description=description, subagent_type=subagent)


def task_id(request: ChatRequest, call_id: str) -> str:
    """Return the id of the task that a call started."""
    return task_in(request.messages, call_id)


def task_in(messages: Sequence[Any], call_id: str) -> str:
    (result,) = [
        one for one in messages if isinstance(one, ToolMessage) and one.tool_call_id == call_id
    ]
    found = re.search(r"task-[0-9a-f]{8}", result.text)
    assert found, result.text
    return found[0]


def check(request: ChatRequest, *started: str, seconds: float = 30) -> AIMessage:
    """Wait for the tasks of calls."""
    ids = [task_id(request, one) for one in started]
    return says("", call("check", "check_tasks", task_ids=ids, wait_seconds=seconds))


def steering(gate: Gate, message: str, work: str = "dig") -> list[Turn]:
    """Return turns that send a message to a task during its model call, and get its result."""

    async def send(request: ChatRequest) -> AIMessage:
        await gate.reached.wait()
        found = task_id(request, "c1")
        return says("", call("say", "update_task", task_id=found, message=message))

    def release(request: ChatRequest) -> AIMessage:
        gate.open.set()
        return check(request, "c1")

    return [says("", start("c1", work)), send, release, says("Good.")]


def results(result: RunResult | ChatRequest) -> dict[str, ToolMessage]:
    messages = result.messages if isinstance(result, ChatRequest) else result.state["messages"]
    return {one.tool_call_id: one for one in messages if isinstance(one, ToolMessage)}


def news(result: RunResult) -> list[str]:
    """Return the messages to the model about its background tasks."""
    return [
        one.text
        for one in result.state["messages"]
        if isinstance(one, HumanMessage) and one.source == "background_tasks"
    ]


async def view(background: BackgroundSubAgents, result: RunResult, call_id: str) -> TaskView:
    """Wait for the task of a call to stop."""
    found = task_in(result.state["messages"], call_id)
    (one,) = await background.wait([f"{result.run.thread_id}.{found}"], 30)
    return one
