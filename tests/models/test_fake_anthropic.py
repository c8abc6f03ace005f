"""The fake server refuses what the real one refuses; other tests lean on that."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tests.fake_anthropic import Answer, FakeAnthropic, sign

pytestmark = pytest.mark.anyio

HEADERS = {"x-api-key": "k", "anthropic-version": "2026-10-21"}
USER = {"role": "user", "content": "hi"}
CACHED = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}

LONG = {**CACHED, "cache_control": {"type": "ephemeral", "ttl": "1h"}}


def use(call_id: str = "c1", name: str = "x", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}, **fields}


def result(call_id: str = "c1", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "r", **fields}


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "input_schema": {"type": "object"}, **fields}


def says(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def holds(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "schema": schema}


TEXT = {"type": "text", "text": "t"}
ANY = {"type": "any"}
CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}


async def post(url: str, body: Any, headers: dict[str, str] | None = None) -> httpx2.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with httpx2.AsyncClient() as client:
        return await client.post(
            f"{url}/v1/messages", content=content, headers=HEADERS if headers is None else headers
        )


async def answer_to(**body: Any) -> httpx2.Response:
    whole = {"model": "m", "max_tokens": 9, "messages": [USER], **body}
    async with FakeAnthropic(["fine"]) as api:
        return await post(api.url, {key: value for key, value in whole.items() if value != "-"})


BAD: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": "-"}, "max_tokens: Field required"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "9"}, "max_tokens"),
    ({"max_tokens": 10**6}, "max_tokens"),
    ({"model": "-"}, "model: Field required"),
    ({"messages": []}, "at least one message"),
    ({"messages": "-"}, "at least one message"),
    ({"temperature": 1.0}, "temperature"),
    ({"top_p": 1.0}, "top_p"),
    ({"top_k": 5}, "top_k"),
    ({"agent_name": "main"}, "agent_name: Extra inputs"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "role"),
    ({"messages": [says("assistant", TEXT), USER]}, "first message"),
    ({"messages": [USER, says("assistant", TEXT)]}, "prefill"),
    ({"messages": [{"role": "user", "content": ""}]}, "non-empty"),
    ({"messages": [says("user")]}, "non-empty content"),
    ({"messages": [says("user", {"type": "text", "text": " "})]}, "non-whitespace"),
    ({"system": [{"type": "text", "text": ""}]}, "system"),
    ({"messages": [USER, says("assistant", use()), USER]}, "without `tool_result` blocks"),
    ({"messages": [USER, says("assistant", use())]}, "without `tool_result` blocks"),
    ({"messages": [USER, says("assistant", use()), says("user", TEXT, result())]}, "without"),
    ({"messages": [says("user", result())]}, "unexpected `tool_use_id`"),
    ({"messages": [USER, says("assistant", use(), use()), says("user", result())]}, "unique"),
    (
        {"messages": [USER, says("assistant", use()), says("user", result(), result("c2"))]},
        "unexpected `tool_use_id`",
    ),
    ({"messages": [USER, says("assistant", use("a b")), says("user", result("a b"))]}, "pattern"),
    ({"messages": [USER, says("assistant", use(name="a.b")), says("user", result())]}, "pattern"),
    ({"messages": [USER, says("assistant", use(input=[])), says("user", result())]}, "dictionary"),
    ({"messages": [USER, says("assistant", use(status=1)), says("user", result())]}, "Extra"),
    ({"messages": [says("user", use())]}, "`tool_use` blocks can only be"),
    ({"messages": [says("user", {"type": "provider"})]}, "does not match any tag"),
    (
        {
            "messages": [
                USER,
                says("assistant", {"type": "thinking", "thinking": "a", "signature": sign("b")}),
                USER,
            ]
        },
        "Invalid `signature`",
    ),
    ({"tools": [tool("a"), tool("a")]}, "unique"),
    ({"tools": [tool("a.b")]}, "pattern"),
    ({"tools": [tool("a" * 129)]}, "pattern"),
    ({"tools": [{"name": "a", "input_schema": {}}]}, "input_schema"),
    ({"tools": [tool("a", input_schema={"type": "object", "oneOf": []})]}, "at the top level"),
    (
        {"tools": [tool("a", input_schema={"type": "object", "properties": {"$top": {}}})]},
        "Property keys should match",
    ),
    (
        {
            "messages": [
                USER,
                says("assistant", use()),
                says("user", result(content="", is_error=True)),
            ]
        },
        "content cannot be empty",
    ),
    ({"system": [CACHED], "messages": [says("user", LONG)]}, "must not come after"),
    ({"tool_choice": {"type": "any"}}, "while providing tools"),
    ({"tools": [tool("a")], "tool_choice": {"type": "tool", "name": "b"}}, "not found"),
    ({"tools": [tool("a")], "tool_choice": ANY, "model": "claude-opus-5-5"}, "not supported"),
    ({"tools": [tool("a")], "tool_choice": ANY, "thinking": {"type": "adaptive"}}, "Thinking may"),
    ({"output_format": holds({"type": "string"})}, "Extra inputs"),
    ({"output_config": {"schema": {}}}, "output_config.schema: Extra inputs"),
    ({"output_config": {"effort": "huge"}}, "effort"),
    ({"output_config": {"format": {"type": "json"}}}, "format.type"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "Field required"),
    ({"output_config": {"format": {**holds({}), "strict": True}}}, "format.strict"),
    ({"output_config": {"format": holds({"type": "object"})}}, "explicitly set to false"),
    ({"output_config": {"format": holds({})}}, "type is required"),
    ({"output_config": {"format": holds({"type": "integer", "minimum": 1})}}, "'minimum'"),
    (
        {
            "system": [CACHED, CACHED],
            "messages": [says("user", CACHED, CACHED)],
            "tools": [tool("a", cache_control={"type": "ephemeral"})],
        },
        "maximum of 4 blocks",
    ),
]


@pytest.mark.parametrize(("body", "complaint"), BAD)
async def test_what_the_api_refuses_is_refused(body: dict[str, Any], complaint: str) -> None:
    response = await answer_to(**body)
    assert response.status_code == 400
    assert response.json()["type"] == "error"
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert complaint in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": [USER, USER]},
        {"system": "be good", "tools": [tool("a")], "tool_choice": {"type": "any"}},
        {"messages": [USER, says("assistant", use()), says("user", result(), TEXT)]},
        {"messages": [USER, says("assistant", use()), says("user", result()), USER]},
        {"system": [CACHED, CACHED], "messages": [says("user", CACHED, CACHED)]},
        {"system": [LONG], "messages": [says("user", CACHED)]},
        {"messages": [USER, says("assistant", use()), says("user", result(content=""))]},
        {"output_config": {"effort": "low", "format": holds(CLOSED)}},
        {"tools": [tool("a")], "tool_choice": ANY, "thinking": {"type": "disabled"}},
    ],
)
async def test_what_the_api_accepts_is_answered(body: dict[str, Any]) -> None:
    response = await answer_to(**body)
    assert response.status_code == 200
    assert response.json()["content"] == [{"type": "text", "text": "fine"}]


async def test_a_request_without_a_key_is_unauthenticated() -> None:
    async with FakeAnthropic(["fine"]) as api:
        response = await post(api.url, {}, {"anthropic-version": "2026-10-21"})
        assert response.status_code == 401
        assert response.json()["error"]["type"] == "authentication_error"
        assert (await post(api.url, {}, {"x-api-key": "k"})).status_code == 400
        assert (await post(api.url, b"{oops")).status_code == 400
        assert len(api.answers) == 1


async def test_the_stream_has_the_apis_order_of_events() -> None:
    answer = Answer(thinking="t", text="ab", tool_calls=[{"name": "x", "input": {"a": 1}}])
    async with FakeAnthropic([answer]) as api:
        body = {"model": "m", "max_tokens": 9, "messages": [USER], "stream": True}
        text = (await post(api.url, body)).text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    names = [line[7:] for line in text.splitlines() if line.startswith("event: ")]
    assert names == [event["type"] for event in events]
    assert names[:2] == ["message_start", "ping"]
    assert names[-2:] == ["message_delta", "message_stop"]
    deltas = [event["delta"]["type"] for event in events if event["type"] == "content_block_delta"]
    assert list(dict.fromkeys(deltas)) == [
        "thinking_delta",
        "signature_delta",
        "text_delta",
        "input_json_delta",
    ]
    assert names.count("content_block_start") == names.count("content_block_stop") == 3
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


async def test_answers_can_be_picked_by_what_the_request_says() -> None:
    answers = [Answer(text="B", match="bravo"), Answer(text="A", match="alpha", repeat=True)]
    async with FakeAnthropic(answers) as api:
        texts: list[str] = []
        for goal in ("alpha", "bravo", "alpha"):
            message = {"role": "user", "content": goal}
            body = {"model": "m", "max_tokens": 9, "messages": [message]}
            texts.append((await post(api.url, body)).json()["content"][0]["text"])
        assert texts == ["A", "B", "A"]
        message = {"role": "user", "content": "bravo"}
        left = await post(api.url, {"model": "m", "max_tokens": 9, "messages": [message]})
        assert "no answer left" in left.text


async def test_it_runs_as_a_process(tmp_path: Path) -> None:
    script = tmp_path / "answers.yaml"
    script.write_text("- text: from afar\n- {status: 429}\n", encoding="utf-8")
    command = [sys.executable, "-m", "tests.fake_anthropic", "--port", "0", "--script", str(script)]
    root = Path(__file__).parents[2]
    with anyio.fail_after(30):
        async with await anyio.open_process(
            command, cwd=root, env={**os.environ}, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None
            url = (await process.stdout.receive()).decode().strip()
            body = {"model": "m", "max_tokens": 9, "messages": [USER]}
            assert (await post(url, body)).json()["content"][0]["text"] == "from afar"
            assert (await post(url, body)).status_code == 429
            process.terminate()
