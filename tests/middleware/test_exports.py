"""The packages hand out what they name."""

import deep_agent_mcp.harness.checkpoint
import deep_agent_mcp.harness.middleware
import deep_agent_mcp.harness.shell


def test_every_name_is_there():
    for package in (
        deep_agent_mcp.harness.middleware,
        deep_agent_mcp.harness.checkpoint,
        deep_agent_mcp.harness.shell,
    ):
        for name in package.__all__:
            assert getattr(package, name).__name__ == name


def test_every_middleware_with_a_file_of_its_own_is_named():
    named = {
        getattr(deep_agent_mcp.harness.middleware, name).__module__
        for name in deep_agent_mcp.harness.middleware.__all__
    }
    assert "deep_agent_mcp.harness.middleware.todo_list" in named
    assert len(named) >= 26
