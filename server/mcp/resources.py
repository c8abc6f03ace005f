"""Resources: threads, skills by the URIs of SEP-2640, and the page that shows runs.

A thread has `todos`, `transcript`, `checkpoints`, `files` and one resource per file, a run has
`events`, and subagents describe themselves. Lists are paged: skills and subagents first, then
threads, newest first. A thread that changes between two pages may move up, but no unchanged thread
is left out.

The page (`server.viewer`) is an app for MCP hosts (SEP-1865): a `ui://` resource that tools refer
to. A host that supports the extension shows it beside the tool's result, in a sandbox without a
network. For other clients the tools are unchanged.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Protocol, cast

from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    RequestParams,
    Resource,
    ResourceTemplate,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ConfigDict, JsonValue

from ...harness.agent import StateSnapshot
from ...harness.backends.base import FileError
from ...harness.backends.file_tools.visible_files import authorized_files
from ...harness.errors import HarnessError, UnknownThread
from ...harness.policy import ALLOW
from ...harness.skills import SKILL_FILE
from ..auth.caller import current_caller
from ..results import moment
from ..runs.accounts import event_page
from ..threads.listing import todos_as_json, todos_now, transcript
from ..threads.rewinding import reading_policy, reading_runtime
from ..viewer import VIEWER_URI, viewer_contents, viewer_resource
from .media import file_contents, text_contents
from .offered_agents import offered_agents
from .requests import Context, Services
from .skill_methods import described, read_skill_file
from .uris import (
    SCHEDULES_URI,
    THREADS_URI,
    agent_uri,
    parse_agent,
    parse_run_events,
    parse_skill,
    parse_thread,
    skill_uri,
    thread_uri,
)

__all__ = ["FURTHER_METHODS", "FurtherParams", "FurtherResources", "Resources"]

THREADS_PER_PAGE = 20
CHECKPOINTS_SHOWN = 100
LEGACY_NOT_FOUND = -32002
"""The error code that clients up to 2025-11-25 expect; newer ones get `INVALID_PARAMS`."""

_FURTHER = ("thread://", "run://", "runs://", "threads://", "inbox://", "studio://")
"""Beginnings of URIs of resources that are not in the list."""

PARTS = {
    "todos": ("Todo list", "application/json"),
    "transcript": ("Transcript", "text/markdown"),
    "checkpoints": ("Checkpoints", "application/json"),
    "files": ("Files", "application/json"),
}


FURTHER_METHODS = (
    "threads/fork",
    "threads/delete",
    "rules/propose",
    "rules/add",
    "rules/revoke",
)
"""Methods that are not tools, so that no model can call them."""


class FurtherParams(RequestParams):
    """Unchecked parameters of such a method; its handler checks them."""

    model_config = ConfigDict(extra="allow")


class FurtherResources(Protocol):
    """Resources that are not in the list, such as those of the studio."""

    def templates(self) -> Sequence[ResourceTemplate]:
        """Return their templates."""
        ...

    async def read(self, uri: str) -> ReadResourceResult | None:
        """Return the content of a URI; None if the URI is not one of these.

        Raises:
            HarnessError: It does not exist for the caller, or the URI is malformed.
        """
        ...


class Resources:
    """Handlers of `resources/*`.

    Args:
        services: The services for all requests.
        further: Returns further, unlisted resources, built at the first request; None for
            none.
    """

    def __init__(
        self, services: Services, further: Callable[[], FurtherResources] | None = None
    ) -> None:
        self._services = services
        self._further = further

    async def list(
        self, ctx: Context, params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        """Return a page of resources."""
        cursor = params.cursor if params is not None else None
        if cursor is None:
            first = Resource(
                uri=THREADS_URI,
                name="threads",
                title="Threads",
                description="The threads that changed last, with their last run.",
                mime_type="application/json",
            )
            rows = await self._services.journal.threads(limit=1)
            following = _cursor(None) if rows else None
            found = [first, viewer_resource(), *self._schedules()]
            found += [*self._skills(), *self._subagents()]
            return ListResourcesResult(resources=found, next_cursor=following)
        before = _before(cursor)
        rows = await self._services.journal.threads(limit=THREADS_PER_PAGE + 1, before=before)
        page = rows[:THREADS_PER_PAGE]
        found = [
            Resource(
                uri=thread_uri(row.thread_id, part),
                name=f"{row.thread_id}/{part}",
                title=f"{title} of {row.thread_id}",
                description=f"Last changed {moment(row.updated_at)}.",
                mime_type=mime,
            )
            for row in page
            for part, (title, mime) in PARTS.items()
        ]
        more = len(rows) > THREADS_PER_PAGE
        return ListResourcesResult(
            resources=found, next_cursor=_cursor(page[-1].updated_at) if more else None
        )

    def _schedules(self) -> Sequence[Resource]:
        if self._services.schedules is None:
            return ()
        listed = Resource(
            uri=SCHEDULES_URI,
            name="schedules",
            title="Schedules",
            description="Goals that are given to the agent at set times, with their last runs.",
            mime_type="application/json",
        )
        return [listed]

    def _skills(self) -> Sequence[Resource]:
        return [
            Resource(
                uri=skill_uri(skill.name),
                name=skill.name,
                title=f"Skill {skill.name}",
                description=skill.description,
                mime_type="text/markdown",
                size=next((one.size for one in skill.files if one.path == SKILL_FILE), None),
            )
            for skill in self._services.skills.skills.values()
        ]

    def _subagents(self) -> Sequence[Resource]:
        return [
            Resource(
                uri=agent_uri(one.name),
                name=one.name,
                title=f"Subagent {one.name}",
                description=one.description,
                mime_type="text/markdown",
            )
            for one in offered_agents(self._services).subagents.values()
        ]

    async def templates(
        self, ctx: Context, params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        """Return the templates; there are too few to page."""
        found = [
            ResourceTemplate(
                uri_template=f"thread://{{thread_id}}/{part}",
                name=f"thread-{part}",
                title=f"{title} of a thread",
                mime_type=mime,
            )
            for part, (title, mime) in PARTS.items()
        ]
        found.append(
            ResourceTemplate(
                uri_template="thread://{thread_id}/files/{+path}",
                name="thread-file",
                title="A file of a thread",
                description="The path counts from the root of the files, without its first slash.",
            )
        )
        found.append(
            ResourceTemplate(
                uri_template="run://{run_id}/events{?after}",
                name="run-events",
                title="Events of a run",
                description="What happened after the event of this number; 0, the default, for all "
                "that is kept.",
                mime_type="application/json",
            )
        )
        found.append(
            ResourceTemplate(
                uri_template="skill://{name}/{+path}",
                name="skill-file",
                title="A file of a skill",
                description="SKILL.md holds the instructions.",
            )
        )
        found += self._further().templates() if self._further is not None else ()
        return ListResourceTemplatesResult(resource_templates=found)

    async def read(self, ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        """Return a resource's content."""
        uri = params.uri
        if (listed := await self._listed(uri)) is not None:
            return _json(uri, listed)
        if uri == VIEWER_URI:
            return viewer_contents()
        if uri.startswith(_FURTHER) and (found := await self._read_further(ctx, uri)) is not None:
            return found
        if (skill := parse_skill(uri)) is not None:
            data = await read_skill_file(self._services.skills, *skill)
            if data is None:
                raise _missing(ctx, uri, "No skill has this file; resources/list names the skills.")
            return file_contents(uri, data, skill[1])
        if (name := parse_agent(uri)) is not None:
            subagent = offered_agents(self._services).subagents.get(name)
            if subagent is None:
                raise _missing(ctx, uri, "resources/list names the subagents.")
            return text_contents(uri, described(subagent), "text/markdown")
        if (asked := parse_run_events(uri)) is not None:
            return await self._events(ctx, uri, *asked)
        if (thread := parse_thread(uri)) is not None:
            return await self._thread(ctx, uri, *thread)
        raise _missing(ctx, uri, "Known are the URIs and templates that the server lists.")

    async def _read_further(self, ctx: Context, uri: str) -> ReadResourceResult | None:
        if self._further is None:
            return None
        try:
            return await self._further().read(uri)
        except HarnessError as error:
            raise _missing(ctx, uri, str(error)) from error

    async def _events(self, ctx: Context, uri: str, run_id: str, after: int) -> ReadResourceResult:
        journal = self._services.journal
        page = await event_page(journal, run_id, after)
        run = await journal.run(run_id)
        if run is None:
            raise _missing(ctx, uri, f"There is no run {run_id!r}; read {THREADS_URI}.")
        return _json(uri, {"run_id": run_id, "status": run.status, **page.data()})

    async def _listed(self, uri: str) -> JsonValue:
        """Return the caller's threads or schedules; None for another URI."""
        if uri == THREADS_URI:
            return await self._threads()
        book = self._services.schedules
        if uri != SCHEDULES_URI or book is None:
            return None
        caller = current_caller.get()
        sees_all = bool(caller.principal) and caller.may("admin")
        known = await book.all(None if sees_all else caller.owner)
        return {"schedules": [one.shown() for one in known]}

    async def _threads(self) -> JsonValue:
        rows = await self._services.journal.threads(limit=50)
        return [
            {
                "thread_id": row.thread_id,
                "updated": moment(row.updated_at),
                "checkpoints": row.checkpoints,
                "last_run": None if row.last_run is None else row.last_run.id,
                "status": None if row.last_run is None else row.last_run.status,
            }
            for row in rows
        ]

    async def _thread(
        self, ctx: Context, uri: str, thread_id: str, part: str
    ) -> ReadResourceResult:
        unknown = _missing(ctx, uri, f"There is no thread {thread_id!r}; read {THREADS_URI}.")
        thread_id = await self._services.thread(thread_id)
        if not current_caller.get().owns(thread_id):
            raise unknown
        await self._services.places.prepare(thread_id)
        agent = self._services.places(thread_id)
        try:
            state = await agent.get_state(thread_id)
        except UnknownThread as error:
            raise unknown from error
        if part == "todos":
            return _json(uri, todos_as_json(agent, await todos_now(agent, thread_id)))
        if part == "transcript":
            text = transcript(thread_id, state.values.get("messages", ()))
            return text_contents(uri, text, "text/markdown")
        if part == "checkpoints":
            rows = await self._services.journal.history(thread_id, limit=CHECKPOINTS_SHOWN)
            return _json(uri, [cast("JsonValue", asdict(row)) for row in rows])
        return await self._files(ctx, uri, thread_id, part, state)

    async def _files(
        self, ctx: Context, uri: str, thread_id: str, part: str, state: StateSnapshot
    ) -> ReadResourceResult:
        services = self._services
        policy = reading_policy(services.places(thread_id), current_caller.get().principal)
        runtime = reading_runtime(thread_id, state.values, policy)
        backend = services.places.of(thread_id).parts.backend
        files = authorized_files(backend.open(runtime), backend, runtime)
        try:
            if part == "files":
                entries = await files.ls("/")
                return _json(uri, [cast("JsonValue", asdict(entry)) for entry in entries])
            path = part.removeprefix("files")
            verdict = ALLOW if policy is None else policy.judge(path=path)
            if verdict.action != "allow":
                raise _missing(ctx, uri, f"The policy guards it ({verdict.reason}).")
            return file_contents(uri, await files.read(path), path)
        except FileError as error:
            raise _missing(ctx, uri, str(error)) from error


def _missing(ctx: Context, uri: str, why: str) -> MCPError:
    modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    code = INVALID_PARAMS if modern else LEGACY_NOT_FOUND
    return MCPError(code, f"Resource not found: {uri}. {why}", {"uri": uri})


def _cursor(before: float | None) -> str:
    return base64.urlsafe_b64encode(json.dumps(["threads", before]).encode()).decode()


def _before(cursor: str) -> float | None:
    try:
        kind, before = json.loads(base64.urlsafe_b64decode(cursor))
        if kind != "threads" or not isinstance(before, float | int | None):
            raise ValueError
    except (ValueError, TypeError) as error:
        raise MCPError(
            INVALID_PARAMS, f"Unknown cursor {cursor!r}; list again without one."
        ) from error
    return before


def _json(uri: str, value: Any) -> ReadResourceResult:
    return text_contents(uri, json.dumps(value, ensure_ascii=False, indent=1), "application/json")
