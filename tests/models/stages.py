"""Stages for the conformance kit: each adapter with a fake provider."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from deep_agent_mcp.harness.models.base import ChatModel
from deep_agent_mcp.harness.models.conformance import Provider, Scene, Stage
from deep_agent_mcp.harness.models.registry import init_chat_model
from tests.fake_anthropic import Answer, FakeAnthropic
from tests.fake_vendors import (
    FakeBedrock,
    FakeChat,
    FakeGoogle,
    FakeMistral,
    FakeResponses,
    FakeVendor,
    Reply,
    ReplyCall,
)
from tests.models.calls import claude


def _headers(scene: Scene) -> dict[str, str]:
    return {} if scene.retry_after is None else {"retry-after": str(scene.retry_after)}


def _claudes(scene: Scene) -> Answer:
    calls = [{"name": call.name, "raw": call.arguments} for call in scene.calls]
    return Answer(
        text=scene.text,
        thinking=scene.thinking or None,
        tool_calls=calls,
        status=scene.status,
        headers=_headers(scene),
        truncate_after=4 if scene.ends == "cut" else None,
        stall_after=4 if scene.ends == "stalls" else None,
    )


@asynccontextmanager
async def anthropic(scenes: Sequence[Scene]) -> AsyncIterator[tuple[ChatModel, Provider]]:
    async with FakeAnthropic(map(_claudes, scenes)) as server, claude(server.url) as model:
        yield model, server


def reply_of(scene: Scene) -> Reply:
    return Reply(
        scene.text,
        scene.thinking,
        [ReplyCall(call.name, call.arguments) for call in scene.calls],
        status=scene.status,
        headers=_headers(scene),
        cut_after=5 if scene.ends == "cut" else None,
        stall_after=5 if scene.ends == "stalls" else None,
    )


def vendor(
    name: str, make: Callable[..., FakeVendor], path: str = "", **settings: Any
) -> Callable[[Sequence[Scene]], AbstractAsyncContextManager[tuple[ChatModel, Provider]]]:
    """Return the stage of a vendor's model.

    Args:
        name: Name of the model for `init_chat_model`.
        make: Creates the fake provider from its replies.
        path: Path of the base URL, after the server's address.
        settings: Additional settings of the model.
    """

    @asynccontextmanager
    async def stage(scenes: Sequence[Scene]) -> AsyncIterator[tuple[ChatModel, Provider]]:
        async with make(*map(reply_of, scenes)) as server:
            known = {"api_key": "test-key", "max_retries": 0, **settings}
            model = init_chat_model(name, base_url=f"{server.url}{path}", **known)
            try:
                yield model, server
            finally:
                await model.aclose()

    return stage


def deepseek(*replies: Reply) -> FakeChat:
    return FakeChat(
        *replies,
        path="/chat/completions",
        thinking_field="reasoning_content",
        extras=("max_tokens", "thinking"),
    )


def ollama(*replies: Reply) -> FakeChat:
    return FakeChat(*replies, thinking_field="reasoning")


def openrouter(*replies: Reply) -> FakeChat:
    return FakeChat(*replies, thinking_field="reasoning", wants_thinking=False)


def groq(*replies: Reply) -> FakeChat:
    path = "/openai/v1/chat/completions"
    return FakeChat(
        *replies, path=path, thinking_field="reasoning", wants_thinking=False, extras=("n",)
    )


STAGES: dict[str, Stage] = {
    "anthropic": anthropic,
    "ollama": vendor("ollama:qwen3", ollama, "/v1"),
    "deepseek": vendor("deepseek:deepseek-v4-pro", deepseek),
    "openai": vendor("openai:my-model", ollama, "/v1"),
    "openai-responses": vendor("openai-responses:gpt-5.4", FakeResponses, "/v1"),
    "google": vendor("google:gemini-3-pro-preview", FakeGoogle, thinking=True),
    "groq": vendor("groq:qwen3-32b", groq),
    "openrouter": vendor("openrouter:qwen/qwen3", openrouter, "/v1"),
    "bedrock": vendor(
        "bedrock:anthropic.claude-sonnet-5-5-v1:0", FakeBedrock, api_key=None, region="eu-central-1"
    ),
    "mistral": vendor("mistral:magistral-medium", FakeMistral),
}
