from collections.abc import Sequence
from dataclasses import replace

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.messages.message import (
    HumanMessage,
    ImageBlock,
    Message,
    TextBlock,
    ToolCall,
    ToolMessage,
)
from deep_agent_mcp.harness.middleware.context.context_editing import (
    MediaSupport,
    UnsupportedContentMiddleware,
)
from tests.fake_anthropic import FakeAnthropic
from tests.loop.models import Turns
from tests.middleware.support import Sent, answer, loops, model_request
from tests.models.calls import claude

pytestmark = pytest.mark.anyio

PNG = ImageBlock("image/png", "aGk=")
SVG = ImageBlock("image/svg+xml", "a" * 4_000)


class Named(Turns):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


CLAUDE = Named("anthropic:claude-sonnet-5-5")


async def seen(
    middleware: UnsupportedContentMiddleware, messages: Sequence[Message], model: Turns = CLAUDE
) -> Sequence[Message]:
    sent = Sent()
    await middleware.wrap_model_call(model_request(messages, model=model), sent)
    return sent.request.messages


async def test_an_image_of_a_type_the_model_does_not_take_becomes_a_notice() -> None:
    human = HumanMessage((TextBlock("look"), SVG, PNG))
    result = ToolMessage("c", (SVG,), "draw")
    messages = [human, answer("", ToolCall("c", "draw")), result]
    first, call, third = await seen(UnsupportedContentMiddleware(), messages)
    assert isinstance(first, HumanMessage)
    assert isinstance(first.content, tuple)
    text, notice, image = first.content
    assert (text, image) == (TextBlock("look"), PNG)
    assert isinstance(notice, TextBlock)
    assert notice.text == (
        "[An image (image/svg+xml, 2.9 KiB) was left out here: this model takes image/gif, "
        "image/jpeg, image/png, image/webp only.]"
    )
    assert call is messages[1]
    assert isinstance(third, ToolMessage)
    assert (third.tool_call_id, third.id) == ("c", result.id)
    assert human.content[1] is SVG


async def test_an_image_that_is_too_large_becomes_a_notice() -> None:
    large = ImageBlock("image/png", "a" * (6 << 20))
    (message,) = await seen(UnsupportedContentMiddleware(), [HumanMessage((large,))])
    assert "at most 3.8 MiB" in message.text


async def test_what_the_model_takes_passes_untouched() -> None:
    messages = [HumanMessage((PNG,)), *loops(2)]
    assert await seen(UnsupportedContentMiddleware(), messages) is messages
    other = [HumanMessage((SVG,))]
    assert await seen(UnsupportedContentMiddleware(), other, Named("other:model")) is other


async def test_a_model_without_eyes_is_described_by_the_beginning_of_its_name() -> None:
    described = {"anthropic:blind": MediaSupport(), "other:": MediaSupport(["image/svg+xml"])}
    middleware = UnsupportedContentMiddleware(described)
    (message,) = await seen(middleware, [HumanMessage((PNG,))], Named("anthropic:blind-7b"))
    assert (
        message.text
        == "[An image (image/png, 3 bytes) was left out here: this model cannot see images.]"
    )
    messages = [HumanMessage((PNG,))]
    assert await seen(middleware, messages) is messages
    assert await seen(middleware, [HumanMessage((PNG,))], Named("other:x")) != messages


async def test_a_thread_may_change_its_model_and_its_messages() -> None:
    middleware = UnsupportedContentMiddleware({"anthropic:blind": MediaSupport()})
    log: list[Message] = [HumanMessage((PNG,), id="h")]
    blind = Named("anthropic:blind")
    for _ in range(2):
        assert "left out" in (await seen(middleware, log, blind))[0].text
        assert (await seen(middleware, log))[0] is log[0]
    first = await seen(middleware, log, blind)
    second = await seen(middleware, [*log, *loops(1)], blind)
    assert second[0] is first[0]
    redacted = [replace(log[0], content="[redacted]"), *loops(1)]
    assert (await seen(middleware, redacted, blind))[0] is redacted[0]


async def test_a_request_that_the_api_would_refuse_goes_through() -> None:
    async with FakeAnthropic(["A circle."]) as api, claude(api.url) as model:
        agent = create_agent(model, middleware=[UnsupportedContentMiddleware()])
        result = await agent.ainvoke([HumanMessage((SVG,))])
    assert result.run.answer == "A circle."
    (block,) = api.requests[0]["messages"][0]["content"]
    assert block["type"] == "text"
    assert result.state["messages"][0].content == (SVG,)


def test_wrong_arguments_are_refused_when_the_agent_is_built() -> None:
    with pytest.raises(AgentBuildError, match="MediaSupport"):
        UnsupportedContentMiddleware({"x": ()})  # type: ignore[dict-item]
    with pytest.raises(AgentBuildError, match="collection"):
        MediaSupport("image/png")
