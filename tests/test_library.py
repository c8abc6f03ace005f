"""`harness` as a library: what it exports, and what importing it costs."""

import subprocess
import sys

import pytest

from deep_agent_mcp import harness
from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.errors import AgentBuildError
from tests.loop.models import Turns


def test_every_exported_name_is_there():
    for name in harness.__all__:
        assert getattr(harness, name).__name__ == name


def test_importing_the_library_or_the_server_does_not_import_the_models_sdk():
    code = (
        "import sys, deep_agent_mcp.harness.deep_agent, deep_agent_mcp.server.app\n"
        "assert 'anthropic' not in sys.modules\n"
        "from deep_agent_mcp.harness import create_agent, create_deep_agent\n"
        "assert 'anthropic' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_engine_knows_nothing_of_the_server():
    code = (
        "import sys, deep_agent_mcp.harness.deep_agent, deep_agent_mcp.harness.checkpoint.sqlite\n"
        + (
            "found = {'.'.join(name.split('.')[:2]) for name in sys.modules}\n"
            "assert not found & {'mcp', 'deep_agent_mcp.server'}, found\n"
        )
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("checkpointer", "threads.db"),
        ("checkpointer", True),
        ("cache", True),
        ("cache", {}),
        ("limits", {"model_calls": 3}),
        ("policy", []),
        ("policy", ["deny all"]),
    ],
)
def test_an_option_of_a_wrong_type_is_refused_when_the_agent_is_built(option, value):
    with pytest.raises(AgentBuildError, match=f"{option}= takes"):
        create_agent(Turns(), **{option: value})


def test_none_is_as_good_as_nothing():
    agent = create_agent(Turns(), None, system_prompt=None, middleware=None)
    assert list(agent.tools) == []
