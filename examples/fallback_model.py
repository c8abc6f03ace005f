"""A second model that answers while the first one cannot, as middleware of one function.

Run it with `python examples/fallback_model.py`. Both models are scripted: no key, no network.
"""

from collections.abc import Sequence

import anyio

from deep_agent_mcp import (
    AgentMiddleware,
    AIMessage,
    ModelError,
    ModelRequest,
    ModelResponse,
    ScriptedModel,
    create_agent,
    tool,
    wrap_model_call,
)
from deep_agent_mcp.harness.loop.hooks.requests import ModelHandler
from deep_agent_mcp.harness.models.base import ChatModel


def with_fallbacks(others: Sequence[ChatModel]) -> AgentMiddleware:
    """Ask the other models, one after the other, while a failure is one that may pass."""

    @wrap_model_call
    async def fall_back(request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        for model in others:
            try:
                return await handler(request)
            except ModelError as error:
                # A revoked key or a malformed request is ours to repair, not to work around.
                if not error.retryable:
                    raise
                print(f"{request.model.name} failed ({error}); asking {model.name}")
                request = request.override(model=model)
        return await handler(request)

    return fall_back


@tool(read_only=True)
def weather(city: str) -> str:
    """Return the weather in a city."""
    return f"{city}: snow, -4 degrees"


# What real models would do, turn by turn. Name some instead, such as
# init_chat_model("anthropic:<model id>"), and the rest of this file stays as it is.
OVERLOADED = {"message": "overloaded", "kind": "overloaded", "retryable": True}
FIRST = [
    {"error": OVERLOADED},
    {"expect": {"results": {"weather": "snow"}}, "text": "Oslo has snow."},
    {"error": {"message": "the key was revoked", "kind": "auth"}},
]
SECOND = [{"tool_calls": [{"name": "weather", "args": {"city": "Oslo"}}]}]


async def main() -> None:
    first = ScriptedModel({"name": "first", "agents": {"*": FIRST}})
    second = ScriptedModel({"name": "second", "agents": {"*": SECOND}})
    agent = create_agent(first, [weather], middleware=[with_fallbacks([second])])

    result = await agent.ainvoke("How is the weather in Oslo?", thread_id="weather")
    print("answer:", result.run.answer)
    answers = [one for one in result.state["messages"] if isinstance(one, AIMessage)]
    print("answered by:", ", ".join(one.model or "?" for one in answers))
    print("model calls, the failed one included:", result.used.model_calls)

    result = await agent.ainvoke("And in Bergen?", thread_id="weather")
    print("next run:", result.run.status, "-", result.run.reason)


if __name__ == "__main__":
    anyio.run(main)
