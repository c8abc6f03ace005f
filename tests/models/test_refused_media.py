"""An image or another file that a provider refuses does not end the thread that holds it."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, ImageBlock, Message
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from deep_agent_mcp.harness.middleware.models.model_fallback import ModelFallbackMiddleware
from deep_agent_mcp.harness.models.base import ChatModel
from deep_agent_mcp.harness.models.registry import init_chat_model
from tests.fake_anthropic import Answer, FakeAnthropic
from tests.fake_vendors import FakeChat, Reply
from tests.models.calls import ask, claude

pytestmark = pytest.mark.anyio

PIXELS = "messages.2.content.0.image: At least one of the image dimensions exceed 8000 pixels"
MANY = "too many images and documents: 2 + 0 > 1"
OLD, BAD = (base64.b64encode(b"\x89PNG" + name).decode() for name in (b"old", b"bad"))


def image(data: str) -> HumanMessage:
    return HumanMessage((ImageBlock("image/png", data),))


@asynccontextmanager
async def serving(vendor: str, *said: str) -> AsyncIterator[tuple[Any, ChatModel]]:
    """Yield a fake provider and its model; it refuses requests with these texts, and then none."""
    if vendor == "anthropic":
        refusals = [Answer(status=400, message=one) for one in said]
        async with FakeAnthropic([*refusals, *["Seen."] * 3]) as api, claude(api.url) as model:
            yield api, model
        return
    pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
    replies = [Reply(status=400, error={"error": {"message": one}}) for one in said]
    async with FakeChat(*replies, *[Reply("Seen.")] * 3) as api:
        model = init_chat_model(
            "openai:m", base_url=f"{api.url}/v1", api_key="test-key", max_retries=0
        )
        yield api, model
        await model.aclose()


every_vendor = pytest.mark.parametrize("vendor", ["anthropic", "openai"])


@every_vendor
async def test_a_refused_image_is_left_out_from_then_on_and_the_others_stay(vendor: str) -> None:
    thread: list[Message] = [image(OLD), AIMessage("I see it."), image(BAD)]
    async with serving(vendor, PIXELS) as (api, model):
        assert (await ask(model, *thread)).text == "Seen."
        assert (await ask(model, *thread, AIMessage("Seen."), "and now?")).text == "Seen."
        first, *later = map(str, api.requests)
    assert OLD in first and BAD in first and len(later) == 2
    for sent in later:
        assert OLD in sent and BAD not in sent
        assert f"left out, because the provider refused it: {PIXELS}]" in sent


@every_vendor
async def test_if_the_newest_are_not_to_blame_all_are_left_out(vendor: str) -> None:
    async with serving(vendor, MANY, MANY) as (api, model):
        assert (await ask(model, image(OLD), AIMessage("I see it."), image(BAD))).text == "Seen."
        sent = str(api.requests[2])
    assert OLD not in sent and BAD not in sent


@every_vendor
async def test_an_image_that_was_refused_with_a_wrong_type_is_sent_with_the_right_one(
    vendor: str,
) -> None:
    wrong, right = HumanMessage((ImageBlock("image/jpeg", BAD),)), image(BAD)
    async with serving(vendor, "the image was given as image/jpeg, but is a PNG") as (api, model):
        await ask(model, wrong)
        await ask(model, wrong, AIMessage("I cannot see it."), right)
        sent = str(api.requests[2])
    assert sent.count(BAD) == 1 and "[image, image/jpeg: left out" in sent


@every_vendor
async def test_a_request_that_is_refused_for_something_else_is_not_repeated(vendor: str) -> None:
    async with serving(vendor, "tools: too many", PIXELS, "tools: too many") as (api, model):
        for asked in (1, 3):
            with pytest.raises(ModelError, match="tools: too many"):
                await ask(model, image(BAD))
            assert len(api.requests) == asked
        await ask(model, image(BAD))
        assert BAD in str(api.requests[3])  # nothing shows that it was to blame


async def test_a_run_that_reads_a_refused_image_goes_on(tmp_path: Path) -> None:
    (tmp_path / "page.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(30))
    read = Answer(tool_calls=[{"name": "read_file", "input": {"path": "/page.png"}}])
    answers = [read, Answer(status=400, message=PIXELS), Answer(text="Too large to see.")]
    async with FakeAnthropic(answers) as api, claude(api.url) as model:
        files = FilesystemMiddleware(DirectoryBackend(tmp_path))
        result = await create_agent(model, middleware=[files]).ainvoke("look")
        assert (result.run.status, result.run.answer) == ("done", "Too large to see.")
        assert "image" in [block["type"] for block in _results(api.requests[1])]
        assert "8000 pixels" in str(_results(api.requests[2]))


async def test_a_fallback_sees_what_the_first_model_refuses_and_the_last_leaves_it_out() -> None:
    first = [Answer(status=400, message=PIXELS) for _ in range(2)]
    last = [Answer(text="A cat."), Answer(status=400, message=PIXELS), Answer(text="Too large.")]
    async with FakeAnthropic(first) as one, FakeAnthropic(last) as other:
        async with claude(one.url) as model, claude(other.url) as following:
            agent = create_agent(model, middleware=[ModelFallbackMiddleware(following)])
            answers = [(await agent.ainvoke([image(BAD)])).run.answer for _ in range(2)]
        assert answers == ["A cat.", "Too large."]
        assert [BAD in str(sent) for sent in one.requests] == [True, True]
        assert [BAD in str(sent) for sent in other.requests] == [True, True, False]


def _results(body: dict[str, Any]) -> list[dict[str, Any]]:
    return body["messages"][-1]["content"][0]["content"]
