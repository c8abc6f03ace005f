import json
from typing import Any

import pytest

from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    ImageBlock,
    Message,
    ProviderBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
)
from deep_agent_mcp.harness.models.base import PromptSection
from deep_agent_mcp.harness.tools.schemas import ToolSpec
from tests.fake_anthropic import FakeAnthropic
from tests.models.calls import ask, claude

pytestmark = pytest.mark.anyio

EPHEMERAL = {"type": "ephemeral"}


async def sent(
    *messages: Message | str,
    model: dict[str, Any] | None = None,
    model_id: str = "claude-sonnet-5-5",
    **fields: Any,
) -> dict[str, Any]:
    """Return the body of a request that the server accepted."""
    async with (
        FakeAnthropic(["ok"]) as api,
        claude(api.url, model_id, **(model or {})) as claude_model,
    ):
        await ask(claude_model, *messages, **fields)
    assert api.recorded[0].refused is None
    return api.requests[0]


def spec(name: str, *, cache: bool = False) -> ToolSpec:
    return ToolSpec(name, "Does it.", {"properties": {}}, cache)


def ai(*blocks: Any, **fields: Any) -> AIMessage:
    return AIMessage(blocks, **fields)


def marked(blocks: list[dict[str, Any]]) -> list[int]:
    return [place for place, block in enumerate(blocks) if "cache_control" in block]


async def test_only_what_was_asked_for_is_sent() -> None:
    body = await sent("hi", agent="main")
    assert body == {
        "model": "claude-sonnet-5-5",
        "max_tokens": 32_000,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "stream": True,
    }


async def test_settings_of_the_request_win_over_the_models() -> None:
    config = {"effort": "low"}
    model = {"max_tokens": 5, "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}
    body = await sent("hi", model=model, settings={"output_config": config, "max_tokens": 9})
    assert body["max_tokens"] == 9
    assert body["thinking"] == {"type": "adaptive"}
    assert body["output_config"] == config


async def test_sampling_parameters_go_out_only_when_set() -> None:
    async with FakeAnthropic(["ok"]) as api, claude(api.url) as model:
        with pytest.raises(ModelError, match="temperature"):
            await ask(model, "hi", settings={"temperature": 1.0})
    assert api.requests[0]["temperature"] == 1.0


@pytest.mark.parametrize(("betas", "header"), [(["a-1", "b-2"], "a-1,b-2"), ("a-1", "a-1")])
async def test_betas_travel_as_a_header(betas: Any, header: str) -> None:
    async with FakeAnthropic(["ok"]) as api, claude(api.url) as model:
        await ask(model, "hi", settings={"betas": betas})
    assert api.recorded[0].headers["anthropic-beta"] == header


async def test_messages_of_one_role_are_merged_with_results_first() -> None:
    body = await sent(
        "a",
        "b",
        ai(ToolCall("c1", "x")),
        ai(ToolCall("c2", "x")),
        HumanMessage("steer"),
        ToolMessage("c1", "r1"),
        ToolMessage("c2", ""),
    )
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    first, second, third = body["messages"][2]["content"]
    assert first == {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": [{"type": "text", "text": "r1"}],
    }
    assert second == {"type": "tool_result", "tool_use_id": "c2"}
    assert third == {"type": "text", "text": "steer"}


async def test_a_driven_transcript_is_made_acceptable() -> None:
    odd = "call/1 ü"
    body = await sent(
        ai(ToolCall(odd, "my tool!", {"a": 1}), source="client"),
        ToolMessage(odd, "done"),
        ai(TextBlock("fine")),
    )
    opening, call, result, last, end = body["messages"]
    assert opening["role"] == "user"
    assert call["content"][0]["id"] == result["content"][0]["tool_use_id"]
    assert call["content"][0]["name"] == "my_tool_"
    assert last["content"] == [{"type": "text", "text": "fine"}]
    assert end["role"] == "user"


async def test_odd_ids_map_the_same_way_in_every_request() -> None:
    def history(odd: str) -> list[Message]:
        return [HumanMessage("go"), ai(ToolCall(odd, "x")), ToolMessage(odd, "r")]

    first, again, other = [await sent(*history(odd)) for odd in ("a b", "a b", "a/b")]
    ids = [body["messages"][1]["content"][0]["id"] for body in (first, again, other)]
    assert ids[0] == ids[1] != ids[2]


async def test_empty_text_is_never_sent() -> None:
    body = await sent(
        HumanMessage(""),
        HumanMessage((TextBlock(" \n"), TextBlock("go"))),
        ai(TextBlock("")),
        "more",
        system=[PromptSection("empty", " "), PromptSection("agent", "Be good.")],
    )
    assert body["system"] == [{"type": "text", "text": "Be good."}]
    assert [b["text"] for m in body["messages"] for b in m["content"]] == ["go", "more"]


@pytest.mark.parametrize("content", ["", " \n", (TextBlock(""),), ()])
async def test_an_error_that_says_nothing_is_sent_as_one_that_says_so(content: Any) -> None:
    failed = ToolMessage("c", content, status="error")
    body = await sent("go", ai(ToolCall("c", "read_file")), failed)
    text = {"type": "text", "text": "(This call failed.)"}
    result = {"type": "tool_result", "tool_use_id": "c", "is_error": True, "content": [text]}
    assert body["messages"][-1]["content"] == [result]


async def test_an_empty_transcript_still_makes_a_request() -> None:
    body = await sent(system=[PromptSection("agent", "Begin.")])
    assert body["messages"][0]["role"] == "user"


async def test_what_other_providers_said_in_private_stays_home() -> None:
    body = await sent(
        "go", ai(ThinkingBlock("unsigned"), ProviderBlock("other", {"type": "x"}), TextBlock("a"))
    )
    assert body["messages"][1]["content"] == [{"type": "text", "text": "a"}]


async def test_images_travel_in_messages_and_results() -> None:
    image = ImageBlock("image/png", "aGk=")
    body = await sent(
        HumanMessage((image,)), ai(ToolCall("c1", "x")), ToolMessage("c1", (TextBlock("t"), image))
    )
    wire = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
    }
    assert body["messages"][0]["content"] == [wire]
    assert body["messages"][2]["content"][0]["content"][1] == wire


async def test_text_that_is_no_valid_unicode_can_be_sent() -> None:
    body = await sent("a\ud800b")
    assert body["messages"][0]["content"][0]["text"] == "a\ufffdb"


@pytest.mark.parametrize(
    ("choice", "wire"),
    [("any", {"type": "any"}), ("none", {"type": "none"}), ("a", {"type": "tool", "name": "a"})],
)
async def test_tool_choice_is_translated(choice: str, wire: dict[str, Any]) -> None:
    body = await sent("go", tools=[spec("a")], tool_choice=choice, model_id="claude-sonnet-5")
    assert body["tool_choice"] == wire
    assert body["tools"][0]["input_schema"] == {"type": "object", "properties": {}}
    assert "tool_choice" not in await sent("go", tool_choice=choice)


async def test_breakpoints_follow_what_the_harness_marked() -> None:
    body = await sent(
        "a",
        ai(TextBlock("b")),
        "c",
        tools=[spec("one"), spec("two", cache=True)],
        system=[
            PromptSection("agent", "A", cache=True),
            PromptSection("memory", "M"),
            PromptSection("more", "N"),
        ],
        cache_messages=[-1],
        settings={"cache_ttl": "1h"},
    )
    control = {**EPHEMERAL, "ttl": "1h"}
    assert body["system"] == [
        {"type": "text", "text": "A", "cache_control": control},
        {"type": "text", "text": "\n\nM\n\nN"},
    ]
    assert marked(body["tools"]) == [1]
    assert body["messages"][2]["content"][0]["cache_control"] == control


async def test_of_too_many_breakpoints_the_most_valuable_stay() -> None:
    body = await sent(
        *(HumanMessage(str(number)) for number in range(6)),
        tools=[spec("one", cache=True), spec("two", cache=True)],
        system=[PromptSection(name, name, cache=True) for name in "abc"],
        cache_messages=[0, 2, 4, 5],
    )
    assert marked(body["messages"][0]["content"]) == [4, 5]
    assert marked(body["system"]) == [1, 2]
    assert marked(body["tools"]) == []


async def test_breakpoints_of_raw_tools_and_automatic_caching_count_too() -> None:
    raw = {"type": "web_search_20260318", "name": "s", "cache_control": EPHEMERAL}
    body = await sent(
        "a",
        tools=[raw],
        system=[PromptSection(name, name, cache=True) for name in "ab"],
        cache_messages=[0],
        settings={"cache_control": EPHEMERAL},
    )
    assert "cache_control" not in body["tools"][0]
    assert raw["cache_control"] == EPHEMERAL
    assert marked(body["system"]) == [0, 1]


@pytest.mark.parametrize(
    ("own", "ttl", "sent_own"),
    [
        (EPHEMERAL, "1h", {**EPHEMERAL, "ttl": "1h"}),
        ({**EPHEMERAL, "ttl": "5m"}, "1h", {**EPHEMERAL, "ttl": "1h"}),
        ({**EPHEMERAL, "ttl": "1h"}, "5m", {**EPHEMERAL, "ttl": "1h"}),
        (EPHEMERAL, None, EPHEMERAL),
    ],
)
async def test_no_breakpoint_that_lives_long_comes_after_one_that_does_not(
    own: dict[str, Any], ttl: str | None, sent_own: dict[str, Any]
) -> None:
    raw = {"type": "web_search_20260318", "name": "s", "cache_control": own}
    body = await sent("a", tools=[raw], cache_messages=[0], settings={"cache_ttl": ttl})
    (block,) = body["messages"][0]["content"]
    assert body["tools"][0]["cache_control"] == sent_own
    assert block["cache_control"] == EPHEMERAL | ({"ttl": ttl} if ttl else {})


async def test_a_breakpoint_never_sits_on_a_thought() -> None:
    from tests.fake_anthropic import sign

    body = await sent(
        "a",
        ai(TextBlock("b"), ThinkingBlock("t", sign("t"))),
        "c",
        cache_messages=[1],
    )
    assert marked(body["messages"][1]["content"]) == [0]


async def test_arguments_that_json_cannot_hold_are_sent_in_other_words() -> None:
    args = {"a": "\ud800", "\ud83d": [float("nan"), 1.5, {"b": float("-inf")}]}
    body = await sent("go", ai(ToolCall("c1", "x", args)), ToolMessage("c1", "r"))
    assert body["messages"][1]["content"][0]["input"] == {
        "a": "\ufffd",
        "\ufffd": ["nan", 1.5, {"b": "-inf"}],
    }


async def test_settings_that_are_no_valid_unicode_are_refused_before_sending() -> None:
    async with FakeAnthropic(["ok"]) as api, claude(api.url) as model:
        with pytest.raises(ModelError, match="lone surrogate") as raised:
            await ask(model, "go", settings={"metadata": {"user_id": "\ud800"}})
    assert raised.value.kind == "invalid_request"
    assert api.requests == []


SEARCH = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}


def found(*names: str) -> ProviderBlock:
    references = [{"type": "tool_reference", "tool_name": name} for name in names]
    content = {"type": "tool_search_tool_search_result", "tool_references": references}
    kind = "tool_search_tool_result"
    return ProviderBlock("anthropic", {"type": kind, "tool_use_id": "s1", "content": content})


async def test_tools_that_wait_for_a_search_are_marked_and_never_carry_a_breakpoint() -> None:
    body = await sent(
        "go",
        tools=[SEARCH, spec("kept"), spec("far"), spec("farther", cache=True)],
        settings={"deferred_tools": ["far", "farther"]},
    )
    assert [one.get("defer_loading", False) for one in body["tools"]] == [False, False, True, True]
    assert marked(body["tools"]) == [1]
    assert "deferred_tools" not in body


async def test_a_tool_that_a_search_found_and_that_is_gone_is_not_referred_to() -> None:
    answer = ai(found("near", "gone"), TextBlock("b"))
    body = await sent("a", answer, "c", tools=[SEARCH, spec("near")])
    content = body["messages"][1]["content"][0]["content"]
    assert content["tool_references"] == [{"type": "tool_reference", "tool_name": "near"}]
    assert answer.content[0] == found("near", "gone")


async def test_alternatives_at_the_top_of_a_schema_are_told_in_words() -> None:
    kinds = [{"properties": {"kind": {"const": one}}, "required": ["kind"]} for one in "ab"]
    parameters = {
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "oneOf": [*kinds, {"properties": {"path": True, "line": {"type": "integer"}}}],
        "anyOf": [{"required": ["path"]}, True],
    }
    body = await sent("go", tools=[ToolSpec("look", "Looks.", parameters)])
    (tool,) = body["tools"]
    assert tool["input_schema"] == {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "kind": {"anyOf": [{"const": "a"}, {"const": "b"}]},
            "line": {"type": "integer"},
        },
        "required": ["path"],
    }
    text, _, rest = tool["description"].partition("schema: ")
    assert text == "Looks.\n\nThe arguments must also fit this JSON "
    assert json.loads(rest) == {key: parameters[key] for key in ("oneOf", "anyOf")}


async def test_properties_whose_names_the_api_refuses_are_told_in_words() -> None:
    long = "x" * 65
    parameters = {
        "properties": {name: {"type": "string"} for name in ("a.b-c", "$top", "filter[id]", long)},
        "required": ["a.b-c", "$top"],
        "additionalProperties": False,
    }
    body = await sent("go", tools=[ToolSpec("list", "Lists.", parameters)])
    (tool,) = body["tools"]
    assert tool["input_schema"] == {
        "type": "object",
        "properties": {"a.b-c": {"type": "string"}},
        "required": ["a.b-c"],
    }
    told = json.loads(tool["description"].partition("schema: ")[2])
    assert [*told["properties"]] == ["$top", "filter[id]", long]
    assert told["required"] == ["$top"]


async def test_other_schemas_are_sent_as_they_are() -> None:
    parameters = {
        "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "x" * 64: True},
        "required": ["a"],
        "additionalProperties": False,
    }
    body = await sent("go", tools=[ToolSpec("look", " Looks. ", parameters)])
    (tool,) = body["tools"]
    assert tool == {
        "name": "look",
        "description": " Looks. ",
        "input_schema": {"type": "object", **parameters},
    }
