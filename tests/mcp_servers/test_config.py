"""What a server may be, and what it costs to name one."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.mcp_servers import (
    HttpServer,
    MCPServer,
    MCPToolsMiddleware,
    SseServer,
    StdioServer,
)
from deep_agent_mcp.harness.mcp_servers.config import (
    check_names,
    digest_name,
    offered_names,
    prefix_of,
)
from tests.mcp_servers.support import ROOT


@pytest.mark.parametrize("target", ["touch /tmp/x", "http://127.0.0.1/mcp", "server.py"])
def test_a_string_can_never_start_a_process(target):
    with pytest.raises(AgentBuildError, match="StdioServer, HttpServer or SseServer is expected"):
        MCPToolsMiddleware({"x": target})


@pytest.mark.parametrize(
    "make",
    [
        lambda: MCPServer(),
        lambda: StdioServer(""),
        lambda: StdioServer("python", "server.py"),
        lambda: StdioServer("python", tools="a*"),
        lambda: StdioServer("python", timeout=0),
        lambda: HttpServer("https:"),
        lambda: HttpServer("stdio://x", connect_timeout=1),
        lambda: SseServer("/sse"),
        lambda: SseServer("http://x", connect_timeout=-1),
        lambda: MCPToolsMiddleware({"": StdioServer("x")}),
        lambda: MCPToolsMiddleware({"x" * 41: StdioServer("x")}),
        lambda: MCPToolsMiddleware({"git-hub": StdioServer("x"), "gitHub": StdioServer("x")}),
        lambda: MCPToolsMiddleware({"a": StdioServer("x")}).only(["b"]),
    ],
)
def test_nonsense_is_refused_when_it_is_written(make):
    with pytest.raises(AgentBuildError):
        make()


def test_secrets_are_not_shown():
    servers = StdioServer("x", env={"KEY": "secret"}), HttpServer("http://x", {"A": "secret"})
    assert "secret" not in repr(servers)


def test_naming_servers_does_not_import_the_sdk_or_start_anything():
    program = """
import sys, threading
from deep_agent_mcp import harness
from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.mcp_servers import *
from tests.loop.models import Turns
tools = MCPToolsMiddleware({"a": StdioServer("no-such-program"), "b": HttpServer("http://x/mcp")})
create_agent(Turns(), middleware=[tools.only(["a"])])
assert not {"mcp", "mcp_types", "httpx2"} & set(sys.modules)
assert threading.active_count() == 1
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_names_are_what_models_accept():
    names = offered_names("GitHub", ["createIssue", "get-file", "x" * 80, "ünïcode"])
    assert names["createIssue"] == "git_hub_create_issue"
    assert names["get-file"] == "git_hub_get_file"
    assert names["x" * 80] == digest_name("GitHub", "x" * 80)
    assert names["ünïcode"] == "git_hub__n_code"


def test_tools_of_one_server_that_read_alike_are_told_apart():
    names = offered_names("s", ["get.it", "get-it", "get_it"])
    assert names["get_it"] == "s_get_it"
    assert len(set(names.values())) == 3


def test_a_name_does_not_depend_on_which_servers_answer():
    servers = ["a", "a_b", "c"]
    assert offered_names("c", ["x"], servers) == {"x": "c_x"}
    # a's `b_c` and a_b's `c` would both be a_b_c
    assert offered_names("a", ["b_c"], servers)["b_c"] != offered_names("a_b", ["c"], servers)["c"]


server_names = st.lists(st.text("aB_-1", min_size=1, max_size=6), max_size=4, unique=True)


@given(server_names, st.lists(st.text(max_size=70), max_size=8, unique=True), st.randoms())
def test_every_tool_has_one_valid_name_of_its_own(servers, tools, random):
    try:
        check_names(servers)
    except AgentBuildError:
        return
    all_names = []
    for server in servers:
        names = offered_names(server, tools, servers)
        shuffled = random.sample(tools, len(tools))
        assert offered_names(server, shuffled, random.sample(servers, len(servers))) == names
        assert all(name.startswith(prefix_of(server)) for name in names.values())
        all_names += names.values()
    assert len(set(all_names)) == len(all_names)
    assert all(len(one) <= 64 and set(one) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")
               for one in all_names)  # fmt: skip
