"""Servers are named as clients write them, in a table or a JSON file."""

import json
import os

import pytest

from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.mcp_servers import (
    HttpServer,
    OAuth,
    SseServer,
    StdioServer,
    TokenFiles,
    servers_from_json,
    servers_from_mapping,
)

VARIABLES = {"TOKEN": "s3cret", "HOST": "api.example.com", "EMPTY": ""}


def read(base, /, **table):
    return servers_from_mapping(table, environ=VARIABLES, base=base)


def test_the_usual_shapes_are_read(tmp_path):
    tokens = TokenFiles(tmp_path / "logins")
    table = {
        "sqlite": {"command": "uvx", "args": ["mcp-sqlite", "--db", "data.db"]},
        "github": {
            "type": "http",
            "url": "https://${HOST}/mcp",
            "headers": {"Authorization": "Bearer ${TOKEN}"},
            "tools": ["search_*"],
            "approve": ["create_*"],
            "on_demand": True,
            "timeout": 5,
        },
        "old": {"type": "sse", "url": "http://localhost:1/sse"},
        "remote": {"url": "https://x.example/mcp", "auth": "oauth"},
        "known": {
            "url": "https://x.example/mcp",
            "auth": {"client_id": "ours", "client_secret": "${TOKEN}", "callback_port": 7777},
        },
        "off": {"command": "x", "disabled": True},
    }
    assert servers_from_mapping(table, environ=VARIABLES, base=tmp_path, tokens=tokens) == {
        "sqlite": StdioServer("uvx", ("mcp-sqlite", "--db", "data.db"), cwd=tmp_path),
        "github": HttpServer(
            "https://api.example.com/mcp",
            {"Authorization": "Bearer s3cret"},
            tools=("search_*",),
            approve=("create_*",),
            on_demand=True,
            timeout=5.0,
        ),
        "old": SseServer("http://localhost:1/sse"),
        "remote": HttpServer("https://x.example/mcp", auth=OAuth(tokens)),
        "known": HttpServer(
            "https://x.example/mcp",
            auth=OAuth(tokens, "ours", "s3cret", callback_port=7777),
        ),
    }


@pytest.mark.parametrize(
    ("written", "read_as"),
    [
        ("${TOKEN}", "s3cret"),
        ("${env:TOKEN}", "s3cret"),
        ("a${TOKEN}b${HOST}", "as3cretbapi.example.com"),
        ("${MISSING:-there}", "there"),
        ("${EMPTY:-there}", "there"),
        ("${MISSING:-}", ""),
        ("${EMPTY}", ""),
        ("$TOKEN {TOKEN}", "$TOKEN {TOKEN}"),
    ],
)
def test_variables_are_put_in_place(tmp_path, written, read_as):
    made = read(tmp_path, x={"command": "c", "env": {"KEY": written}, "args": [written]})["x"]
    assert (made.env, made.args) == ({"KEY": read_as}, (read_as,))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"command": "c", "env": {"KEY": "${MISSING}"}}, ["env.KEY", "MISSING is not set"]),
        ({"command": "c", "args": ["a", "${MISSING}"]}, ["args[1]", "MISSING"]),
        ({"command": "c", "env": {"KEY": "${input:key}"}}, ["env.KEY", "${input:key}"]),
        ({"command": "c", "arg": []}, ["'arg'", "Did you mean 'args'?"]),
        ({"url": "http://x", "header": {}}, ["'header'", "Did you mean 'headers'?"]),
        ({"url": "http://x", "auth": {"client": "x"}}, ["auth", "'client_id'"]),
        ({"url": "http://x", "auth": "basic"}, ["auth", "'oauth'"]),
        ({"url": "http://x", "auth": "oauth", "headers": {"authorization": "s3cret"}}, ["exclude"]),
        ({"url": "http://x", "command": "c"}, ["`command` or `url`", "both"]),
        ({}, ["`command` or `url`", "neither"]),
        ({"url": "http://x", "type": "stdio"}, ["does not go with url"]),
        ({"url": "http://x", "type": "ftp"}, ["type", "'streamable-http'"]),
        ({"url": "ftp://s3cret@x"}, ["http or https URL"]),
        ({"command": "c", "args": "s3cret"}, ["args", "a list of texts", "got a text"]),
        ({"command": "c", "args": [1]}, ["args[0]", "a text is expected; got 1"]),
        ({"command": "c", "env": ["s3cret"]}, ["env", "a table of texts"]),
        ({"command": "c", "timeout": "60"}, ["timeout", "seconds"]),
        ({"command": "c", "timeout": 0}, ["timeout", "more than 0"]),
        ({"command": "c", "on_demand": "yes"}, ["on_demand", "true or false"]),
        ("uvx s3cret", ["a table is expected"]),
    ],
)
def test_what_is_wrong_is_named_and_no_value_shown(tmp_path, table, words):
    with pytest.raises(AgentBuildError) as refused:
        read(tmp_path, **{"my server": table})
    text = str(refused.value)
    assert [
        one for one in ["MCP server 'my server'", "Nothing was", *words] if one not in text
    ] == []
    assert "s3cret" not in text


def test_values_of_variables_are_not_shown(tmp_path):
    made = read(
        tmp_path,
        a={"command": "c", "args": ["--key=${TOKEN}"], "env": {"K": "${TOKEN}"}},
        b={"url": "https://x/${TOKEN}", "headers": {"A": "${TOKEN}"}},
        c={"url": "https://x/", "auth": {"client_id": "x", "client_secret": "${TOKEN}"}},
    )
    assert "s3cret" not in repr(made)


@pytest.mark.parametrize("key", ["mcpServers", "servers"])
def test_a_clients_file_is_read_from_where_it_lies(tmp_path, monkeypatch, key):
    file = tmp_path / ".mcp.json"
    table = {"x": {"command": "c", "cwd": "sub", "env": {"K": "${OF_A_TEST}"}}}
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps({key: table}).encode())  # as Windows saves it
    monkeypatch.setenv("OF_A_TEST", "value")
    made = servers_from_json(file)
    assert made == {"x": StdioServer("c", env={"K": "value"}, cwd=tmp_path / "sub")}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "'mcpServers' and 'servers'"),
        ('{"mcpServers": []}', "'mcpServers' and 'servers'"),
        ('{"mcpServers": {}, "servers": {}}', "one of the keys"),
        ('{"servers": {"x": {"comand": "c"}}}', "MCP server 'x'"),
        (None, "not an existing file"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path, text, words):
    file = tmp_path / ".mcp.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(AgentBuildError) as refused:
        servers_from_json(file)
    assert words in str(refused.value)
    assert os.fspath(file) in str(refused.value)
