"""Scenarios of the draft extension `io.modelcontextprotocol/agents`, written against its text.

`python -m tests.conformance.agents_draft URL` runs them against any server over Streamable HTTP.
The text: `proposals/0000-mcp-agent-discovery-extension.md` in `modelcontextprotocol/agents-wg`, as
of August 2026. Each scenario cites the sentence that it checks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio
import httpx2

__all__ = ["EXTENSION", "SCENARIOS", "Subject", "Wire"]

EXTENSION = "io.modelcontextprotocol/agents"
REVISION = "2026-07-28"
_META = "io.modelcontextprotocol/"
SECONDS = 20


@dataclass
class Wire:
    """A client of 2026-07-28 over Streamable HTTP that sends single messages.

    Attributes:
        url: The server's endpoint.
        declares: Whether requests declare the extension.
    """

    url: str
    declares: bool = True

    async def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request; return its result."""
        answer = await self.answer(method, **params)
        assert "result" in answer, answer
        return answer["result"]

    async def error(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request that must fail; return its error."""
        answer = await self.answer(method, **params)
        assert "error" in answer, answer
        return answer["error"]

    async def answer(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request; return the response."""
        async with self.stream(method, **params) as messages:
            async for message in messages:
                if "id" in message:
                    return message
        raise AssertionError(f"{method}: the stream ended without a response")

    @asynccontextmanager
    async def stream(
        self, method: str, **params: Any
    ) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Send a request; yields the messages of the response."""
        extensions = {EXTENSION: {}} if self.declares else {}
        meta = {
            f"{_META}protocolVersion": REVISION,
            f"{_META}clientCapabilities": {"extensions": extensions},
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": REVISION,
            "Mcp-Method": method,
        }
        if method == "tools/call":
            headers["Mcp-Name"] = params["name"]
        async with (
            httpx2.AsyncClient(timeout=SECONDS, verify=False) as client,
            client.stream("POST", self.url, json=body, headers=headers) as response,
        ):
            yield _messages(response)


async def _messages(response: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    if "event-stream" not in response.headers.get("content-type", ""):
        yield json.loads(await response.aread())
        return
    async for line in response.aiter_lines():
        if line.startswith("data:") and line[5:].strip():
            yield json.loads(line[5:])


async def _nothing() -> None:
    """Change nothing."""


@dataclass
class Subject:
    """The server under test.

    Attributes:
        url: Its endpoint.
        hidden: An agent that exists, but is hidden from the caller.
        broken: An agent with an invalid definition.
        change: Function that changes the list of agents; None if there is none.
    """

    url: str
    hidden: str = ""
    broken: str = ""
    change: Callable[[], Awaitable[None]] | None = None
    wire: Wire = field(init=False)

    def __post_init__(self) -> None:
        self.wire = Wire(self.url)

    async def roster(self) -> dict[str, dict[str, Any]]:
        """Return all cards by name."""
        cards: dict[str, dict[str, Any]] = {}
        more: dict[str, str] = {}
        while True:
            page = await self.wire("agents/list", **more)
            for card in page["agents"]:
                assert card["name"] not in cards, card["name"]
                cards[card["name"]] = card
            if "nextCursor" not in page:
                return cards
            more = {"cursor": page["nextCursor"]}

    async def some(self) -> list[str]:
        """Return the names of agents; if there are many, a few from all parts of the list."""
        names = [*await self.roster()]
        return [*dict.fromkeys([*names[:: len(names) // 5 + 1], *names[-4:]])]

    async def tools(self) -> dict[str, dict[str, Any]]:
        """Return all tools in `tools/list`, by name."""
        tools: dict[str, dict[str, Any]] = {}
        more: dict[str, str] = {}
        while True:
            page = await self.wire("tools/list", **more)
            tools |= {one["name"]: one for one in page["tools"]}
            if "nextCursor" not in page:
                return tools
            more = {"cursor": page["nextCursor"]}


Scenario: TypeAlias = Callable[[Subject], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {}


def _scenario(check: Scenario) -> Scenario:
    SCENARIOS[check.__name__.replace("_", "-")] = check
    return check


# --- negotiation ---------------------------------------------------------------------------


@_scenario
async def declared_in_discovery(subject: Subject) -> None:
    """A server declares support in its discovery response."""
    found = await subject.wire("server/discover")
    declared = found["capabilities"]["extensions"][EXTENSION]
    assert declared.get("listChanged") in (None, True, False), declared


@_scenario
async def not_declared_to_older_clients(subject: Subject) -> None:
    """The extension rides on the discovery response and per-request capabilities of 2026-07-28."""
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": _INFO}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening}
    headers = {"Accept": "application/json, text/event-stream"}
    async with (
        httpx2.AsyncClient(timeout=SECONDS, verify=False) as client,
        client.stream("POST", subject.url, json=body, headers=headers) as response,
    ):
        async for message in _messages(response):
            capabilities = message["result"]["capabilities"]
            assert EXTENSION not in (capabilities.get("extensions") or {}), capabilities
            return


_INFO = {"name": "agents-draft", "version": "1"}


@_scenario
async def core_needs_no_extension(subject: Subject) -> None:
    """A server MUST NOT require clients to support it to use core MCP functionality.

    "This extension does not change `tools/list` semantics. A server MUST NOT omit a tool from
    `tools/list` solely because that tool is associated with one or more agents."
    """
    plain = await Wire(subject.url, declares=False)("tools/list")
    aware = await subject.wire("tools/list")
    assert plain["tools"] == aware["tools"] and plain["tools"]


@_scenario
async def refused_unless_negotiated(subject: Subject) -> None:
    """When the extension is not negotiated, there is no agent-specific behavior."""
    plain = Wire(subject.url, declares=False)
    for method, params in (("agents/list", {}), ("agents/get", {"name": "any"})):
        assert (await plain.error(method, **params))["code"] in (-32021, -32601)


# --- the roster ----------------------------------------------------------------------------


@_scenario
async def cards_are_compact(subject: Subject) -> None:
    """The server returns compact cards only: name, description, capabilities."""
    for name, card in (await subject.roster()).items():
        assert set(card) <= {"name", "description", "capabilities"}, card
        assert name and isinstance(card.get("description", ""), str)
        assert all(isinstance(one, str) for one in card["capabilities"]), card


@_scenario
async def pages_follow_the_cursor(subject: Subject) -> None:
    """Clients continue with the returned `nextCursor` until the response omits it."""
    first = await subject.wire("agents/list")
    assert "nextCursor" not in first or first["agents"]
    assert len(await subject.roster()) >= len(first["agents"])  # `roster` refuses duplicates


@_scenario
async def results_are_complete_and_cacheable(subject: Subject) -> None:
    """Both results follow the CacheableResult model; servers SHOULD use `private`."""
    name = next(iter(await subject.roster()))
    for result in (await subject.wire("agents/list"), await subject.wire("agents/get", name=name)):
        assert result["resultType"] == "complete"
        assert isinstance(result["ttlMs"], int) and result["ttlMs"] >= 0
        assert result["cacheScope"] in ("private", "public")


# --- details -------------------------------------------------------------------------------


@_scenario
async def details_belong_to_the_agent(subject: Subject) -> None:
    """`agent` is the name of the agent to which these details belong."""
    for name in await subject.some():
        details = await subject.wire("agents/get", name=name)
        assert details["agent"] == name
        assert isinstance(details.get("instructions", ""), str)
        assert isinstance(details["tools"], list)


@_scenario
async def tools_are_those_of_the_server(subject: Subject) -> None:
    """Every returned tool MUST be discoverable through `tools/list`, and all fields MUST match.

    Tool names are server-scoped: under several agents a name is the same server-wide tool.
    """
    tools = await subject.tools()
    for name in await subject.some():
        for tool in (await subject.wire("agents/get", name=name))["tools"]:
            assert tool == tools[tool["name"]], (name, tool["name"])


@_scenario
async def tools_remain_callable(subject: Subject) -> None:
    """The host invokes the returned tools through the existing `tools/call` method."""
    name = next(iter(await subject.roster()))
    tools = (await subject.wire("agents/get", name=name))["tools"]
    for tool in tools:
        answer = await subject.wire.answer("tools/call", name=tool["name"], arguments={"-": 1})
        assert "There is no tool" not in json.dumps(answer), answer
        assert answer.get("error", {}).get("code") != -32601, answer


@_scenario
async def requirements_of_a_model_are_an_object(subject: Subject) -> None:
    """Optional, an object: a role of relative size, and whether a vision model is required.

    From the working group's meeting of 2026-08-28; not yet in the proposal's text.
    """
    for name in await subject.some():
        needs = (await subject.wire("agents/get", name=name)).get("modelRequirements", {})
        assert set(needs) <= {"role", "vision"}
        assert needs.get("role", "big") in ("big", "medium", "small")
        assert isinstance(needs.get("vision", True), bool)


# --- errors --------------------------------------------------------------------------------


@_scenario
async def unknown_agents_are_not_found(subject: Subject) -> None:
    """An agent that does not exist: -32602 with `data.reason: "agent_not_found"`."""
    error = await subject.wire.error("agents/get", name="no-such-agent")
    assert (error["code"], error["data"]["reason"]) == (-32602, "agent_not_found")


@_scenario
async def parameters_are_checked(subject: Subject) -> None:
    """`GetAgentRequestParams.name` is required."""
    assert (await subject.wire.error("agents/get"))["code"] == -32602


@_scenario
async def hidden_agents_look_unknown(subject: Subject) -> None:
    """Servers MUST NOT distinguish a nonexistent agent from one hidden by authorization."""
    if not subject.hidden:
        return
    assert subject.hidden not in await subject.roster()
    unknown = f"x{subject.hidden[1:]}"
    seen = [await subject.wire.error("agents/get", name=one) for one in (subject.hidden, unknown)]
    assert json.dumps(seen[0]).replace(subject.hidden, unknown) == json.dumps(seen[1])


@_scenario
async def broken_definitions_are_told(subject: Subject) -> None:
    """A definition that cannot be used: -32603 with `data.reason: "invalid_agent_definition"`."""
    if not subject.broken:
        return
    error = await subject.wire.error("agents/get", name=subject.broken)
    assert (error["code"], error["data"]["reason"]) == (-32603, "invalid_agent_definition")
    assert subject.broken not in await subject.roster()


# --- changes -------------------------------------------------------------------------------


@_scenario
async def changes_are_told_to_who_asked(subject: Subject) -> None:
    """Clients opt in by `agentsListChanged: true`; the server acknowledges and delivers."""
    if subject.change is None:
        return
    asked = {"agentsListChanged": True}
    messages = await _heard(subject.wire, asked, subject.change)
    assert messages[0]["method"] == "notifications/subscriptions/acknowledged"
    assert messages[0]["params"]["notifications"] == asked
    assert [one["method"] for one in messages[1:]] == ["notifications/agents/list_changed"]
    assert all(one["params"]["_meta"][f"{_META}subscriptionId"] == 1 for one in messages)


@_scenario
async def changes_are_not_told_to_others(subject: Subject) -> None:
    """A stream only gets the requested notices; without the extension there are none."""
    if subject.change is None:
        return
    both = {"toolsListChanged": True, "agentsListChanged": True}
    plain = await _heard(Wire(subject.url, declares=False), both, subject.change)
    assert plain[0]["params"]["notifications"] == {"toolsListChanged": True}
    assert {one["method"] for one in plain[1:]} == {"notifications/tools/list_changed"}
    silent = await _heard(subject.wire, {"toolsListChanged": True}, subject.change)
    assert {one["method"] for one in silent[1:]} == {"notifications/tools/list_changed"}


async def _heard(
    wire: Wire, asked: Mapping[str, Any], change: Callable[[], Awaitable[None]]
) -> list[dict[str, Any]]:
    """Return the acknowledgement, and the first notice after a change."""
    heard: list[dict[str, Any]] = []
    with anyio.fail_after(SECONDS):
        async with wire.stream("subscriptions/listen", notifications=asked) as messages:
            async for message in messages:
                heard.append(message)
                if len(heard) > 1:
                    break
                await change()
    return heard


async def _all(url: str) -> int:
    failed = 0
    for name, check in SCENARIOS.items():
        try:
            await check(Subject(url))
        except (AssertionError, LookupError, TypeError, ValueError, httpx2.HTTPError) as error:
            failed += 1
            print(f"✗ {name}: {type(error).__name__}: {error}")
        else:
            print(f"✓ {name}")
    return failed


if __name__ == "__main__":
    sys.exit(1 if anyio.run(_all, sys.argv[1]) else 0)
