"""The studio's data: the contents of the page at `/ui`, as resources that every client can read.

Each URI is parsed and answered by one function. Reading changes nothing; the page acts through
tools, and through the methods in `methods.py`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    ReadResourceResult,
    RequestParams,
    ResourceTemplate,
    TextResourceContents,
)
from pydantic import JsonValue, ValidationError

from ...harness.checkpoint.base import Run
from ...harness.tools.schemas import model_problems
from ..auth.caller import current_caller
from ..mcp.requests import Context, Services
from .agents import AgentTree, spans_of
from .catalogue import Catalogue
from .conversation import Conversation
from .history import History
from .journal_steps import Branches
from .methods import (
    AddParams,
    DeleteParams,
    ForkParams,
    ProposeParams,
    RevokeParams,
    Rules,
    ThreadMethods,
)
from .overview import fleet, me, run_json, runs_found, thread_overview
from .queries import Address, NotThere, Query
from .questions import Questions
from .requests import Requests

__all__ = ["Studio"]

_Read: TypeAlias = Callable[[Address, str], Awaitable[JsonValue | ReadResourceResult]]
"""Answers a URI; the text is the rest of its path after the name."""

_Act: TypeAlias = Callable[[Context, Any], Awaitable[dict[str, Any]]]

_TEMPLATES = {
    "inbox": ("inbox://questions{?after,limit}", "Open questions, first what waits longest"),
    "thread-search": (
        "threads://search{?q,status,agent,since,until,principal,sort,after,limit}",
        "Threads by words, status, agent and date",
    ),
    "run-search": ("runs://search{?status,thread,limit}", "Runs, newest first"),
    "thread-overview": ("thread://{thread_id}/overview", "A thread with its runs and costs"),
    "thread-steps": (
        "thread://{thread_id}/steps{?before,after,limit}",
        "The conversation of a thread, subagents included",
    ),
    "thread-step": ("thread://{thread_id}/steps/{key}{?ns}", "A step of a thread, whole"),
    "thread-writing": ("thread://{thread_id}/writing", "Answers that models write just now"),
    "thread-history": (
        "thread://{thread_id}/history{?before,limit}",
        "Checkpoints of a thread, with what each changed",
    ),
    "thread-at": ("thread://{thread_id}/at/{checkpoint_id}", "A thread's state at a checkpoint"),
    "thread-file-at": (
        "thread://{thread_id}/at/{checkpoint_id}/files/{+path}",
        "A file as it was at a checkpoint",
    ),
    "thread-diff": (
        "thread://{thread_id}/diff{?from,to,path}",
        "What differs between the files of two checkpoints",
    ),
    "thread-tree": ("thread://{thread_id}/tree{?path,limit}", "A directory of a thread's files"),
    "thread-rewind": (
        "thread://{thread_id}/rewind/{checkpoint_id}",
        "What a rewind to a checkpoint would do",
    ),
    "thread-decisions": (
        "thread://{thread_id}/decisions{?limit}",
        "Who decided what on a thread, and when",
    ),
    "thread-requests": ("thread://{thread_id}/requests{?before,limit}", "Model calls of a thread"),
    "thread-request": (
        "thread://{thread_id}/requests/{checkpoint_id}{?ns}",
        "What a model was asked in a step",
    ),
    "thread-agents": ("thread://{thread_id}/agents", "The agents of a thread, with time and cost"),
    "run-spans": ("run://{run_id}/spans", "When each call of a run began and ended"),
    "run-questions": ("run://{run_id}/questions", "The questions of a run"),
    "run-question": ("run://{run_id}/questions/{question_id}", "A question, whole"),
}


class Studio:
    """Answers reads of the studio's resources."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._questions = Questions(services)
        self.catalogue = Catalogue(services)
        branches = Branches(services.journal)
        self._conversation = Conversation(services, branches)
        self._agents = AgentTree(services, branches)
        self._history = History(services, branches)
        self._rules = Rules(services)
        self._requests = Requests(services, branches)
        threads = ThreadMethods(services, self.catalogue)
        self._methods: Mapping[str, tuple[type[RequestParams], _Act]] = {
            "threads/fork": (ForkParams, threads.fork),
            "threads/delete": (DeleteParams, threads.delete),
            "rules/propose": (ProposeParams, self._rules.propose),
            "rules/add": (AddParams, self._rules.add),
            "rules/revoke": (RevokeParams, self._rules.revoke),
        }
        self._lists: Mapping[tuple[str, str], Callable[[Query], Awaitable[JsonValue]]] = {
            ("studio", "me"): lambda _: me(services),
            ("studio", "fleet"): lambda _: fleet(services),
            ("studio", "rules"): lambda _: self._rules.listed(),
            ("inbox", "questions"): self._questions.inbox,
            ("threads", "search"): self.catalogue.search,
            ("runs", "search"): lambda query: runs_found(services, query),
        }
        self._of_thread: Mapping[str, _Read] = {
            "overview": self._overview,
            "steps": self._steps,
            "writing": self._writing,
            "agents": self._agents_of,
            "history": self._history_of,
            "at": self._at,
            "diff": self._diff,
            "tree": self._tree,
            "rewind": self._rewind,
            "decisions": self._decisions,
            "requests": self._asked,
        }
        self._of_run: Mapping[str, _Read] = {
            "questions": self._of_questions,
            "spans": self._spans,
        }

    @staticmethod
    def templates() -> list[ResourceTemplate]:
        """Return the templates of these resources."""
        return [
            ResourceTemplate(uri_template=uri, name=name, title=title, mime_type="application/json")
            for name, (uri, title) in _TEMPLATES.items()
        ]

    async def act(self, method: str, ctx: Context, params: RequestParams) -> dict[str, Any]:
        """Serve a method that is not a tool.

        Raises:
            MCPError: It was refused; nothing was done.
        """
        kind, handler = self._methods[method]
        try:
            given = kind.model_validate(params.model_dump(by_alias=True))
        except ValidationError as error:
            raise MCPError(
                INVALID_PARAMS, f"{method} did nothing: {model_problems(error)}."
            ) from error
        return await handler(ctx, given)

    async def read(self, uri: str) -> ReadResourceResult | None:
        """Return a resource's content; None if the URI is not the studio's.

        Raises:
            NotThere: It does not exist for the caller.
            BadQuery: One of its parameters is invalid.
        """
        address = Address.of(uri)
        if address is None:
            return None
        value = await self._value(address)
        if value is None or isinstance(value, ReadResourceResult):
            return value
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        content = TextResourceContents(uri=uri, mime_type="application/json", text=text)
        return ReadResourceResult(contents=[content])

    async def _value(self, address: Address) -> JsonValue | ReadResourceResult:
        name, _, rest = address.path.partition("/")
        listed = None if address.path else self._lists.get((address.scheme, address.id))
        if listed is not None:
            return await listed(address.query)
        match address.scheme, address.id:
            case "thread", thread_id if name in self._of_thread:
                if not current_caller.get().owns(thread_id):
                    raise NotThere(f"There is no thread {thread_id!r}.")
                return await self._of_thread[name](address, rest)
            case "run", _ if name in self._of_run:
                return await self._of_run[name](address, rest)
            case "run", _ if not address.path:
                return run_json(await self._run(address.id))
            case _:
                return None

    async def _run(self, run_id: str) -> Run:
        run = await self._services.journal.run(run_id)
        if run is None:
            raise NotThere(f"There is no run {run_id!r}.")
        return run

    async def _overview(self, address: Address, rest: str) -> JsonValue:
        return await thread_overview(self._services, self._questions, address.id)

    async def _steps(self, address: Address, rest: str) -> JsonValue:
        if rest:
            return await self._conversation.whole(address.id, rest, address.query.text("ns"))
        return await self._conversation.page(address.id, address.query)

    async def _writing(self, address: Address, rest: str) -> JsonValue:
        return self._conversation.writing(address.id)

    async def _agents_of(self, address: Address, rest: str) -> JsonValue:
        return await self._agents.of_thread(address.id)

    async def _history_of(self, address: Address, rest: str) -> JsonValue:
        return await self._history.page(address.id, address.query)

    async def _at(self, address: Address, rest: str) -> JsonValue | ReadResourceResult:
        checkpoint_id, _, file = rest.partition("/files/")
        if file:
            uri = f"thread://{address.id}/{quote(address.path)}"
            return await self._history.file_at(uri, address.id, checkpoint_id, f"/{file}")
        return await self._history.state_at(address.id, checkpoint_id)

    async def _diff(self, address: Address, rest: str) -> JsonValue:
        return await self._history.diff(address.id, address.query)

    async def _tree(self, address: Address, rest: str) -> JsonValue:
        return await self._history.tree(address.id, address.query)

    async def _rewind(self, address: Address, rest: str) -> JsonValue:
        return await self._history.rewind_plan(address.id, rest)

    async def _decisions(self, address: Address, rest: str) -> JsonValue:
        return await self._rules.decisions(address.id, address.query)

    async def _asked(self, address: Address, rest: str) -> JsonValue:
        if rest:
            return await self._requests.one(address.id, rest, address.query.text("ns"))
        return await self._requests.calls(address.id, address.query)

    async def _spans(self, address: Address, rest: str) -> JsonValue:
        return await spans_of(self._services, await self._run(address.id))

    async def _of_questions(self, address: Address, rest: str) -> JsonValue:
        run = await self._run(address.id)
        if rest:
            return await self._questions.whole(run, rest)
        return await self._questions.of_run(run)
