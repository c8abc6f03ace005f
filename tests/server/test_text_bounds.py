"""Names, ids, paths and patterns are short, whatever asks with them; what a file holds is not."""

from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from deep_agent_mcp.server.mcp.requests import MAX_NAME_BYTES, MAX_SAID_BYTES, too_long
from tests.server.test_every_tool import everything, text_of

pytestmark = pytest.mark.anyio

LONG = "a" * (MAX_NAME_BYTES + 1)


async def test_every_text_argument_of_every_tool_has_a_bound(tmp_path: Path) -> None:
    async with everything(tmp_path) as (_, client):
        tools = (await client.list_tools()).tools
        checked = 0
        for tool in tools:
            for name, schema in tool.input_schema["properties"].items():
                if name in ("content", "old_string", "new_string", "files"):
                    continue
                if schema.get("type") not in ("string", "object", "array"):
                    continue
                checked += 1
                most: Any = "a" * (MAX_SAID_BYTES + 1)
                needed = {one: "x" for one in tool.input_schema.get("required", ()) if one != name}
                result = await client.call_tool(tool.name, {**needed, name: most})
                assert result.is_error
                assert text_of(result).startswith(f"{tool.name} did nothing: {name} has 400,001")
        assert checked > 25
        result = await client.call_tool("ls", {"path": LONG})
        assert "at most 10,000 are accepted" in text_of(result)


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("read_resource", ("thread://" + LONG,)),
        ("get_prompt", (LONG,)),
        ("get_prompt", ("resume", {"thread_id": LONG})),
        ("get_prompt", ("resume", {LONG: "x"})),
        ("call_tool", (LONG,)),
    ],
)
async def test_texts_of_other_requests_are_refused(
    method: str, given: tuple[Any, ...], tmp_path: Path
) -> None:
    async with everything(tmp_path) as (_, client):
        asked: Client = client
        with pytest.raises(MCPError) as refused:
            await getattr(asked, method)(*given)
    assert str(refused.value).startswith("Nothing was done: ")
    assert len(str(refused.value)) < 500


def test_the_text_of_a_file_may_be_far_longer_than_a_name() -> None:
    assert too_long({"path": "/a", "content": LONG * 800}) is None
    assert "content has" in str(too_long({"content": LONG * 840}))
    assert "answers has" in str(too_long({"answers": {"a": [{"b": LONG * 41}]}}))


def test_a_client_may_listen_to_as_many_resources_as_it_may_watch() -> None:
    uris = [f"thread://thr_{number:032}/todos" for number in range(1_000)]
    assert too_long({"notifications": {"resourceSubscriptions": uris}}) is None
