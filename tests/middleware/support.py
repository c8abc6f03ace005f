"""Hand-built requests, to test hooks without the loop."""

from collections.abc import Mapping, Sequence
from typing import Any

from deep_agent_mcp.harness.limits.limits import Limits, Meter
from deep_agent_mcp.harness.loop.hooks.requests import ModelRequest, ModelResponse, Runtime
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    Message,
    TextBlock,
    ToolCall,
    ToolMessage,
)
from deep_agent_mcp.harness.models.base import ChatModel, PromptSection
from deep_agent_mcp.harness.tools.tool import Tool


def _nobody_to_ask(message: str, **more: Any) -> Any:
    raise AssertionError(f"asked: {message}")


async def nobody(call: ToolCall) -> ToolMessage:
    raise AssertionError(f"called: {call}")


def runtime(kept: dict[str, Any] | None = None) -> Runtime:
    async def keep(update: Mapping[str, Any]) -> None:
        if kept is not None:
            kept.update(update)

    return Runtime(
        thread_id="thread",
        run_id="run",
        ns="",
        agent_name="main",
        agent_path=("main",),
        context=None,
        meter=Meter(Limits()),
        stream_writer=lambda data: None,
        interrupt=_nobody_to_ask,
        request_drain=lambda: None,
        keep=keep,
        call_tool=nobody,
        tools={},
    )


def model_request(
    messages: Sequence[Message],
    *,
    model: ChatModel | None = None,
    system: Sequence[PromptSection] = (),
    tools: Sequence[Tool | Mapping[str, Any]] = (),
    kept: dict[str, Any] | None = None,
    **state: Any,
) -> ModelRequest:
    return ModelRequest(
        model=model,  # type: ignore[arg-type]  # hooks that never ask a model get none
        messages=messages,
        system=system,
        tools=tools,
        state={"messages": messages, **state},
        runtime=runtime(kept),
    )


class Sent:
    """A handler that records the requests that reach the model."""

    def __init__(self, *failures: Exception) -> None:
        self.requests: list[ModelRequest] = []
        self._failures = list(failures)

    async def __call__(self, request: ModelRequest) -> ModelResponse:
        self.requests.append(request)
        if self._failures:
            raise self._failures.pop(0)
        return ModelResponse(answer("ok"))

    @property
    def request(self) -> ModelRequest:
        return self.requests[-1]


def answer(text: str = "", *calls: ToolCall, key: str | None = None) -> AIMessage:
    blocks = (*((TextBlock(text),) if text else ()), *calls)
    return AIMessage(blocks) if key is None else AIMessage(blocks, id=key)


def loops(count: int, *, size: int = 400, start: int = 0) -> list[Message]:
    """Return rounds of one call and its result, of about `size` characters each."""
    messages: list[Message] = []
    for number in range(start, start + count):
        call = ToolCall(f"c{number}", "read", {"path": f"/f{number}"})
        messages += (
            answer("", call, key=f"a{number}"),
            ToolMessage(call.id, f"{number}:" + "x" * size, "read", id=f"r{number}"),
        )
    return messages
