"""What differs between vendors is handled by the adapter: names, schemas, media, thoughts."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    AudioBlock,
    DocumentBlock,
    HumanMessage,
    ImageBlock,
    ProviderBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
    VideoBlock,
)
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from deep_agent_mcp.harness.models.base import ChatModel, is_overflow
from deep_agent_mcp.harness.models.registry import init_chat_model
from deep_agent_mcp.harness.tools.schemas import ToolSpec
from tests.fake_anthropic import FakeAnthropic
from tests.fake_vendors import FakeChat, FakeGoogle, FakeResponses, FakeVendor, Reply, ReplyCall
from tests.models.calls import ask, claude, collect, request

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
pytestmark = pytest.mark.anyio

LONG = "mcp__a_server_with_a_very_long_name__a_tool_with_a_very_long.name__that_goes_on"


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if name.endswith(("_API_KEY", "_BASE_URL")):
            monkeypatch.delenv(name)


@asynccontextmanager
async def model(name: str, server: FakeVendor, **settings: Any) -> AsyncIterator[ChatModel]:
    path = "" if name.startswith("google") else "/v1"
    known = {"api_key": "test-key", "max_retries": 0, **settings}
    made = init_chat_model(name, base_url=f"{server.url}{path}", **known)
    try:
        yield made
    finally:
        await made.aclose()


class Anything(FakeChat):
    """Chat Completions that accept any request."""

    def route(self, method: str, path: str, body: dict[str, Any]) -> bool:
        return True

    def check(self, body: Any) -> None:
        pass


def tool(name: str, **schema: Any) -> ToolSpec:
    return ToolSpec(name, "Does it.", {"type": "object", **schema})


async def test_a_tool_name_that_is_too_long_is_sent_short_and_comes_back_whole() -> None:
    async with FakeChat(Reply("ok")) as server, model("openai:m", server) as m:
        await ask(m, "go", tools=(tool(LONG),))
        short = server.requests[0]["tools"][0]["function"]["name"]
        assert short != LONG
        server.replies.append(Reply(calls=[ReplyCall(short, "{}")]))
        _, answer = await collect(m, request(["go"], tools=(tool(LONG),)))
        assert [call.name for call in answer.tool_calls] == [LONG]
        server.replies.append(Reply("done"))
        result = ToolMessage(answer.tool_calls[0].id, "fine", name=LONG)
        assert (await ask(m, "go", answer, result, tools=(tool(LONG),))).text == "done"


async def test_a_schema_with_alternatives_at_its_top_is_told_in_words() -> None:
    spec = tool("find", anyOf=[{"required": ["a"]}, {"required": ["b"]}], properties={"a": {}})
    async with FakeChat(Reply("ok")) as server, model("openai:m", server) as m:
        await ask(m, "go", tools=(spec,))
        sent = server.requests[0]["tools"][0]["function"]
    assert "anyOf" not in sent["parameters"]
    assert "anyOf" in sent["description"]


async def test_a_thread_begun_by_claude_goes_on_elsewhere_without_its_thoughts() -> None:
    thought = ThinkingBlock("secret plan", "signed-by-anthropic")
    server_block = ProviderBlock("anthropic", {"type": "server_tool_use", "id": "x"})
    call = ToolCall("toolu_01" + "a" * 60, "add", {"a": 1})
    begun = AIMessage((thought, server_block, TextBlock("Adding."), call), model="anthropic:claude")
    result = ToolMessage(call.id, "1", name="add")
    for fake, name in (
        (FakeChat, "openai:m"),
        (FakeResponses, "openai-responses:gpt-5.4"),
        (FakeGoogle, "google:gemini-3-pro-preview"),
    ):
        async with fake(Reply("ok")) as server, model(name, server) as m:
            assert (await ask(m, "go", begun, result, tools=(tool("add"),))).text == "ok"
            assert "secret plan" not in str(server.requests)


async def test_a_thread_begun_elsewhere_goes_on_with_claude() -> None:
    reply = Reply("Hm.", "a thought", [ReplyCall("add", '{"a": 1}')])
    async with FakeResponses(reply) as server, model("openai-responses:gpt-5.4", server) as m:
        begun = await ask(m, "go", tools=(tool("add"),))
    assert isinstance(begun.content[0], ThinkingBlock)
    result = ToolMessage(begun.tool_calls[0].id, "1", name="add")
    async with FakeAnthropic(["ok"]) as server, claude(server.url) as m:
        assert (await ask(m, "go", begun, result, tools=(tool("add"),))).text == "ok"
        assert "a thought" not in str(server.requests)


async def test_a_thought_that_was_edited_is_not_sent_back() -> None:
    reply = Reply("Hm.", "my key is 123", [ReplyCall("add", '{"a": 1}')])
    async with FakeResponses(reply, Reply("ok")) as server:
        async with model("openai-responses:gpt-5.4", server) as m:
            begun = await ask(m, "go", tools=(tool("add"),))
            edited = AIMessage(
                (ThinkingBlock("my key is …"), *begun.content[1:]), model=begun.model
            )
            result = ToolMessage(begun.tool_calls[0].id, "1", name="add")
            assert (await ask(m, "go", edited, result, tools=(tool("add"),))).text == "ok"
        assert "my key" not in str(server.requests[1])
        assert "encrypted" not in str(server.requests[1]["input"])


async def test_a_transcript_that_begins_and_ends_with_the_model_is_made_one_of_turns() -> None:
    name = "google:gemini-3-pro-preview"
    async with FakeGoogle(Reply("ok")) as server, model(name, server) as m:
        assert (await ask(m, AIMessage("I began."), AIMessage("And ended."))).text == "ok"


async def test_media_are_sent_where_they_are_taken_and_named_where_not() -> None:
    png, pdf = ImageBlock("image/png", "AAAA"), DocumentBlock("application/pdf", "AAAA")
    tiff = ImageBlock("image/tiff", "AAAA")
    async with FakeChat(Reply("ok")) as server, model("openai:gpt-5.4", server) as m:
        await ask(m, HumanMessage((TextBlock("see"), png, tiff, pdf)))
        blocks = server.requests[0]["messages"][-1]["content"]
    assert "image_url" in [block["type"] for block in blocks]
    assert "image/tiff: left out" in str(blocks)


async def test_gemini_is_sent_every_recording_and_film_that_it_takes() -> None:
    blocks = (
        *(AudioBlock(f"audio/{kind}", "AAAA") for kind in ("mpeg", "wav", "ogg", "flac")),
        *(VideoBlock(f"video/{kind}", "AAAA") for kind in ("mp4", "webm", "quicktime", "3gpp")),
        ImageBlock("image/heic", "AAAA"),
    )
    unknown = VideoBlock("video/x-matroska", "AAAA")
    async with FakeGoogle(Reply("ok")) as server:
        async with model("google:gemini-3-pro-preview", server) as m:
            await ask(m, HumanMessage((TextBlock("see"), *blocks, unknown)))
        parts = server.requests[0]["contents"][-1]["parts"]
    sent = [part["inlineData"]["mime_type"] for part in parts if "inlineData" in part]
    assert sent == [block.media_type for block in blocks]
    assert "video/x-matroska: left out" in str(parts)


async def test_a_film_and_a_recording_that_are_read_reach_a_model_that_takes_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "film").write_bytes(b"\0\0\0\x18ftypisom\0\0\2\0isomiso2rest")
    (tmp_path / "song").write_bytes(b"ID3\4\0\0xx")
    calls = [ReplyCall("read_file", f'{{"path": "/{name}"}}') for name in ("film", "song")]
    async with FakeGoogle(Reply(calls=calls), Reply("Seen.")) as server:
        async with model("google:gemini-3-pro-preview", server) as m:
            files = FilesystemMiddleware(DirectoryBackend(tmp_path))
            assert (await create_agent(m, middleware=[files]).ainvoke("look")).run.answer == "Seen."
        sent = json.dumps(server.requests[1])
    assert '"video/mp4"' in sent and '"audio/mpeg"' in sent and "left out" not in sent


async def test_an_image_in_a_result_reaches_the_model() -> None:
    call = ToolCall("call_1", "look")
    result = ToolMessage(
        "call_1", (TextBlock("here"), ImageBlock("image/png", "AAAA")), name="look"
    )
    async with FakeChat(Reply("ok")) as server, model("openai:m", server) as m:
        await ask(m, "go", AIMessage((call,)), result, tools=(tool("look"),))
        assert "data:image/png;base64,AAAA" in str(server.requests[0]["messages"])


@pytest.mark.parametrize(
    ("status", "error", "kind", "retryable"),
    [
        (400, "maximum context length is 8192 tokens", "overflow", False),
        (429, "insufficient_quota", "auth", False),
        (500, "oops", "server", True),
        (503, "overloaded", "overloaded", True),
        (404, "no such model", "invalid_request", False),
    ],
)
async def test_errors_mean_the_same_as_with_claude(
    status: int, error: str, kind: str, retryable: bool
) -> None:
    body = {"error": {"message": error, "type": error, "code": error}}
    async with FakeChat(Reply(status=status, error=body)) as server, model("openai:m", server) as m:
        with pytest.raises(ModelError) as raised:
            await ask(m, "go")
    assert (raised.value.kind, raised.value.retryable) == (kind, retryable)


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("xai:grok-4", 400, "This model's maximum prompt length is 131072, but"),
        ("moonshotai:kimi-k2", 400, "Your request exceeded model token limit: 262144"),
        ("zai:glm-4.6", 400, "Prompt exceeds max length"),
        ("cohere:command-a", 400, "too many tokens: size limit exceeded by 11326 tokens."),
        ("openai:m", 400, "input token count (9) exceeds the maximum number of tokens allowed"),
        ("openai:qwen3", 400, "Range of input length should be [1, 30720]"),
        ("vllm:m", 400, "The prompt (length 9) is longer than the maximum model length of 8"),
        ("together:m", 422, "`inputs` tokens + `max_new_tokens` must be <= 131073. Given: 140000"),
        ("openai:gpt-5.4", 429, "Request too large for m on tokens per min (TPM): Limit 30000"),
    ],
)
async def test_a_request_that_is_too_large_for_any_vendor_can_be_shortened(
    name: str, status: int, message: str
) -> None:
    refused = Reply(status=status, error={"error": {"message": message}})
    async with Anything(refused) as server, model(name, server) as m:
        with pytest.raises(ModelError, match="Shorten the conversation") as raised:
            await ask(m, "go")
    assert (raised.value.kind, raised.value.retryable) == ("overflow", False)
    assert not is_overflow("Too many tokens, please wait before trying again.")


async def test_an_error_whose_text_is_not_in_an_object_is_told_as_it_is() -> None:
    said = {"code": "invalid argument", "error": "Bad image."}
    async with Anything(Reply(status=400, error=said)) as server, model("xai:grok-4", server) as m:
        with pytest.raises(ModelError, match=r"refused the request \(400\): Bad image\. No answer"):
            await ask(m, "go")


@pytest.mark.parametrize(
    ("name", "vendor"),
    [("azure:m", "Azure OpenAI"), ("openai:m", "OpenAI"), ("cohere:m", "Cohere")],
)
async def test_a_refusal_names_the_vendor(name: str, vendor: str) -> None:
    filtered = Reply("x", stop="content_filter")
    async with Anything(filtered) as server, model(name, server) as m:
        with pytest.raises(ModelError, match=f"^{vendor} refused this conversation"):
            await ask(m, "go")


async def test_bedrock_says_what_is_wrong_in_the_same_kinds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (
        ("ACCESS_KEY_ID", "x"),
        ("SECRET_ACCESS_KEY", "y"),
        ("DEFAULT_REGION", "r"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)

    class Bedrock(FakeChat):
        def route(self, method: str, path: str, body: dict[str, Any]) -> bool:
            return path.endswith("/converse-stream")

        def check(self, body: Any) -> None:
            assert body["messages"][0]["role"] == "user"

    slow = Reply(status=429, error={"message": "slow down"})
    long = Reply(status=400, error={"message": "Input is too long for requested model."})
    async with Bedrock(slow, long) as server:
        m = init_chat_model("bedrock:amazon.nova-pro-v1:0", base_url=server.url)
        for kind in ("rate_limit", "overflow"):
            with pytest.raises(ModelError) as raised:
                await ask(m, "go")
            assert raised.value.kind == kind
        assert server.asked == 2  # its SDK repeats nothing
        await m.aclose()


@pytest.mark.parametrize("wrong", ["key", "address"])
@pytest.mark.parametrize("name", ["openai:m", "google:gemini-3-pro", "groq:m", "anthropic:claude"])
async def test_what_cannot_be_sent_is_not_waited_for(name: str, wrong: str) -> None:
    async with FakeChat() as server:
        key, url = ("secret\n", server.url) if wrong == "key" else ("secret", "nonsense")
        m = init_chat_model(name, api_key=key, base_url=url, max_retries=0)
        with pytest.raises(ModelError) as raised:
            await ask(m, "go")
        await m.aclose()
    assert not raised.value.retryable, raised.value
    assert "secret" not in str(raised.value)


async def test_missing_credentials_of_a_cloud_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [one for one in os.environ if one.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    plain = "http://127.0.0.1:9"
    for given, kind in (({}, "auth"), ({"api_key": "k", "base_url": plain}, "invalid_request")):
        m = init_chat_model("bedrock:amazon.nova-pro-v1:0", region="eu-central-1", **given)
        with pytest.raises(ModelError) as raised:
            await ask(m, "go")
        await m.aclose()
        assert (raised.value.kind, raised.value.retryable) == (kind, False), raised.value
    m = init_chat_model("bedrock:amazon.nova-pro-v1:0")
    with pytest.raises(ModelError, match="Set AWS_DEFAULT_REGION, or region beside"):
        await ask(m, "go")
    await m.aclose()


async def test_an_answer_cut_off_at_its_limit_says_so_and_its_last_call_does_not_run() -> None:
    cut = Reply("And", calls=[ReplyCall("add", "")], stop="length")
    async with FakeChat(cut) as server, model("openai:m", server) as m:
        answer = await ask(m, "go", tools=(tool("add"),))
    assert answer.stop_reason == "max_tokens"
    assert answer.tool_calls[0].invalid is not None


async def test_a_schema_for_the_answer_is_sent_where_the_vendor_holds_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    async with FakeResponses(Reply('{"a": 1}')) as server:
        async with model("openai-responses:gpt-5.4", server) as m:
            await ask(m, "go", output_schema={**schema, "additionalProperties": False})
        form = server.requests[0]["text"]["format"]
    assert form["type"] == "json_schema"
    assert init_chat_model("openai-responses:gpt-5.4").native_output
    assert not init_chat_model("ollama:gpt-oss").native_output


async def test_settings_go_through_and_those_of_claude_stay_behind() -> None:
    settings = {"max_tokens": 9, "top_k": 3, "cache_ttl": "1h", "betas": ["x"]}
    async with FakeChat(Reply("ok"), extras=("top_k", "max_tokens")) as server:
        async with model("openai:m", server) as m:
            await ask(m, "go", settings=settings)
        body = server.requests[0]
    assert 9 in (body.get("max_tokens"), body.get("max_completion_tokens"))
    assert not {"cache_ttl", "betas"} & body.keys()


async def test_a_missing_key_is_an_error_that_names_it() -> None:
    with pytest.raises(ModelError, match="set DEEPSEEK_API_KEY") as raised:
        await ask(init_chat_model("deepseek:deepseek-v4-pro"), "go")
    assert raised.value.kind == "auth"


def test_a_missing_extra_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mistralai", None)
    monkeypatch.setattr(
        "deep_agent_mcp.harness.models.vendors.model.find_spec",
        lambda name: None if name == "mistralai" else object(),
    )
    with pytest.raises(ModelError, match=r"pip install 'deep-agent-mcp\[mistral\]'"):
        init_chat_model("mistral:mistral-large")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("google_genai:g", "google:g"), ("MistralAI:m", "mistral:m"), ("grok:x", "xai:x")],
)
def test_usual_spellings_are_understood(name: str, meant: str) -> None:
    assert init_chat_model(name).name == meant


def test_windows_are_known_from_the_list_of_models() -> None:
    assert init_chat_model("openai:gpt-5.4").context_window == 1_050_000
    assert init_chat_model("ollama:qwen3", context_window=40_000).context_window == 40_000


def test_making_a_model_imports_nothing_of_its_vendor() -> None:
    code = (
        "import sys; from deep_agent_mcp.harness.models import registry as m;"
        "i = m.init_chat_model;"
        "i('anthropic:claude-sonnet-5-5'); assert not [m for m in sys.modules if 'vendors' in m];"
        "i('openai:gpt-5.4'); i('google:g'); assert not {'openai', 'pydantic_ai'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
