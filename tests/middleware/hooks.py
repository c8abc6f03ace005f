"""Runner for a middleware's hooks without the loop; it merges their updates into a state."""

from collections.abc import Mapping
from typing import Any

from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware, settle
from deep_agent_mcp.harness.loop.hooks.requests import ModelRequest, ModelResponse
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, TextBlock
from deep_agent_mcp.harness.state.channels import AgentState, State
from deep_agent_mcp.harness.state.schema import StateSchema
from tests.loop.models import Turns
from tests.middleware.support import runtime

RUNTIME = runtime()


class Thread:
    """A thread of an agent with one middleware; its state is converted to JSON as in a journal."""

    def __init__(self, middleware: AgentMiddleware) -> None:
        assert middleware.state_schema is not None
        self.middleware = middleware
        self.schema = StateSchema.of((AgentState, "agent"), (middleware.state_schema, "it"))
        self.state: State = self.schema.initial()

    async def hook(self, name: str) -> Mapping[str, Any] | None:
        update = await settle(getattr(self.middleware, name)(self.state, RUNTIME))
        for key, value in (update or {}).items():
            channel = self.schema[key]
            write = channel.decode(channel.encode(value))
            self.state = {**self.state, key: channel.apply(self.state.get(key, []), write)}
        return update

    async def start(self) -> None:
        await self.hook("before_agent")

    async def notice(self) -> str | None:
        """Run before_model and return the text that it appended to the transcript, if any."""
        update = await self.hook("before_model")
        if update is None or "messages" not in update:
            return None
        (message,) = update["messages"]
        assert isinstance(message, HumanMessage)
        return f"{message.source}: {message.text}"

    async def section(self) -> str | None:
        """Return the section that the middleware adds to the system prompt."""
        seen: list[ModelRequest] = []

        async def handler(request: ModelRequest) -> ModelResponse:
            seen.append(request)
            return ModelResponse(AIMessage((TextBlock("ok"),)))

        await self.middleware.wrap_model_call(
            ModelRequest(Turns(), [], [], [], self.state, RUNTIME), handler
        )
        sections = seen[0].system
        return sections[0].text if sections else None
