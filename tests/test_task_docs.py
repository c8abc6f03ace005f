"""docs/task.md names every argument of `task`."""

from deep_agent_mcp.server.tools.delegation import TaskArguments
from tests.doc_pages import DocPage

PAGE = DocPage("task.md")


def test_every_argument_is_named() -> None:
    text = PAGE.path.read_text(encoding="utf-8")
    assert [one for one in TaskArguments.model_fields if f"`{one}`" not in text] == ["goal"]
