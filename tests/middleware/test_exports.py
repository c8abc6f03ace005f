"""The packages hand out what they name."""

import importlib
import inspect
import pkgutil

import deep_agent_mcp.harness.checkpoint
import deep_agent_mcp.harness.middleware
import deep_agent_mcp.harness.shell
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware


def test_every_name_is_there():
    for package in (
        deep_agent_mcp.harness.middleware,
        deep_agent_mcp.harness.checkpoint,
        deep_agent_mcp.harness.shell,
    ):
        for name in package.__all__:
            assert getattr(package, name).__name__ == name


def test_every_middleware_is_named():
    package = deep_agent_mcp.harness.middleware
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(found.name)
        public = {*getattr(module, "__all__", ())}
        for name, member in inspect.getmembers(module, inspect.isclass):
            if (
                name in public
                and member is not AgentMiddleware
                and issubclass(member, AgentMiddleware)
            ):
                assert name in package.__all__, f"{found.name}.{name}"
