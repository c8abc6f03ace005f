"""The todo list as clients drive it: the agent's own tool, whole and partial writes alike."""

from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.server.test_face import served

pytestmark = pytest.mark.anyio


async def test_a_client_writes_a_list_and_then_only_what_changes(tmp_path: Path) -> None:
    async with served(tmp_path) as app, Client(app.server) as client:
        (tool,) = [one for one in (await client.list_tools()).tools if one.name == "write_todos"]
        assert set(tool.input_schema["properties"]) == {"todos", "merge", "thread_id"}
        assert "anyOf" not in str(tool.input_schema)
        first = await client.call_tool(
            "write_todos", {"todos": [{"content": "read"}, {"content": "write"}]}
        )
        facts: Any = first.structured_content
        change = {"todos": [{"id": "t1", "status": "completed"}], "merge": True}
        second = await client.call_tool("write_todos", {**change, "thread_id": facts["thread_id"]})
        facts = second.structured_content
        assert [(one["id"], one["status"]) for one in facts["todos"]] == [
            ("t1", "completed"),
            ("t2", "pending"),
        ]
        refused = await client.call_tool(
            "write_todos",
            {"todos": [{"id": "t7"}], "merge": True, "thread_id": facts["thread_id"]},
        )
        assert refused.is_error
        assert "there is no item 't7'" in str(refused.content)
