"""Previews: the effects of an approval, as far as they are known in advance."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import cast

import anyio.to_thread
from pydantic import JsonValue

from ...harness.agent import Agent
from ...harness.backends.base import FileError, Files, canonical_path
from ...harness.backends.edits import edited
from ...harness.backends.file_tools.visible_files import authorized_files
from ...harness.checkpoint.base import Interrupt
from ...harness.errors import HarnessError, ToolError
from ..auth.caller import current_caller
from ..mcp.requests import Services
from ..settings.settings import Settings
from ..threads.rewinding import reading_policy, reading_runtime
from .diffs import diff_of, text_of

__all__ = ["files_now", "preview_of"]

MOST_SHOWN = 1_000_000
"""The most characters of a file that is shown in full beside its diff."""

MOST_COMPARED = 8 << 20
"""The most bytes of a file that is compared."""

_NETWORK = {True: "with network", False: "without network"}


async def preview_of(services: Services, question: Interrupt) -> dict[str, JsonValue]:
    """Return the effects of an approval under `preview`, and the tool's hints."""
    await services.places.prepare(question.thread_id)
    agent = services.places(question.thread_id)
    name = str(question.payload.get("tool"))
    args = cast("Mapping[str, JsonValue]", question.payload.get("args") or {})
    tool = agent.tools.get(name)
    about: JsonValue = None
    if tool is not None:
        about = {"description": tool.description, "parameters": dict(tool.parameters)}
    preview: JsonValue = None
    if name in ("write_file", "edit_file", "delete_file") and isinstance(args.get("path"), str):
        preview = await _of_file(services, agent, question.thread_id, name, args)
    elif isinstance(args.get("command"), str) and name in ("execute", "shell"):
        preview = _of_command(services.settings, args)
    return {"tool_about": about, "preview": preview}


async def files_now(services: Services, agent: Agent, thread_id: str) -> Files:
    """Return the current files of a thread that its agents may read.

    Raises:
        UnknownThread: There is no such thread.
    """
    state = await agent.get_state(thread_id)
    policy = reading_policy(agent, current_caller.get().principal)
    runtime = reading_runtime(thread_id, state.values, policy)
    backend = services.places.of(thread_id).parts.backend
    return authorized_files(backend.open(runtime), backend, runtime)


async def _of_file(
    services: Services, agent: Agent, thread_id: str, name: str, args: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    path = str(args["path"])
    before: bytes | None = None
    problem: str | None = None
    try:
        path = canonical_path(path)
        files = await files_now(services, agent, thread_id)
        before = await files.read(path)
    except FileError as error:
        if error.code != "not_found":
            return _no_preview(path, str(error))
    except HarnessError as error:
        return _no_preview(path, str(error))
    after: bytes | None = before
    if len(before or b"") > MOST_COMPARED:
        return _no_preview(path, "The file is too large to be compared.")
    try:
        if name == "write_file":
            after = str(args.get("content", "")).encode("utf-8", "surrogatepass")
        elif name == "delete_file":
            after = None
        elif before is None:
            problem = f"There is no file {path} now, so the edit would fail."
        else:
            old, new = str(args.get("old_string", "")), str(args.get("new_string", ""))
            edit = partial(edited, path, before, old, new, bool(args.get("replace_all")))
            after = (await anyio.to_thread.run_sync(edit)).data
    except ToolError as error:
        problem = str(error)
    found = await anyio.to_thread.run_sync(diff_of, before, after)
    texts = [text_of(before), text_of(after)]
    large = any(len(one or "") > MOST_SHOWN for one in texts)
    return {
        "kind": "file",
        "path": path,
        "exists": before is not None,
        "before": None if large else texts[0],
        "after": None if large else texts[1],
        "too_large": large,
        "problem": problem,
        **found.to_json(),
    }


def _no_preview(path: str, problem: str) -> dict[str, JsonValue]:
    return {
        "kind": "file",
        "path": path,
        "exists": None,
        "before": None,
        "after": None,
        "too_large": False,
        "problem": problem,
        "diff": "",
        "added": 0,
        "removed": 0,
        "binary": False,
        "diff_cut": False,
    }


def _of_command(settings: Settings, args: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    confined = settings.execute in ("bubblewrap", "docker")
    cwd = "/workspace" if confined else str(settings.root or "")
    network = settings.allow_network or not confined
    if confined:
        about = (
            f"Runs in a sandbox ({settings.execute}) {_NETWORK[network]}. It sees the root at "
            f"{cwd}, and may write there what the policy lets file tools write."
        )
    else:
        about = "Runs on this machine as the user of the server, without a sandbox."
    return {
        "kind": "command",
        "command": args["command"],
        "cwd": args.get("cwd") or cwd,
        "timeout": args.get("timeout"),
        "sandbox": {
            "kind": settings.execute,
            "network": network,
            "root": None if settings.root is None else str(settings.root),
            "about": about,
        },
    }
