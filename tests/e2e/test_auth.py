"""Over HTTP everybody has their own threads and runs; those of others do not exist for them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import ElicitRequestParams, ElicitResult, Request

from deep_agent_mcp.harness.mcp_servers.transports import sse_streams
from deep_agent_mcp.server.auth.caller import Caller, Scope
from deep_agent_mcp.server.auth.tokens import TokenFile
from tests.e2e.conftest import SCRIPT
from tests.e2e.servers import ERAS, Era, HttpServer, Setup, call, connected, refused
from tests.e2e.task_client import ANYTHING

pytestmark = pytest.mark.anyio

EVERYTHING: tuple[Scope, ...] = ("drive", "delegate", "approve")


def bare_client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(timeout=60, verify=False)  # reading CAs takes long


class House:
    """A server that asks for tokens, and the tokens of those who live in it."""

    def __init__(self, setup: Setup, server: HttpServer) -> None:
        self.setup = setup
        self.server = server
        self._tokens = TokenFile(setup.state / "tokens.json")
        self._made: dict[tuple[str, tuple[Scope, ...]], str] = {}

    def token(self, name: str, *scopes: Scope) -> str:
        wanted = (name, scopes or EVERYTHING)
        if wanted not in self._made:
            self._made[wanted] = self._tokens.create(name, wanted[1])[1]
        return self._made[wanted]

    def hand_out(self, name: str, token: str) -> None:
        self._made[(name, EVERYTHING)] = token

    @asynccontextmanager
    async def client(
        self, name: str, *scopes: Scope, mode: Era = "auto", transport: str = "http", **options: Any
    ) -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {self.token(name, *scopes)}"}
        if transport == "sse":
            target: Any = sse_streams(self.server.listening["sse_url"], headers)
            async with connected(target, mode, **options) as client:
                yield client
            return
        async with create_mcp_http_client(headers) as http:
            target = streamable_http_client(self.server.listening["url"], http_client=http)
            async with connected(target, mode, **options) as client:
                yield client

    async def request(
        self,
        name: str,
        method: str,
        params: dict[str, Any],
        scopes: tuple[Scope, ...] = (),
        http: httpx2.AsyncClient | None = None,
    ) -> dict[str, Any]:
        """Send one bare request of 2026-07-28 and return the answer's JSON."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {
                "elicitation": {"form": {}},
                "extensions": {
                    "io.modelcontextprotocol/tasks": {},
                    "io.modelcontextprotocol/agents": {},
                },
            },
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        named = next((params[key] for key in ("name", "uri", "taskId") if key in params), None)
        headers = {
            "Authorization": f"Bearer {self.token(name, *scopes)}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            **({"Mcp-Name": str(named)} if named is not None else {}),
        }
        async with AsyncExitStack() as stack:
            http = http or await stack.enter_async_context(bare_client())
            response = await http.post(self.server.listening["url"], json=body, headers=headers)
        text = response.text
        if response.headers["content-type"].startswith("text/event-stream"):
            text = [line for line in text.splitlines() if line.startswith("data: ")][-1][6:]
        return json.loads(text)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    place = tmp_path_factory.mktemp("house")
    config = place / "config.toml"
    config.write_text("max_requests_per_minute = 100000\n")
    flags = ["--auth", "token", "--approve", "edit_file", "--config", str(config)]
    flags += ["--experimental", "agents"]
    setup = Setup(place, flags=flags, script=SCRIPT)
    with setup.serving() as server:
        yield House(setup, server)


async def test_the_bearer_of_a_token_for_some_agents_has_those_alone(house: House) -> None:
    tokens = TokenFile(house.setup.state / "tokens.json")
    made = tokens.create("eve", EVERYTHING, agents=("general-purpose",))[1]
    house.hand_out("eve", made)
    with anyio.fail_after(60):
        async with house.client("eve") as eve:
            tools = {one.name for one in (await eve.list_tools()).tools}
            assert "task" in tools and "write_file" not in tools
            assert "no tool 'ls'" in await refused(eve, "ls")
            assert "no subagent 'main'" in await refused(eve, "task", goal="Go", agent="main")
            done = await call(eve, "task", goal="write a note")
            assert done["status"] == "done"


async def test_a_caller_is_shown_the_agents_and_tools_they_may_use(house: House) -> None:
    async def got(name: str, agent: str, *scopes: Scope) -> Any:
        answer = await house.request(name, "agents/get", {"name": agent}, scopes)
        if "error" in answer:
            return answer["error"]["data"]["reason"]
        return {one["name"] for one in answer["result"]["tools"]}

    async def roster(name: str, *scopes: Scope) -> list[str]:
        answer = await house.request(name, "agents/list", {}, scopes)
        return [one["name"] for one in answer["result"]["agents"]]

    with anyio.fail_after(60):
        assert await roster("ann") == ["general-purpose", "main"]
        assert {"ls", "task"} <= await got("ann", "main")
        assert await roster("dee", "delegate") == ["general-purpose", "main"]
        assert await got("dee", "main", "delegate") == {"task", "wait", "reply", "cancel"}
        assert await roster("abe", "approve") == []
        assert await got("abe", "main", "approve") == "agent_not_found"
        assert await got("abe", "nobody", "approve") == "agent_not_found"
        made = house.setup.state / "tokens.json"
        bound = TokenFile(made).create("gus", EVERYTHING, agents=("general-purpose",))[1]
        house.hand_out("gus", bound)
        assert await roster("gus") == ["general-purpose"]
        assert await got("gus", "main") == "agent_not_found"
        # The tools that clients drive are the main agent's.
        assert await got("gus", "general-purpose") == {"task", "wait", "reply", "cancel"}


async def accepting(context: Any, params: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"decision": "approve"})


async def test_without_a_token_only_the_health_is_shown(house: House) -> None:
    base = house.server.listening["url"].removesuffix("/mcp")
    async with httpx2.AsyncClient() as http:
        assert (await http.get(f"{base}/healthz")).status_code == 200
        leads = await http.get(f"{base}/")
        assert (leads.status_code, leads.headers["location"]) == (307, "ui")
        for method, path in (
            ("POST", "/mcp"),
            ("GET", "/sse"),
            ("POST", "/messages/?session_id=1"),
            ("GET", "/healthzz"),
            ("GET", "/uis"),
            ("GET", "//"),
        ):
            for authorization in (
                {},
                {"Authorization": "Bearer dam_x"},
                {"Authorization": "Basic"},
            ):
                answer = await http.request(method, base + path, headers=authorization)
                assert answer.status_code == 401, path
                assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(("transport", "mode"), list(product(("http", "sse"), ERAS)))
async def test_two_people_work_side_by_side_and_see_their_own(
    house: House, transport: str, mode: Era
) -> None:
    with anyio.fail_after(60):
        async with (
            house.client("ann", mode=mode, transport=transport) as ann,
            house.client("ben", mode=mode, transport=transport) as ben,
        ):
            done = await call(
                ann, "task", goal="write a note", idempotency_key=f"{transport}{mode}"
            )
            mine = await call(
                ben, "task", goal="write a note", idempotency_key=f"{transport}{mode}"
            )
            assert mine["run_id"] != done["run_id"]
            for who, first in ((ann, done), (ben, mine)):
                again = await call(who, "task", goal="x", idempotency_key=f"{transport}{mode}")
                assert again["run_id"] == first["run_id"]
            seen = {
                name: {one["thread_id"] for one in (await call(who, "threads"))["threads"]}
                for name, who in (("ann", ann), ("ben", ben))
            }
            assert done["thread_id"] in seen["ann"] and mine["thread_id"] in seen["ben"]
            assert not seen["ann"] & seen["ben"]
            error = await refused(ben, "wait", run_id=done["run_id"])
            assert "There is no run" in error
            assert done["run_id"] not in error.removeprefix(f"There is no run '{done['run_id']}'")


async def test_an_admin_sees_everybodys_threads(house: House) -> None:
    with anyio.fail_after(60):
        async with house.client("ann") as ann, house.client("root", "admin") as root:
            mine = await call(ann, "write_todos", todos=[])
            seen = await call(root, "threads", thread_id=mine["thread_id"])
    assert seen["thread_id"] == mine["thread_id"]


@pytest.mark.parametrize(
    ("scopes", "tool", "args", "needed"),
    [
        (("delegate",), "ls", {}, "drive"),
        (("drive",), "task", {"goal": "write a note"}, "delegate"),
        (("approve",), "cancel", {"run_id": "run_x"}, "delegate"),
        (("delegate",), "rewind", {"thread_id": "t", "checkpoint_id": "c"}, "drive"),
    ],
)
async def test_a_tool_needs_its_scope(
    house: House, scopes: tuple[Scope, ...], tool: str, args: dict[str, Any], needed: str
) -> None:
    with anyio.fail_after(60):
        async with house.client("eve", *scopes) as eve:
            error = await refused(eve, tool, **args)
    assert "did nothing" in error and f"'{needed}'" in error


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_that_may_not_approve_is_not_asked_and_cannot_decide(
    house: House, mode: Era
) -> None:
    with anyio.fail_after(60):
        async with house.client(
            "ann", "drive", "delegate", mode=mode, elicitation_callback=accepting
        ) as model:
            asked = await call(model, "task", goal="change the note")
            assert asked["status"] == "needs_approval"
            error = await refused(model, "reply", run_id=asked["run_id"], decision="approve")
            assert "'approve'" in error and "nothing was stored" in error
            chosen = {asked["pending"][0]["id"]: "approve"}
            assert "'approve'" in await refused(
                model, "reply", run_id=asked["run_id"], answers=chosen
            )
        async with house.client("ann", "approve", mode=mode) as person:
            done = await call(person, "reply", run_id=asked["run_id"], decision="approve")
    assert done["answer"] == "The note is changed."


async def test_a_token_with_the_scope_remember_makes_a_decision_last_by_a_reply(
    house: House,
) -> None:
    scopes: tuple[Scope, ...] = (*EVERYTHING, "remember")
    with anyio.fail_after(60):
        async with house.client("rita", *scopes) as person:
            asked = await call(person, "task", goal="change the note")
            reply = {"run_id": asked["run_id"], "decision": "approve", "remember": "always"}
            done = await call(person, "reply", **reply)
            assert done["answer"] == "The note is changed."
            (rule,) = done["rules"]
            assert rule["says"].startswith("Let main call edit_file with exactly these arguments")
            assert f'rules/revoke with id="{rule["id"]}"' in done["notes"][0]
            assert await rules_of(person) == [rule["id"]]
            # A client that did not get the result sends its reply once more.
            assert (await call(person, "reply", **reply))["rules"] == [rule]
            assert await rules_of(person) == [rule["id"]]
            again = await call(person, "task", goal="change the note", thread_id="new")
            assert again["status"] == "done"


@pytest.mark.parametrize("scopes", [("delegate", "approve"), EVERYTHING, ("admin",)])
@pytest.mark.parametrize("by_id", [True, False])
async def test_without_the_scope_remember_by_name_no_reply_makes_a_decision_last(
    house: House, scopes: tuple[Scope, ...], by_id: bool
) -> None:
    with anyio.fail_after(60):
        async with house.client("rex", *scopes) as client:
            asked = await call(client, "task", goal="change the note", thread_id="new")
            answer: dict[str, Any] = {"decision": "approve", "remember": "always"}
            if by_id:
                answer = {"answers": {asked["pending"][0]["id"]: answer}}
            error = await refused(client, "reply", run_id=asked["run_id"], **answer)
            assert "Nothing was stored" in error and "scope 'remember'" in error
            assert await rules_of(client) == []
            still = await call(client, "wait", run_id=asked["run_id"], wait_seconds=0)
            assert still["status"] == "needs_approval"
            await call(client, "cancel", run_id=asked["run_id"])


async def test_who_may_not_decide_does_not_make_a_decision_last_either(house: House) -> None:
    with anyio.fail_after(60):
        async with house.client("ren", "delegate", "remember") as client:
            asked = await call(client, "task", goal="change the note")
            answer = {"decision": "approve", "remember": "always"}
            error = await refused(client, "reply", run_id=asked["run_id"], **answer)
            assert "scope 'approve'" in error
            assert await rules_of(client) == []
        alone = await house.request("ren", "tools/list", {}, ("remember",))
        assert "none of this server's scopes" in alone["error"]["message"]


async def rules_of(client: Client) -> list[str]:
    (content,) = (await client.read_resource("studio://rules")).contents
    return [one["id"] for one in json.loads(content.text)["rules"]]  # type: ignore[union-attr]


async def test_no_carrier_takes_a_decision_of_who_may_not_decide(house: House) -> None:
    """As a task's input, as a repeated call with its user's own state, and as a task's update."""
    model: tuple[Scope, ...] = ("drive", "delegate")
    accepted = {"action": "accept", "content": {"decision": "approve"}}
    begin = {"name": "task", "arguments": {"goal": "change the note"}}
    with anyio.fail_after(60):
        made = (await house.request("sly", "tools/call", begin, model))["result"]
        task_id = made["taskId"]
        async with house.client("sly") as person:
            asked = await call(person, "wait", run_id=task_id)
        answers = dict.fromkeys((one["id"] for one in asked["pending"]), accepted)
        params = {"taskId": task_id, "inputResponses": answers}
        seen = (await house.request("sly", "tasks/get", {"taskId": task_id}, model))["result"]
        assert "inputRequests" not in seen
        await house.request("sly", "tasks/update", params, model)
        wait = {"name": "wait", "arguments": {"run_id": task_id}}
        shown = (await house.request("sly", "tools/call", wait))["result"]
        assert shown["resultType"] == "input_required"
        again = {**wait, "inputResponses": answers, "requestState": shown["requestState"]}
        assert "error" in await house.request("sly", "tools/call", again, model)
        still = (await house.request("sly", "tools/call", wait, model))["result"]
        assert still["structuredContent"]["status"] == "needs_approval"
        done = (await house.request("sly", "tools/call", again))["result"]
    assert done["structuredContent"]["answer"] == "The note is changed."


async def test_a_revoked_token_ends_what_its_bearer_can_do(house: House) -> None:
    made, secret = TokenFile(house.setup.state / "tokens.json").create("gone", EVERYTHING)
    house._made[("gone", EVERYTHING)] = secret  # pyright: ignore[reportPrivateUsage]
    assert "result" in await house.request("gone", "tools/list", {})
    TokenFile(house.setup.state / "tokens.json").revoke(made.id)
    await anyio.sleep(1.1)
    answer = await house.request("gone", "tools/list", {})
    assert answer["error"] == "invalid_token"


async def test_a_token_without_a_scope_gets_nothing(house: House) -> None:
    secret = TokenFile(house.setup.state / "tokens.json").create("none", ())[1]
    house._made[("none", EVERYTHING)] = secret  # pyright: ignore[reportPrivateUsage]
    for method, params in (("tools/list", {}), ("resources/read", {"uri": "threads://recent"})):
        answer = await house.request("none", method, params)
        assert "none of this server's scopes" in answer["error"]["message"]


async def test_no_position_takes_an_id_of_somebody_else(house: House) -> None:
    """Some 1,000 attempts: every id of one person in every place where another can write one."""
    with anyio.fail_after(150):
        async with house.client("victim") as victim:
            first = await call(victim, "task", goal="write a note")
            asking = await call(victim, "task", goal="change the note")
            helped = await call(victim, "task", goal="look around", agent="general-purpose")
            working = await call(victim, "task", goal="take your time", wait_seconds=0)
            shown = await call(victim, "threads", thread_id=first["thread_id"])
        checkpoint = shown["checkpoints"][0]["checkpoint_id"]
        thread, run = first["thread_id"], first["run_id"]
        ids = [thread, run, asking["thread_id"], asking["run_id"], checkpoint]
        ids += [
            asking["pending"][0]["id"],
            working["thread_id"],
            working["run_id"],
            thread.upper(),
            f"{thread}%20",
            f"{thread}/",
            f"./{run}",
            helped["thread_id"],
            *re.findall(r"sub-[0-9a-f]+", helped["answer"]),
        ]
        assert ids[-1].startswith("sub-")
        before = await house.request("victim", "tools/call", {"name": "threads", "arguments": {}})
        kinds = (_tool_calls, _subagents, _reads, _studio, _menus, _tasks, _completions)
        attempts = [one for kind in kinds for one in kind(ids)]
        assert len(attempts) >= 800
        secrets = ("write a note", "change the note", "The note is", "Writing it")
        limit = anyio.CapacityLimiter(16)

        async def attempt(method: str, params: dict[str, Any]) -> None:
            async with limit:
                answer = json.dumps(await house.request("mallory", method, params, http=http))
            assert "too_many_requests" not in answer  # it would be no attempt
            for id_ in ids:  # what was asked for may be named back
                answer = answer.replace(json.dumps(id_)[1:-1], "")
            assert not any(secret in answer for secret in secrets), (method, params, answer)
            assert first["thread_id"][-16:] not in answer, (method, params, answer)

        async with bare_client() as http, anyio.create_task_group() as group:
            for method, params in attempts:
                group.start_soon(attempt, method, params)
        after = await house.request("victim", "tools/call", {"name": "threads", "arguments": {}})
    facts = [one["result"]["structuredContent"]["threads"] for one in (before, after)]
    assert facts[0] == facts[1]
    async with house.client("victim") as victim:
        waiting = await call(victim, "wait", run_id=asking["run_id"])
        still = await call(victim, "wait", run_id=working["run_id"], wait_seconds=0)
        await call(victim, "cancel", run_id=working["run_id"])
    assert waiting["status"] == "needs_approval"
    assert still["status"] == "running"


def _tool_calls(ids: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    tools: dict[str, dict[str, Any]] = {
        "write_todos": {"todos": []},
        "ls": {},
        "read_file": {"path": "/note.txt"},
        "write_file": {"path": "/note.txt", "content": "mine"},
        "edit_file": {"path": "/note.txt", "old_string": "first", "new_string": "mine"},
        "glob": {"pattern": "**"},
        "grep": {"pattern": "."},
        "skill": {},
        "task": {"goal": "look around"},
        "threads": {},
    }
    for id_, (name, args) in product(ids, tools.items()):
        yield "tools/call", {"name": name, "arguments": {**args, "thread_id": id_}}
    for id_ in ids:
        for name in ("wait", "cancel", "reply"):
            yield "tools/call", {"name": name, "arguments": {"run_id": id_}}
        for extra in (
            {"decision": "approve"},
            {"message": "go on"},
            {"answers": {ids[5]: "approve"}},
        ):
            yield "tools/call", {"name": "reply", "arguments": {"run_id": id_, **extra}}
        for events in ({"events_after": 0}, {"answer_offset": 1}):
            yield "tools/call", {"name": "wait", "arguments": {"run_id": id_, **events}}
        for force in (True, False):
            args = {"thread_id": id_, "checkpoint_id": ids[4], "force": force}
            yield "tools/call", {"name": "rewind", "arguments": args}
        yield "tools/call", {"name": "threads", "arguments": {"thread_id": id_, "before": ids[4]}}
        args = {"thread_id": id_, "todos_after": 1}
        yield "tools/call", {"name": "threads", "arguments": args}
        yield "tools/call", {"name": "threads", "arguments": {"before": id_}}
        yield "tools/call", {"name": "task", "arguments": {"goal": "x", "idempotency_key": id_}}


def _subagents(ids: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for thread, task in product((*ids[:3], ids[-2], ""), ids):
        args = {"goal": "look around", "thread_id": thread, "task_id": task}
        yield "tools/call", {"name": "task", "arguments": args}
    for id_ in ids:
        args = {"goal": "look around", "agent": "general-purpose", "thread_id": id_}
        yield "tools/call", {"name": "task", "arguments": args}


def _reads(ids: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    parts = ("todos", "transcript", "checkpoints", "files", "files/note.txt", "files/../note.txt")
    for id_ in ids:
        for part in parts:
            yield "resources/read", {"uri": f"thread://{id_}/{part}"}
            yield "resources/read", {"uri": f"THREAD://{id_}/{part}"}
        for tail in ("events", "events?after=0", "events?after=1"):
            yield "resources/read", {"uri": f"run://{id_}/{tail}"}
        for uri in (f"ui://deep-agent/runs?run={id_}", f"ui://deep-agent/runs/{id_}"):
            yield "resources/read", {"uri": uri}
        for scheme in ("skill", "agent", "thread", "run"):
            for tail in ("", "/files"):
                uri = f"{scheme}://{id_}{tail}"
                yield "resources/read", {"uri": uri}
                yield "resources/directory/read", {"uri": uri}
    yield "resources/list", {}
    yield "resources/read", {"uri": "threads://recent"}


def _studio(ids: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    at, question = ids[4], ids[5]
    of_threads = ("overview", "steps", "writing", "agents", "history", "diff", "tree", "decisions")
    deeper = (f"at/{at}", f"at/{at}/files/note.txt", f"rewind/{at}", f"requests/{at}", "requests")
    for id_ in ids[:9]:
        for part in (*of_threads, *deeper):
            yield "resources/read", {"uri": f"thread://{id_}/{part}"}
        for tail in ("", "/questions", f"/questions/{question}", "/spans"):
            yield "resources/read", {"uri": f"run://{id_}{tail}"}
        yield "threads/fork", {"threadId": id_, "checkpointId": at}
        yield "threads/fork", {"threadId": id_}
        yield "threads/delete", {"threadId": id_, "confirm": id_}
        yield "rules/propose", {"runId": id_, "questionId": question}
        yield "rules/revoke", {"id": id_}
        yield "resources/read", {"uri": f"threads://search?q={id_}"}
        yield "resources/read", {"uri": f"runs://search?thread={id_}"}
    for own in (
        "inbox://questions",
        "threads://search",
        "runs://search",
        "studio://rules",
        "studio://fleet",
    ):
        yield "resources/read", {"uri": own}


def _menus(ids: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for id_ in ids:
        yield "prompts/get", {"name": "resume-thread", "arguments": {"thread_id": id_}}
        yield "prompts/get", {"name": id_, "arguments": {"thread_id": id_, "goal": "x"}}
        yield "skills/get", {"name": id_}


def _tasks(ids: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    accepted = {"action": "accept", "content": {"decision": "approve"}}
    for id_ in ids:
        yield "tasks/get", {"taskId": id_}
        yield "tasks/cancel", {"taskId": id_}
        yield "tasks/update", {"taskId": id_, "inputResponses": {ids[5]: accepted}}
        yield "subscriptions/listen", {"notifications": {"taskIds": [id_]}}


def _completions(ids: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    prompt = {"type": "ref/prompt", "name": "resume-thread"}
    for id_ in ids:
        argument = {"name": "thread_id", "value": id_[:8]}
        yield "completion/complete", {"ref": prompt, "argument": argument}
    for id_, argument in product(ids, ("thread_id", "checkpoint_id", "path")):
        for start in ("", "t", id_[:4]):
            yield (
                "completion/complete",
                {
                    "ref": {"type": "ref/resource", "uri": "thread://{thread_id}/files/{+path}"},
                    "argument": {"name": argument, "value": start},
                    "context": {"arguments": {"thread_id": id_}},
                },
            )


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_no_position_of_the_handshake_era_takes_them_either(
    house: House, transport: str
) -> None:
    recent, told = "threads://recent", list[str]()

    async def hear(message: Any) -> None:
        told.append(str(message))

    with anyio.fail_after(60):
        async with (
            house.client("prey") as prey,
            house.client(
                "malice", mode="legacy", transport=transport, message_handler=hear
            ) as mallory,
        ):
            asking = await call(prey, "task", goal="change the note")
            thread, run = asking["thread_id"], asking["run_id"]

            async def send(method: str, **params: Any) -> str:
                request = Request[dict[str, Any], str](method=method, params=params)
                try:
                    return json.dumps(await mallory.session.send_request(request, ANYTHING))
                except MCPError as refused:
                    return str(refused)

            for id_ in (thread, run, asking["pending"][0]["id"], f"{recent}#"):
                for method in ("tasks/get", "tasks/result", "tasks/cancel"):
                    assert "There is no run" in await send(method, taskId=id_)
                name = {"name": "wait", "arguments": {"run_id": id_}}
                await send("tools/call", **name, task={})
            assert run not in await send("tasks/list")
            owner = Caller("prey", frozenset()).owner
            for uri in (f"thread://{thread}/todos", f"{recent}#{owner}", f"run://{run}/events"):
                await send("resources/subscribe", uri=uri)
            await call(prey, "write_todos", todos=[])
            done = await call(prey, "reply", run_id=run, decision="approve")
            await call(prey, "write_todos", todos=[], thread_id=thread)
            await call(mallory, "ls")  # what is told of others would have come by then
            await anyio.sleep(0.3)
    assert done["answer"] == "The note is changed."
    assert not any(thread in one or run in one or "updated" in one for one in told), told


async def test_the_connections_of_others_take_no_messages(house: House) -> None:
    ann, ben = ({"Authorization": f"Bearer {house.token(name)}"} for name in ("ann", "ben"))
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    sse_url = house.server.listening["sse_url"]
    with anyio.fail_after(60):
        async with (
            httpx2.AsyncClient(timeout=60, verify=False) as http,
            http.stream("GET", sse_url, headers=ann) as stream,
        ):
            lines = stream.aiter_lines()
            path = ""
            while not path:
                _, _, path = (await anext(lines)).partition("data: ")
            url = sse_url.removesuffix("/sse") + path
            stolen = await http.post(url, json=ping, headers=ben)
            own = await http.post(url, json=ping, headers=ann)
    assert stolen.status_code == 404 and own.status_code == 202


async def test_changes_of_somebody_elses_thread_are_not_announced(house: House) -> None:
    with anyio.fail_after(60):
        async with house.client("ann") as ann, house.client("ben") as ben:
            thread = (await call(ann, "ls"))["thread_id"]
            uri = f"thread://{thread}/todos"
            async with (
                ben.listen(resource_subscriptions=[uri]) as hidden,
                ann.listen(resource_subscriptions=[uri]) as open_,
            ):
                await call(ann, "write_todos", todos=[], thread_id=thread)
                async for _ in open_:
                    break
                assert not hidden.honored.resource_subscriptions


async def test_a_recovered_run_still_acts_for_its_principal(tmp_path: Path) -> None:
    """A rule about a principal holds after a restart, too."""
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[[rule]]\naction = "deny"\ntool = "write_file"\nprincipal = "ann"\nreason = "no ink"\n'
    )
    script = {
        "name": "later",
        "runs": [
            {
                "match": "write later",
                "agents": {
                    "main": [
                        {"tool_calls": [{"name": "ls", "args": {"path": "/"}}]},
                        {
                            "delay": 1.5,
                            "tool_calls": [
                                {"name": "write_file", "args": {"path": "/x", "content": "x"}}
                            ],
                        },
                        {"text": "Tried."},
                    ]
                },
            }
        ],
    }
    setup = Setup(tmp_path, flags=["--auth", "token", "--policy", str(policy)], script=script)
    with anyio.fail_after(60):
        with setup.serving() as server:
            house = House(setup, server)
            async with house.client("ann") as ann:
                started = await call(ann, "task", goal="write later", wait_seconds=0)
            server.kill()
        with setup.serving() as server:
            house.server = server
            async with house.client("ann") as ann:
                done = await call(ann, "wait", run_id=started["run_id"])
                uri = f"thread://{done['thread_id']}/transcript"
                (shown,) = (await ann.read_resource(uri)).contents
    assert done["status"] == "done"
    assert "no ink" in getattr(shown, "text", "")
    assert not (setup.root / "x").exists()


async def test_an_admin_who_works_for_somebody_leaves_it_theirs(house: House) -> None:
    with anyio.fail_after(60):
        async with house.client("zoe") as zoe, house.client("root", "admin") as root:
            thread = (await call(zoe, "ls"))["thread_id"]
            asked = await call(root, "task", goal="change the note", thread_id=thread)
            done = await call(zoe, "reply", run_id=asked["run_id"], decision="approve")
    assert done["answer"] == "The note is changed."


async def test_no_scope_is_got_round(house: House) -> None:
    with anyio.fail_after(60):
        async with house.client("kim") as kim:
            working = await call(kim, "task", goal="take your time", wait_seconds=0)
            ended = await call(kim, "task", goal="write a note")
        async with house.client("kim", "drive") as driver:
            assert "'delegate'" in await refused(driver, "cancel", run_id=working["run_id"])
        async with house.client("kim", "approve") as person:
            error = await refused(person, "reply", run_id=ended["run_id"], message="more")
            assert "'delegate'" in error and "nothing was done" in error
        async with house.client("kim") as kim:
            await call(kim, "cancel", run_id=working["run_id"])


async def test_a_stream_ends_soon_after_its_token_was_revoked(house: House) -> None:
    record, secret = TokenFile(house.setup.state / "tokens.json").create("leaver", EVERYTHING)
    house._made[("leaver", EVERYTHING)] = secret  # pyright: ignore[reportPrivateUsage]
    with anyio.fail_after(60):
        async with house.client("leaver") as leaver:
            thread = (await call(leaver, "ls"))["thread_id"]
            uri = f"thread://{thread}/todos"
            async with leaver.listen(resource_subscriptions=[uri]) as changes:
                TokenFile(house.setup.state / "tokens.json").revoke(record.id)
                with pytest.raises(SubscriptionLost):
                    async for _ in changes:
                        pass


async def test_nobody_hears_that_others_are_at_work(house: House) -> None:
    recent = "threads://recent"
    hers = f"{recent}#{Caller('una', frozenset()).owner}"
    heard: list[object] = []
    with anyio.fail_after(60):
        async with (
            house.client("una") as una,
            house.client("vic") as vic,
            una.listen(resource_subscriptions=[recent]) as mine,
            vic.listen(resource_subscriptions=[recent, hers]) as theirs,
        ):
            assert theirs.honored.resource_subscriptions == [recent]

            async def listen() -> None:
                async for event in theirs:
                    heard.append(event)  # noqa: PERF401  the group is cancelled meanwhile

            async with anyio.create_task_group() as group:
                group.start_soon(listen)
                await call(una, "write_todos", todos=[])
                async for event in mine:
                    assert str(getattr(event, "uri", "")) == recent
                    break
                group.cancel_scope.cancel()
    assert heard == []


async def test_one_caller_cannot_take_all_runs_or_all_requests(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("max_runs = 2\nqueue_size = 0\nmax_requests_per_minute = 60\n")
    setup = Setup(tmp_path, flags=["--auth", "token", "--config", str(config)], script=SCRIPT)
    with anyio.fail_after(60), setup.serving() as server:
        house = House(setup, server)
        async with house.client("ann") as ann:
            for _ in range(2):
                await call(ann, "task", goal="take your time", wait_seconds=0)
            error = await refused(ann, "task", goal="take your time", wait_seconds=0)
            assert "nothing was started" in error
        async with house.client("eager") as eager:
            outcomes: list[bool] = []

            async def begin(number: int) -> None:
                args = {"goal": "take your time", "wait_seconds": 0, "idempotency_key": str(number)}
                outcomes.append((await eager.call_tool("task", args)).is_error is True)

            async with anyio.create_task_group() as group:
                for number in range(8):
                    group.start_soon(begin, number)
            assert sorted(outcomes) == [False] * 2 + [True] * 6
        async with house.client("ben") as ben:
            await call(ben, "task", goal="write a note")
        headers = {"Authorization": f"Bearer {house.token('flood')}"}
        async with httpx2.AsyncClient(headers=headers) as http:
            served, began = 0, anyio.current_time()
            while (answer := await http.post(server.listening["url"], json={})).status_code != 429:
                served += 1
            # Half of the requests of a minute at once, then one in a second.
            assert 30 <= served <= 31 + anyio.current_time() - began
        assert int(answer.headers["retry-after"]) >= 1
        assert "Nothing was done" in answer.text


async def test_one_caller_cannot_open_all_connections(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("max_sessions = 1\n")
    setup = Setup(tmp_path, flags=["--auth", "token", "--config", str(config)], script=SCRIPT)
    with anyio.fail_after(60), setup.serving() as server:
        house = House(setup, server)
        async with house.client("ann", mode="legacy") as first:
            await call(first, "ls")
            with pytest.raises(ExceptionGroup) as refusal:
                async with house.client("ann", mode="legacy"):
                    pass
            assert "connections open" in _deepest(refusal.value)
            async with house.client("ben", mode="legacy") as other, house.client("ann") as modern:
                await call(other, "ls")
                await call(modern, "ls")
        async with house.client("ann", mode="legacy") as again:
            await call(again, "ls")


def _deepest(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)


async def test_a_run_whose_principal_is_forgotten_is_not_continued(tmp_path: Path) -> None:
    script = {
        "name": "later",
        "runs": [{"match": "endure", "agents": {"main": [{"text": "Endured.", "delay": 1}]}}],
    }
    setup = Setup(tmp_path, flags=["--auth", "token"], script=script)
    with anyio.fail_after(60):
        with setup.serving() as server:
            house = House(setup, server)
            async with house.client("ann") as ann:
                started = await call(ann, "task", goal="endure", wait_seconds=0)
            server.kill()
        (setup.state / "principals.jsonl").write_bytes(b'\xff5\n["torn')
        with setup.serving() as server:
            house.server = server
            async with house.client("ben") as ben:
                await call(ben, "ls")
            log = (tmp_path / "stderr.txt").read_text()
            assert "is not continued" in log
            async with house.client("ann") as ann:
                done = await call(ann, "wait", run_id=started["run_id"])
    assert done["answer"] == "Endured."
