"""What `task` takes beside a goal: a schema, a model, limits and files; and who may name whom."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from mcp import Client
from mcp.types import CallToolResult

from deep_agent_mcp.harness.loop.run.choices import RunChoices
from deep_agent_mcp.harness.messages.message import HumanMessage, ImageBlock
from deep_agent_mcp.harness.models.names import canonical_name
from deep_agent_mcp.harness.models.vendors import ALIASES
from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.auth.caller import ALL_SCOPES, Caller, Identify
from deep_agent_mcp.server.settings.settings import SettingsError
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.tools.task_options import require_allowed

pytestmark = pytest.mark.anyio

TOWN = {
    "title": "town",
    "type": "object",
    "properties": {"name": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["name", "people"],
}
BERN = {"name": "Bern", "people": 134_000}
LONG = {"name": "B" * 9_000, "people": 1}
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 40).decode()


def answer(data: dict[str, Any], call_id: str = "a") -> dict[str, Any]:
    return {"tool_calls": [{"id": call_id, "name": "town", "args": data}]}


LOOK = {"tool_calls": [{"id": "l", "name": "ls", "args": {"path": "/"}}]}
PLAN = {"tool_calls": [{"id": "p", "name": "write_todos", "args": {"todos": []}}]}
SPENDS = {**LOOK, "usage": {"input_tokens": 900}}
ANSWERS = [answer(BERN), {"text": "Done."}]
SCRIPT = {
    "runs": [
        {"match": "repair", "agents": {"main": [answer({"name": "Bern"}), answer(BERN, "b")]}},
        {"match": "long", "agents": {"main": [answer(LONG)]}},
        {"match": "ask", "agents": {"main": [LOOK, answer(BERN)]}},
        {"match": "spend", "agents": {"main": [SPENDS, SPENDS, {"text": "Done."}]}},
        {"match": "again", "agents": {"main": [answer({**BERN, "people": 2}, "c")]}},
        {"match": "words", "agents": {"*": [{"text": '{"not": "asked for"}'}]}},
        {"match": "plan", "agents": {"main": [PLAN, {"text": "Done."}]}},
        {"match": "town", "agents": {"main": [answer(BERN)]}},
    ],
    "agents": {"*": [{"text": "Done."}], "general-purpose": ANSWERS, "scout": ANSWERS},
}


@asynccontextmanager
async def serving(place: Path, **flags: object) -> AsyncGenerator[tuple[App, Client]]:
    script = place / "script.yaml"
    script.write_text(yaml.safe_dump(SCRIPT), encoding="utf-8")
    given = {"state_dir": str(place / "state"), "model": f"scripted:{script}", **flags}
    with anyio.fail_after(60):
        async with (
            create_app(load_settings(given, {})) as app,
            Client(app.server) as client,
        ):
            yield app, client


async def task(client: Client, goal: str, **given: Any) -> CallToolResult:
    return await client.call_tool("task", {"goal": goal, **given})


def text(result: CallToolResult) -> str:
    return "\n".join(getattr(one, "text", "") for one in result.content)


def data(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, text(result)
    return dict(result.structured_content or {})


@pytest.mark.parametrize("agent", ["", "general-purpose", "main"])
async def test_an_answer_comes_back_as_data_and_as_text(agent: str, tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        result = await task(client, "Which town?", output_schema=TOWN, agent=agent)
        assert data(result)["answer_data"] == BERN
        assert json.dumps(BERN) in text(result)
        if agent == "general-purpose":
            assert data(result)["task_id"] in text(result)
        plain = await task(client, "words")
        assert "answer_data" not in data(plain)


async def test_an_answer_that_does_not_fit_is_repaired_and_found_again_by_another_server(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as (_, client):
        first = data(await task(client, "repair", output_schema=TOWN))
        words = data(await task(client, "words"))
        assert first["answer_data"] == BERN
    async with serving(tmp_path) as (_, client):
        again = data(await client.call_tool("wait", {"run_id": first["run_id"]}))
        assert again["answer_data"] == BERN
        other = data(await client.call_tool("wait", {"run_id": words["run_id"]}))
        assert "answer_data" not in other


async def test_a_run_keeps_its_schema_over_an_approval_and_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path, approve=("ls",)) as (_, client):
        asked = data(await task(client, "ask", output_schema=TOWN))
        assert asked["status"] == "needs_approval"
    async with serving(tmp_path, approve=("ls",)) as (_, client):
        reply = {"run_id": asked["run_id"], "decision": "approve"}
        done = data(await client.call_tool("reply", reply))
        assert done["answer_data"] == BERN
        # What was chosen holds for those who go on with the run in words, too.
        more = {"run_id": asked["run_id"], "message": "again"}
        assert data(await client.call_tool("reply", more))["answer_data"]["people"] == 2


async def test_a_run_that_a_server_left_in_the_middle_keeps_what_was_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = {"match": "town", "agents": {"main": [{**answer(BERN), "delay": 600}]}}
    with monkeypatch.context() as patched:
        patched.setitem(SCRIPT, "runs", [slow])
        async with serving(tmp_path) as (_, client):
            begun = data(await task(client, "town", output_schema=TOWN, wait_seconds=0))
            assert begun["status"] == "running"
    async with serving(tmp_path) as (_, client):
        done = data(await client.call_tool("wait", {"run_id": begun["run_id"]}))
        assert done["answer_data"] == BERN


async def test_a_long_answer_comes_in_pages_of_json(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        page = data(await task(client, "long", output_schema=TOWN))
        assert "answer_data" not in page
        whole = page["answer"]
        given = {"run_id": page["run_id"], "answer_offset": len(whole)}
        whole += data(await client.call_tool("wait", given))["answer"]
        assert json.loads(whole) == LONG


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"output_schema": {"type": "array"}}, "schema of an object"),
        ({"output_schema": {"type": "object", "properties": 3}}, "not a JSON schema"),
        ({"output_schema": {**TOWN, "description": "x" * 40_000}}, "bytes"),
        ({"model": "anthropic:claude-opus-5-5"}, "--task-model"),
        ({"effort": "low"}, "--task-model"),
        ({"limits": {"tokens": 0}}, "limits"),
        ({"limits": {"money": 1}}, "limits"),
        ({"files": [{"name": "a"}]}, "set exactly one of them"),
        ({"files": [{"text": "a", "data": "b"}]}, "set exactly one of them"),
        ({"files": [{"data": "%%%"}]}, "not base64"),
        ({"files": [{"uri": "file:///etc/passwd"}]}, "its own resources only"),
        ({"files": [{"uri": "thread://thr_0123456789abcdef/files/a"}]}, "no thread"),
        ({"files": [{"uri": "skill://none/SKILL.md"}]}, "No skill"),
        ({"files": [{"text": "a"}] * 33}, "at most 32"),
        ({"files": [{"text": "a" * (8 << 20) + "b"}]}, "8,388,608"),
        ({"agent": "nobody"}, "no subagent 'nobody'"),
    ],
)  # fmt: skip
async def test_what_a_task_cannot_have_starts_nothing(
    given: dict[str, Any], why: str, tmp_path: Path
) -> None:
    async with serving(tmp_path) as (_, client):
        result = await task(client, "town", **given)
        assert result.is_error and why in text(result)
        assert data(await client.call_tool("threads", {}))["threads"] == []


async def test_callers_choose_among_the_models_the_operator_allows(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump({"name": "other", "agents": {"*": [{"text": "I am."}]}}))
    allowed = (f"scripted:{tmp_path}/*", "anthropic:claude-s*")
    async with serving(tmp_path, task_models=allowed) as (_, client):
        (tool,) = [one for one in (await client.list_tools()).tools if one.name == "task"]
        assert "anthropic:claude-s*" in tool.input_schema["properties"]["model"]["description"]
        chosen = data(await task(client, "words", model=f"scripted:{other}"))
        assert chosen["answer"] == "I am."
        chosen = data(await task(client, "Go", model=f"scripted:{other}", agent="general-purpose"))
        assert chosen["answer"].startswith("I am.")
        refused = await task(client, "words", model="openai:gpt-5.2")
        assert refused.is_error and "anthropic:claude-s*" in text(refused)
        refused = await task(client, "words", effort="low")
        assert refused.is_error and "no effort" in text(refused)
        assert text(refused).startswith("Nothing was started: ")


@pytest.mark.parametrize("glob", ["*", "*:x", "anthropic:", "claude-*"])
def test_a_glob_of_models_names_its_provider(glob: str) -> None:
    with pytest.raises(SettingsError, match="--task-model"):
        load_settings({"task_models": (glob,)}, {})


@pytest.mark.parametrize("spelling", [*ALIASES, "Google_GenAI"])
def test_models_are_allowed_in_every_spelling_of_their_vendor(spelling: str) -> None:
    usual = canonical_name(spelling)
    for glob in (f"{spelling}:m*", f"{usual}:m*"):
        settings = load_settings({"task_models": (glob,)}, {})
        for name in (f"{spelling}:m1", f"{usual}:m1"):
            allowed = require_allowed(RunChoices(model=name), settings)
            assert allowed.model == f"{usual}:m1"


async def test_limits_narrow_the_operators_and_say_so_where_they_do_not(tmp_path: Path) -> None:
    flags = {"limits": {"tokens": 5_000}}
    async with serving(tmp_path, **flags) as (_, client):
        narrow = await task(client, "spend", limits={"tokens": 1_000})
        assert narrow.is_error and "1,000 tokens allowed" in text(narrow)
        wide = data(await task(client, "spend", limits={"tokens": 90_000}))
        assert wide["status"] == "done"
        assert wide["notes"] == ["limits.tokens is 5,000, the server's limit, not 90,000."]


@pytest.mark.parametrize("on_disk", [True, False])
@pytest.mark.parametrize("agent", ["", "general-purpose"])
async def test_files_land_in_the_thread_and_are_named_to_the_agent(
    agent: str, on_disk: bool, tmp_path: Path
) -> None:
    (tmp_path / "root").mkdir()
    flags = {"root": str(tmp_path / "root")} if on_disk else {}
    async with serving(tmp_path, **flags) as (app, client):
        written = {"path": "/notes.md", "content": "Noted."}
        thread = data(await client.call_tool("write_file", written))["thread_id"]
        files = [
            {"name": "../../a.txt", "text": "A text."},
            {"name": "shot.png", "data": PNG},
            {"uri": f"thread://{thread}/files/notes.md"},
            {"name": "a.txt", "text": "Another."},
        ]
        done = data(await task(client, "Go", files=files, agent=agent, thread_id="new"))
        paths = [note.split()[3] for note in done["notes"]]
        assert [one.rpartition("/")[2] for one in paths] == [
            "a.txt", "shot.png", "notes.md", "a-2.txt",
        ]  # fmt: skip
        for path, expected in zip(paths, ("A text.", "", "Noted.", "Another."), strict=True):
            read = {"thread_id": done["thread_id"], "path": path}
            result = await client.call_tool("read_file", read)
            assert not result.is_error and expected in text(result)
        state = await app.agent().get_state(done["thread_id"])
        messages = state.values["messages"]
        if agent:
            assert paths[0] in str(messages[0])
        else:
            assert isinstance(messages[0], HumanMessage)
            assert paths[0] in messages[0].text
            assert [one.data for one in messages[0].content if isinstance(one, ImageBlock)] == [PNG]


@pytest.mark.parametrize("agent", ["", "general-purpose"])
async def test_files_land_in_a_thread_whose_last_run_was_cancelled_partway(
    agent: str, tmp_path: Path
) -> None:
    async with serving(tmp_path, approve=("write_todos",)) as (app, client):
        asked = data(await task(client, "Make a plan"))
        assert asked["status"] == "needs_approval"
        await app.runs.cancel(asked["run_id"], "enough")
        thread = asked["thread_id"]
        files = [{"name": "a.txt", "text": "A text."}, {"name": "b.txt", "text": "Another."}]
        done = data(await task(client, "Go", files=files, agent=agent, thread_id=thread))
        assert done["status"] == "done"
        for note, expected in zip(done["notes"], ("A text.", "Another."), strict=True):
            read = {"thread_id": thread, "path": note.split()[3]}
            assert expected in text(await client.call_tool("read_file", read))
        messages = (await app.agent().get_state(thread)).values["messages"]
        assert "write_todos did not run" in messages[2].text  # what was open is closed


async def test_files_go_only_where_the_policy_lets_agents_write(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rule]]\naction = "deny"\npath = "/inputs/**"\nreason = "closed"\n')
    async with serving(tmp_path, policy=(str(policy),)) as (_, client):
        refused = await task(client, "Go", files=[{"name": "a.txt", "text": "a"}])
        assert refused.is_error and "closed" in text(refused)


AGENT = "---\nname: {0}\ndescription: The {0}.\n{1}---\nYou are the {0}.\n"


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    folder = tmp_path / "agents"
    folder.mkdir()
    for name, more in (("scout", "public: true\n"), ("clerk", "public: true\n"), ("inner", "")):
        (folder / f"{name}.md").write_text(AGENT.format(name, more), encoding="utf-8")
    return folder


async def seen(client: Client) -> dict[str, Any]:
    """What lists show of subagents."""
    (tool,) = [one for one in (await client.list_tools()).tools if one.name == "task"]
    prompts = [one.name for one in (await client.list_prompts()).prompts]
    resources = [str(one.uri) for one in (await client.list_resources()).resources]
    return {
        "told": str(tool.input_schema["properties"]["agent"]["description"]),
        "prompts": {one.removeprefix("agent-") for one in prompts if one.startswith("agent-")},
        "resources": {one[8:] for one in resources if one.startswith("agent://")},
        "tools": {one.name for one in (await client.list_tools()).tools},
    }


async def test_where_some_subagents_are_public_only_those_are_offered(
    agents: Path, tmp_path: Path
) -> None:
    async with serving(tmp_path, agents=str(agents)) as (_, client):
        shown = await seen(client)
        assert shown["prompts"] == shown["resources"] == {"scout", "clerk"}
        assert "inner" not in shown["told"] and "ls" in shown["tools"]
        done = data(await task(client, "Go", agent="scout"))
        more = {"thread_id": done["thread_id"], "task_id": "sub-01234567"}
        unclear = await task(client, "Go", **more)
        assert unclear.is_error and "clerk, scout" in text(unclear)
        refused = await task(client, "Go", agent="inner")
        assert refused.is_error and "no subagent 'inner'" in text(refused)


@pytest.mark.parametrize(
    ("by_token", "by_settings"),
    [(("scout",), None), (None, ("scout",)), (("scout", "x"), ("scout",))],
)  # fmt: skip
async def test_who_is_bound_to_an_agent_sees_no_other(
    by_token: tuple[str, ...] | None,
    by_settings: tuple[str, ...] | None,
    agents: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bound = None if by_token is None else frozenset(by_token)
    ann = Caller("ann", ALL_SCOPES - {"admin"}, bound)
    monkeypatch.setattr(Identify, "_caller", lambda *_: ann)
    flags = {"principal_agents": {"ann": list(by_settings)}} if by_settings else {}
    async with serving(tmp_path, agents=str(agents), **flags) as (_, client):
        shown = await seen(client)
        assert shown["prompts"] == shown["resources"] == {"scout"}
        assert "scout" in shown["told"] and "clerk" not in shown["told"]
        assert shown["tools"] == {"task", "wait", "reply", "cancel", "threads", "rewind"}
        assert "write_todos" not in (client.instructions or "task")
        driven = await client.call_tool("ls", {})
        assert driven.is_error and "no tool 'ls'" in text(driven)
        done = data(await task(client, "Which town?", output_schema=TOWN))
        assert done["answer_data"] == BERN
        for other in ("main", "clerk"):
            refused = await task(client, "Go", agent=other)
            assert refused.is_error and "clerk," not in text(refused)
        going_on = await client.call_tool("reply", {"run_id": done["run_id"], "message": "more"})
        assert going_on.is_error and "main agent" in text(going_on)
        more = {"thread_id": done["thread_id"], "task_id": done["task_id"]}
        assert not (await task(client, "Go on with the town", **more)).is_error


async def test_who_is_bound_to_several_agents_has_to_say_which(
    agents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = Caller("ann", ALL_SCOPES, frozenset({"scout", "clerk"}))
    monkeypatch.setattr(Identify, "_caller", lambda *_: ann)
    async with serving(tmp_path, agents=str(agents)) as (_, client):
        unclear = await task(client, "Go")
        assert unclear.is_error and "clerk, scout" in text(unclear)
        assert not (await task(client, "Go", agent="clerk")).is_error


def test_principals_are_bound_to_agents_by_variable_and_file(tmp_path: Path) -> None:
    bound = {"ann": ("scout", "main"), "https://id.example#ben": ("clerk",)}
    variable = "ann=scout main,https://id.example#ben=clerk"
    assert load_settings({}, {"DEEP_AGENT_PRINCIPAL_AGENTS": variable}).principal_agents == bound
    file = tmp_path / "config.toml"
    file.write_text(
        '[principal_agents]\nann = ["scout", "main"]\n"https://id.example#ben" = ["clerk"]\n'
    )
    assert load_settings({}, {}, config=file).principal_agents == bound
    agent = tmp_path / "agent.toml"
    agent.write_text('[principals.ann]\nagents = ["scout"]\n')
    settings = load_settings({"agent_file": str(agent)}, {})
    assert settings.principal_agents == {"ann": ("scout",)}


@pytest.mark.parametrize("way", ["inputs", "inputs/{token}"])
async def test_files_go_through_no_link_to_where_the_policy_does_not_let_agents_write(
    way: str, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rule]]\naction = "ask"\npath = "**/.git/**"\nreason = "closed"\n')
    root = tmp_path / "root"
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "config").write_text("as it was")
    given = {"root": str(root), "execute": "host", "policy": (str(policy),)}
    async with serving(tmp_path, **given) as (_, client):
        files = [{"name": "config", "text": "fsmonitor = evil"}]
        token = blake2b(b"known", digest_size=4).hexdigest()
        link = root / way.format(token=token)
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(root / ".git")
        refused = await task(client, "Go", files=files, idempotency_key="known")
        assert refused.is_error and "closed" in text(refused), text(refused)
        link.unlink()
        done = data(await task(client, "Go", files=files, idempotency_key="known"))
        assert any(f"/{way.format(token=token)}" in one for one in done["notes"])  # the same place
    assert (root / ".git" / "config").read_text() == "as it was"
