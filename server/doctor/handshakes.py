"""Handshakes: starts the real server and connects the way each client does."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio

import deep_agent_mcp

from ..mcp.requests import wait_budget
from ..python_agents.source import ONLY_LOOKS
from ..settings.settings import Settings
from ..version import version
from .findings import KnownClient, Status
from .wire import Wire, WireError

__all__ = [
    "Handshake",
    "judge_instructions",
    "judge_names",
    "judge_speed",
    "server_command",
    "shake_hands",
]

GOOD_SECONDS = 2.0
"""Claude Code's probe gives up after 2.6 s."""

LATE_SECONDS = 10.0
"""Codex and others give up on a server that has not answered by then."""

GIVE_UP_SECONDS = 30.0

LOOKS = {"threads": True, "skill": False}
"""Read-only tools without required arguments -> whether the result also has a structured half;
documents have none."""

SOURCES = Path(deep_agent_mcp.__file__).resolve().parents[1]


@dataclass(slots=True)
class Handshake:
    """Result of a client's first steps.

    Attributes:
        client: The client.
        seconds: From the start of the server to its first answer; None if there was none.
        tools: How many there are.
        does: Working features, in words.
        problems: Problems, each with its fix.
        notes: Limitations, in words.
    """

    client: KnownClient
    seconds: float | None = None
    tools: int = 0
    does: list[str] = field(default_factory=list[str])
    problems: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    notes: list[str] = field(default_factory=list[str])

    @property
    def status(self) -> Status:
        """How the client would fare."""
        return "broken" if self.problems else "note" if self.notes else "ok"

    def data(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "client": self.client.name,
            "status": self.status,
            "protocol": self.client.protocol,
            "seconds": None if self.seconds is None else round(self.seconds, 3),
            "tools": self.tools,
            "does": self.does,
            "cannot": list(self.client.cannot),
            "notes": self.notes,
            "problems": [{"text": text, "fix": fix} for text, fix in self.problems],
        }


ALONE = {"DEEP_AGENT_REPLICAS": "false", "DEEP_AGENT_SHARED_ROOT": "false"}
"""Prevents the server from joining others, regardless of a settings file."""


def server_command(options: Sequence[str], state: Path, settings: Settings) -> list[str]:
    """Return the command for a server with these options, but with separate threads and state.

    So it takes over no run of another server, and sees no thread of the user.
    """
    own = ["--state-dir", str(state), "--transport", "stdio"]
    if settings.journal is not None:
        own += ["--journal", "memory:", "--journal-url-file", ""]
    options = [one for one in options if one not in ("--replicas", "--shared-root")]
    return [sys.executable, "-P", "-m", "deep_agent_mcp", "serve", *options, *own]


async def shake_hands(
    client: KnownClient, options: Sequence[str], settings: Settings, name: str
) -> Handshake:
    """Start a server and take a client's first steps.

    Args:
        client: The client.
        options: Of `serve`.
        settings: The settings from the options and the environment.
        name: The server's name in the client.
    """
    made = Handshake(client)
    with tempfile.TemporaryDirectory(prefix="deep-agent-doctor-", dir=_outside(settings)) as place:
        folder = Path(place)
        env = {**os.environ, "PYTHONPATH": str(SOURCES), ONLY_LOOKS: "1", **ALONE}
        command = server_command(options, folder / "state", settings)
        try:
            with anyio.fail_after(GIVE_UP_SECONDS):
                async with Wire.to(command, client, env, folder / "log") as wire:
                    await _steps(wire, made, settings, name)
        except TimeoutError:
            fix = "Run `deep-agent-mcp serve --log-level debug` in a terminal, and read its log."
            made.problems.append((f"it was not done within {GIVE_UP_SECONDS:.0f} s", fix))
        except WireError as error:
            fix = "The text says what the server refused; fix that first."
            made.problems.append((str(error), fix))
    return made


def _outside(settings: Settings) -> str | None:
    """Return a directory for passing state; with commands on, it may not be inside the root."""
    if settings.root is None:
        return None
    root = settings.root.resolve()
    if not Path(tempfile.gettempdir()).resolve().is_relative_to(root):
        return None
    parents = (one for one in settings.state_dir.parents if one.is_dir())
    return next((str(one) for one in parents if os.access(one, os.W_OK)), None)


async def _steps(wire: Wire, made: Handshake, settings: Settings, name: str) -> None:
    greeting = await _greet(wire, made)
    if wire.client.is_modern:
        changes = dict.fromkeys(("toolsListChanged", "promptsListChanged"), True)
        acknowledged = "notifications/subscriptions/acknowledged"
        await wire.open("subscriptions/listen", {"notifications": changes}, acknowledged)
    judge_instructions(made, greeting.get("instructions") or "")
    tools = await wire.request("tools/list", {})
    listed = cast("list[dict[str, Any]]", tools.get("tools") or [])
    made.tools = len(listed)
    judge_names(made, [str(one.get("name")) for one in listed], name)
    for kind in ("prompts", "resources"):
        if kind in greeting.get("capabilities", {}):
            await wire.request(f"{kind}/list", {})
    for tool, has_both in LOOKS.items():
        call = {"name": tool, "arguments": {}, "_meta": {"progressToken": tool}}
        _judge_result(made, tool, await wire.request("tools/call", call), has_both)
    made.does.append(f"reads {'JSON' if wire.client.shows == 'structured' else 'text'}")
    _judge_waiting(made, settings)
    _judge_questions(made)


async def _greet(wire: Wire, made: Handshake) -> dict[str, Any]:
    """Open the connection the way this client does; return the server's description of itself."""
    client = wire.client
    if client.is_modern:
        greeting = await wire.request("server/discover", {})
        spoken = greeting.get("supportedVersions", [])
    else:
        info = {"name": client.calls_itself, "version": version()}
        params = {"protocolVersion": client.protocol, "capabilities": client.capabilities}
        greeting = await wire.request("initialize", {**params, "clientInfo": info})
        spoken = [greeting.get("protocolVersion")]
        await wire.notify("notifications/initialized")
    made.seconds = wire.seconds()
    if client.protocol not in spoken:
        fix = "Install this server again, with a version of `mcp` that it accepts."
        made.problems.append((f"the server speaks {spoken}, not {client.protocol}", fix))
    judge_speed(made)
    return greeting


def judge_speed(made: Handshake) -> None:
    """Check that the first answer arrived before clients give up."""
    seconds = made.seconds or 0.0
    if seconds > LATE_SECONDS:
        fix = "Start it from a faster disk, or with fewer programs running."
        made.problems.append((f"its first answer took {seconds:.1f} s", fix))
    elif seconds > GOOD_SECONDS:
        made.notes.append(
            f"its first answer took {seconds:.1f} s, and should take less than "
            f"{GOOD_SECONDS:.0f}: a slow disk, or a busy machine"
        )


def judge_instructions(made: Handshake, text: str) -> None:
    """Compare the server's instructions with the client's limit."""
    kept = made.client.instructions
    if not text:
        made.notes.append("the server gave no instructions")
    elif kept is not None and len(text) > kept:
        made.notes.append(f"instructions are cut at {kept:,} of {len(text):,} characters")


def judge_names(made: Handshake, names: Sequence[str], server_name: str) -> None:
    """Compare the tools with the client's limits for their number and the length of names."""
    client = made.client
    if not names:
        made.problems.append(("there are no tools", "See the server's log."))
        return
    full = [client.tool_name.format(server=server_name, tool=one) for one in names]
    longest = max(full, key=len)
    if len(longest) > client.longest_name:
        text = f"{longest} has {len(longest)} characters; {client.longest_name} is the most"
        made.problems.append((text, "Install it with a shorter --name."))
    if client.most_tools is not None and len(names) > client.most_tools:
        made.notes.append(f"{len(names)} tools; more than {client.most_tools} are too many for it")


def _judge_result(made: Handshake, tool: str, result: Mapping[str, Any], has_both: bool) -> None:
    """Compare a real result with the client's limits for results."""
    client = made.client
    blocks = cast("list[dict[str, Any]]", result.get("content") or [])
    text = "\n".join(str(one.get("text", "")) for one in blocks)
    if result.get("isError"):  # maybe a policy's will
        made.notes.append(f"`{tool}` answered with an error: {text[:300]}")
        return
    structured = result.get("structuredContent")
    if not text or (has_both and structured is None):
        half = "text" if not text else "structured content"
        fix = "Report this: half of the clients show nothing of such a result."
        made.problems.append((f"the result of `{tool}` came without {half}", fix))
        return
    as_json = client.shows == "structured" and structured is not None
    shown = json.dumps(structured) if as_json else text
    if len(shown) > client.largest_result:
        fix = "Report this: results should stay below 10,000 characters."
        cut = f"the result of `{tool}`, {len(shown):,} characters, would be cut"
        made.problems.append((cut, fix))


def _judge_waiting(made: Handshake, settings: Settings) -> None:
    client = made.client
    budget = wait_budget(settings, client.calls_itself)
    most = client.call_seconds
    if most is not None and budget >= most:
        text = f"calls wait {budget:.0f} s, and this client waits {most:.0f} s at most"
        made.problems.append((text, f"Set --wait-budget below {most:.0f}, or leave it out."))
    made.does.append(f"waits {budget:.0f} s for a run, then asks again")


def _judge_questions(made: Handshake) -> None:
    if made.client.can_be_asked:
        made.does.append("asks its user for approvals itself")
    else:
        made.does.append("passes approvals on through `reply`")
