"""An answer of any vendor counts only when its events are events, and its end is one."""

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.messages.message import HumanMessage, ImageBlock
from deep_agent_mcp.harness.models.registry import init_chat_model
from deep_agent_mcp.harness.tools.schemas import ToolSpec
from tests.fake_vendors import (
    FakeChat,
    FakeGoogle,
    FakeMistral,
    FakeResponses,
    FakeVendor,
    Reply,
    ReplyCall,
)
from tests.fake_vendors.bedrock import FakeBedrock, event
from tests.models import stages
from tests.models.calls import ask
from tests.ports_and_waits import growing
from tests.sampled_cases import few

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
pytestmark = pytest.mark.anyio

READ = ToolSpec("read_file", "Reads.", {"type": "object", "properties": {}})
CALL = ReplyCall("read_file", '{"n": 1, "path": "a"}', "callcall1")
WHOLE = Reply("Let me read.", "Hm, hm hm.", [CALL])

_Make = Callable[..., FakeVendor]
VENDORS: dict[str, tuple[str, _Make, str, dict[str, Any]]] = {
    "openai": ("openai:m", FakeChat, "/v1", {}),
    "deepseek": ("deepseek:deepseek-v4-pro", stages.deepseek, "", {}),
    "openai-responses": ("openai-responses:gpt-5.4", FakeResponses, "/v1", {}),
    "google": ("google:gemini-3-pro-preview", FakeGoogle, "", {"thinking": True}),
    "groq": ("groq:qwen3-32b", stages.groq, "", {}),
    "openrouter": ("openrouter:qwen/qwen3", stages.openrouter, "/v1", {}),
    "mistral": ("mistral:magistral-medium", FakeMistral, "", {}),
}
BEDROCK = (
    "bedrock:amazon.nova-pro-v1:0",
    FakeBedrock,
    "",
    {"api_key": None, "region": "eu-central-1"},  # a key would go over HTTPS only
)
ALL = {**VENDORS, "bedrock": BEDROCK}
NO_EVENTS = ("[]", "null", "7", '"x"', "{}", "<html>502 Bad Gateway</html>", "half")
ERRORS: tuple[dict[str, Any], ...] = (
    {"error": {"message": "Overloaded", "type": "overloaded_error", "code": 529}},
    {"error": {"message": "Overloaded now", "status": "UNAVAILABLE", "code": 503}},
    {"error": "upstream went away"},
)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")


def mutated(frames: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """Yield what was done to the frames of an answer, and what is sent then."""
    end = b"\r\n\r\n" if frames[0].endswith(b"\r\n\r\n") else b"\n\n"
    for place, frame in enumerate(frames):
        before, data, _ = frame.partition(b"data: ")
        if data.strip() == b"[DONE]":
            continue
        for no_event in NO_EVENTS:
            said = data.strip()[: len(data) // 2] if no_event == "half" else no_event.encode()
            changed = before + b"data: " + said + end
            yield f"{place} is {no_event}", [*frames[:place], changed, *frames[place + 1 :]]
        for error in ERRORS:
            failed = b"data: " + json.dumps(error).encode() + end
            yield f"{error} before {place}", [*frames[:place], failed]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", VENDORS)
async def test_a_stream_with_an_event_that_is_none_leaves_no_answer(
    name: str, pytestconfig: pytest.Config
) -> None:
    """It is an error that may pass, and never an answer without what could not be read."""
    model_id, make, path, settings = VENDORS[name]
    async with make() as server:
        known = {"api_key": "k", "max_retries": 0, **settings}
        model = init_chat_model(model_id, base_url=f"{server.url}{path}", **known)
        frames_of, sent = server.frames, list[bytes]()

        def note(reply: Reply, body: Any) -> list[bytes]:
            sent[:] = frames_of(reply, body)
            return sent

        server.frames = note
        server.replies.append(copy.deepcopy(WHOLE))
        whole = await ask(model, "go", tools=[READ])
        assert [call.args for call in whole.tool_calls] == [{"n": 1, "path": "a"}]
        ways = [*mutated([*sent])]
        assert len(ways) >= 30
        for what, frames in few(pytestconfig, ways, 8):
            server.frames = lambda reply, body, frames=frames: frames
            server.replies.append(copy.deepcopy(WHOLE))
            with pytest.raises(ModelError, match="No answer was kept") as raised:
                pytest.fail(f"{what}: {await ask(model, 'go', tools=[READ])}")
            assert raised.value.retryable, what
        await model.aclose()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("throttlingException", "rate_limit"),
        ("serviceUnavailableException", "overloaded"),
        ("internalServerException", "server"),
        ("modelStreamErrorException", "server"),
    ],
)
async def test_bedrock_may_fail_in_the_middle_and_nothing_is_kept(name: str, kind: str) -> None:
    model_id, make, _, settings = BEDROCK
    async with make() as server:
        model = init_chat_model(model_id, base_url=server.url, **settings)
        whole = [*server.frames(Reply("Half a word"), {})]
        garbled = whole[1][:-8] + b"x" + whole[1][-7:]
        broken = [whole[:place] for place in range(len(whole) - 2)]
        broken += [[*whole[:2], whole[2][:20]], [whole[0], garbled, *whole[2:]]]
        failed = [*whole[:2], event(name, "exception", message="too busy")]
        for frames in (failed, *broken):
            server.frames = lambda reply, body, frames=frames: frames
            server.replies.append(Reply())
            with pytest.raises(ModelError, match="No answer was kept") as raised:
                await ask(model, "go")
            assert raised.value.retryable
            assert raised.value.kind == (kind if frames is failed else "connection")
        await model.aclose()


@pytest.mark.parametrize("frames", [0, 2])
@pytest.mark.parametrize("name", sorted(VENDORS.keys() - {"google"}))  # its SDK refuses comments
async def test_a_server_that_only_sends_comments_is_not_waited_for_without_end(
    name: str, frames: int
) -> None:
    model_id, make, path, settings = VENDORS[name]
    told = ""
    async with make() as server:
        for seconds in growing(0.05, 1.0):
            server.replies = [Reply("Let me read.", "Hm, hm hm.", comments_after=frames)]
            known = {"api_key": "k", "max_retries": 0, "timeout": seconds, **settings}
            model = init_chat_model(model_id, base_url=f"{server.url}{path}", **known)
            with anyio.fail_after(30), pytest.raises(ModelError) as raised:
                await ask(model, "go")
            await model.aclose()
            told = str(raised.value)
            assert (raised.value.kind, raised.value.retryable) == ("connection", True)
            if "nothing but pings or comments" in told:
                break
    assert "nothing but pings or comments" in told


# --- why an answer ended --------------------------------------------------------------------

CUT_OFF = {
    "openai": ("length", "max_tokens", "model_length", "model_context_window_exceeded"),
    "deepseek": ("length",),
    "openai-responses": ("max_output_tokens",),
    "google": ("MAX_TOKENS",),
    "groq": ("length",),
    "openrouter": ("length",),
    "mistral": ("length", "model_length"),
    "bedrock": ("max_tokens", "model_context_window_exceeded"),
}
BROKEN_OFF = {
    "openai": ("abort", "error", "network_error", "timeout"),
    "deepseek": ("insufficient_system_resource",),
    "openai-responses": ("something_new",),
    "google": ("OTHER", "TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE", "SOMETHING_NEW"),
    "groq": ("something_new",),
    "openrouter": ("error", "something_new"),
    "mistral": ("error", "something_new"),
    "bedrock": ("malformed_model_output", "something_new"),
}
REFUSED = {
    "openai": ("content_filter", "sensitive"),
    "openai-responses": ("content_filter",),
    "google": ("SAFETY", "RECITATION"),
    "mistral": ("content_filter",),
    "bedrock": ("guardrail_intervened",),
}


def cases(words: dict[str, tuple[str, ...]]) -> list[Any]:
    return [(name, word) for name, some in words.items() for word in some]


async def run_of(name: str, *replies: Reply) -> tuple[Any, int]:
    """Return the result of a run, and how often the model was asked."""
    model_id, make, path, settings = ALL[name]
    async with make(*replies) as server:
        known = {"api_key": "k", "max_retries": 0, **settings}
        model = init_chat_model(model_id, base_url=f"{server.url}{path}", **known)
        result = await create_agent(model).ainvoke("go")
        await model.aclose()
    return result, server.asked


@pytest.mark.parametrize(("name", "word"), cases(CUT_OFF))
async def test_an_answer_that_any_vendor_cut_off_goes_on(name: str, word: str) -> None:
    result, asked = await run_of(name, Reply("Half ", stop=word), Reply("an answer."))
    assert (result.run.status, result.run.answer) == ("done", "Half an answer.")
    assert asked == 2


@pytest.mark.filterwarnings("ignore:.*is not a valid FinishReason")
@pytest.mark.parametrize(("name", "word"), cases(BROKEN_OFF))
async def test_an_answer_that_a_vendor_broke_off_is_none(name: str, word: str) -> None:
    result, asked = await run_of(name, Reply("Half ", stop=word))
    assert (result.run.status, asked) == ("failed", 1)
    assert isinstance(result.error, ModelError)
    assert result.error.retryable
    assert len(result.state["messages"]) == 1


@pytest.mark.parametrize(("name", "word"), cases(REFUSED))
async def test_an_answer_that_a_vendor_stopped_for_what_it_says_is_a_refusal(
    name: str, word: str
) -> None:
    result, _ = await run_of(name, Reply("Half ", stop=word))
    assert isinstance(result.error, ModelError)
    assert (result.error.kind, result.error.retryable) == ("refusal", False)


@pytest.mark.parametrize("name", ALL)
async def test_an_empty_answer_of_any_vendor_is_asked_for_once_more(name: str) -> None:
    result, asked = await run_of(name, Reply(""), Reply("Here."))
    assert (result.run.status, result.run.answer, asked) == ("done", "Here.", 2)
    result, asked = await run_of(name, Reply(""), Reply(""))
    assert (result.run.status, asked) == ("failed", 2)
    assert "answer was empty" in (result.run.reason or "")


async def test_words_of_a_server_of_ones_own_for_an_end_are_understood() -> None:
    for word in ("eos", "stop_sequence", "end_turn"):
        result, _ = await run_of("openai", Reply("Whole.", stop=word))
        assert (result.run.status, result.run.answer) == ("done", "Whole.")


class FailedResponses(FakeResponses):
    """Ends the first stream with a failure that has only a code."""

    code = ""

    def frames(self, reply: Reply, body: Mapping[str, Any]) -> Iterable[bytes]:
        if reply.text:
            yield from super().frames(reply, body)
            return
        whole: dict[str, Any] = {
            "id": "r",
            "model": "m",
            "created_at": 1,
            "output": [],
            "tools": [],
        }
        error = {"code": self.code, "message": "No."}
        for status in ("created", "failed"):
            response = {**whole, "status": status, "error": error if status == "failed" else None}
            data = {"type": f"response.{status}", "response": response, "sequence_number": 0}
            yield f"data: {json.dumps(data)}\n\n".encode()


@pytest.mark.parametrize(
    ("code", "kind", "retryable"),
    [
        ("invalid_prompt", "invalid_request", False),
        ("image_content_policy_violation", "invalid_request", False),
        ("cyber_policy", "invalid_request", False),
        ("rate_limit_exceeded", "rate_limit", True),
        ("vector_store_timeout", "connection", True),
    ],
)
async def test_a_stream_that_fails_for_a_lasting_reason_is_not_asked_for_again(
    code: str, kind: str, retryable: bool
) -> None:
    async with FailedResponses(Reply()) as server:
        server.code = code
        model = init_chat_model("openai-responses:m", base_url=f"{server.url}/v1", api_key="k")
        with pytest.raises(ModelError) as raised:
            await ask(model, "go")
        await model.aclose()
    assert (raised.value.kind, raised.value.retryable) == (kind, retryable)


async def test_an_image_that_is_refused_inside_a_stream_is_left_out() -> None:
    async with FailedResponses(Reply(), Reply("Seen.")) as server:
        server.code = "image_parse_error"
        model = init_chat_model("openai-responses:m", base_url=f"{server.url}/v1", api_key="k")
        image = HumanMessage((ImageBlock("image/png", "AAAA"),))
        assert (await ask(model, image)).text == "Seen."
        assert "provider refused it: image_parse_error: No]" in str(server.requests[1])
        await model.aclose()


async def test_a_call_that_groq_could_not_read_is_asked_for_again() -> None:
    error = {"error": {"message": "Failed to call a function.", "code": "tool_use_failed"}}
    async with stages.groq(Reply(status=400, error=error)) as server:
        model = init_chat_model("groq:m", base_url=server.url, api_key="k", max_retries=0)
        with pytest.raises(ModelError, match="Run it again") as raised:
            await ask(model, "go", tools=[READ])
        await model.aclose()
    assert (raised.value.kind, raised.value.retryable) == ("server", True)
