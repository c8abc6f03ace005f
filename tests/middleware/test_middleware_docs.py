"""docs/middleware.md names every middleware there is."""

import deep_agent_mcp.harness.middleware
from tests.doc_pages import DocPage


def test_every_middleware_is_on_the_page() -> None:
    text = DocPage("middleware.md").path.read_text(encoding="utf-8")
    ends = ("Middleware", "Emulator")
    named = [name for name in deep_agent_mcp.harness.middleware.__all__ if name.endswith(ends)]
    assert [name for name in named if f"`{name}`" not in text] == []
