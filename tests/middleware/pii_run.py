"""A run with secrets in every source of text, for the leak tests."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import NotRequired, TypedDict

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.checkpoint.base import Checkpointer
from deep_agent_mcp.harness.loop.agent import Agent
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.hooks.requests import Runtime, Send
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    TextBlock,
    ThinkingBlock,
    ToolCall,
)
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from deep_agent_mcp.harness.middleware.pii import PIIMiddleware
from deep_agent_mcp.harness.models.base import ChatRequest, Delta
from deep_agent_mcp.harness.store.base import Store
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call


def secret(number: int) -> str:
    """Return a unique mail address."""
    return f"leak{number}x@example.com"


CARD = "5105105105105100"
CARDS = ["4111 1111 1111 1111", "378282246310005", "6304000000000000000"]
IP = "2001:db8:dead::77"
PLACES = 24
PLANTED = [*(f"leak{number}x" for number in range(PLACES)), "4111 1111", CARD, "378282246310005",
           "6304000000000000000", "dead::77"]  # fmt: skip
"""Texts that must not leak; parts of a secret are enough for a leak."""


class Typed(Turns):
    """A model that streams its turns in pieces of a few characters."""

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        async with aclosing(super().stream(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, AIMessage):
                    for delta in deltas(piece):
                        yield delta
                    yield piece


def deltas(answer: AIMessage, size: int = 3) -> list[Delta]:
    found: list[Delta] = []
    for block in answer.content:
        match block:
            case ThinkingBlock(thinking):
                found += [Delta("thinking", one) for one in cut(thinking, size)]
            case TextBlock(text):
                found += [Delta("text", one) for one in cut(text, size)]
            case ToolCall(call_id, name, args, invalid):
                raw = json.dumps(args) if invalid is None else invalid
                found += [Delta("tool_args", one, call_id, name) for one in cut(raw, size)]
            case _:
                pass
    return found


def cut(text: str, size: int) -> list[str]:
    return [text[place : place + size] for place in range(0, len(text), size)]


class Seen(TypedDict):
    notes: NotRequired[str]


class Notes(AgentMiddleware):
    """Middleware that writes state and an event, and asks a person."""

    state_schema = Seen

    def before_agent(self, state: Mapping[str, object], runtime: Runtime):
        runtime.stream_writer({"from": secret(1)})
        return {"notes": f"noted {secret(2)}"}


@tool
async def report(to: str, runtime: ToolRuntime) -> ToolResult:
    """Report to somebody."""
    runtime.stream_writer({"sent": {secret(3): [secret(4)]}, "card": int(CARD)})
    artifact = {secret(5): {"cards": [*CARDS, int(CARD)], "ip": IP, "to": to}}
    return ToolResult(f"sent to {secret(6)}, paid by {CARDS[0]} from {IP}", artifact=artifact,
                      update={"notes": f"told {secret(7)}"})  # fmt: skip


@tool
async def fail() -> str:
    """Fail."""
    raise ValueError(f"no such user: {secret(8)}")


@tool
async def ask(about: str, runtime: ToolRuntime) -> str:
    """Ask a person."""
    answer = runtime.interrupt(
        f"May {secret(9)} know of {about}?",
        payload={"who": secret(10), "cards": CARDS},
        answer_schema={"type": "string", "description": f"as {secret(11)} would"},
    )
    return f"they said {answer}"


@tool
async def again() -> object:
    """Have another call made."""
    from deep_agent_mcp.harness.loop.hooks.requests import Command

    return Command(send=[Send("report", {"to": secret(12)})])


def planted_run(
    middleware: list[PIIMiddleware],
    journal: Checkpointer,
    store: Store | None = None,
    child_middleware: tuple[AgentMiddleware, ...] = (),
) -> tuple[Agent, Typed, Typed]:
    child_model = Typed(
        AIMessage((TextBlock(f"I ask {secret(13)}"), call("k1", "report", to=secret(14)))),
        AIMessage((TextBlock(f"The child found {secret(15)}"),)),
    )
    child = create_agent(child_model, [report], name="child", middleware=child_middleware,
                         state_schema=Seen)  # fmt: skip

    @tool
    async def task(description: str, runtime: ToolRuntime) -> str:
        """Delegate."""
        return (await runtime.run_subagent(child, f"{description} for {secret(16)}")).text

    model = Typed(
        AIMessage((
            ThinkingBlock(f"They want {secret(17)}", "signature"),
            TextBlock(f"I write to {secret(18)} and charge {CARDS[0]}, {CARDS[1]}"),
            call("c1", "report", to=secret(19), card=CARDS[2], ip=IP),
            call("c2", "fail"),
            ToolCall("c3", "report", {}, invalid=f'{{"to": "{secret(20)}'),
        )),
        AIMessage((
            call("c4", "write_file", path="/notes.md", content=f"of {secret(21)}\n{CARDS[1]}\n"),
            call("c5", "task", description=f"look for {secret(22)}"),
            call("c6", "again"),
        )),
        AIMessage((call("c7", "read_file", path="/notes.md"), call("c8", "ask", about=secret(22)))),
        AIMessage((TextBlock(f"Done for {secret(23)}, {CARDS[2]} at {IP}."),)),
    )  # fmt: skip
    agent = create_agent(
        model,
        [report, fail, ask, again, task],
        name="main",
        middleware=[*middleware, FilesystemMiddleware(StateBackend()), Notes()],
        checkpointer=journal,
        store=store,
    )
    return agent, model, child_model


GIVEN = [HumanMessage(f"Mail {secret(0)}"), HumanMessage(f"Pay {CARDS[0]} for {secret(0)} at {IP}")]
"""The input: an older message, and the newest one, which is the goal."""
