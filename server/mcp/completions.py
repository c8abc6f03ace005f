"""Completions of arguments: thread ids, checkpoint ids, files and skill names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from mcp.types import CompleteRequestParams, CompleteResult, Completion

from .services import Context, Services

__all__ = ["Completions"]

MAX_VALUES = 100


class Completions:
    """Handler of `completion/complete`. An unknown reference or argument completes to nothing."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def complete(self, ctx: Context, params: CompleteRequestParams) -> CompleteResult:
        """Return the values that begin with what was typed, or contain it."""
        given = dict(params.context.arguments or {}) if params.context is not None else {}
        values = await self._values(params.argument.name, given)
        typed = params.argument.value
        found = [one for one in values if one.startswith(typed)]
        found += [one for one in values if typed in one and one not in found]
        return CompleteResult(
            completion=Completion(
                values=found[:MAX_VALUES], total=len(found), has_more=len(found) > MAX_VALUES
            )
        )

    async def _values(self, argument: str, given: dict[str, str]) -> list[str]:
        journal = self._services.journal
        match argument:
            case "thread_id":
                return [row.thread_id for row in await journal.threads(limit=200)]
            case "checkpoint_id" if "thread_id" in given:
                return [one.id for one in await journal.history(given["thread_id"], limit=200)]
            case "name":
                return list(self._services.skills.skills)
            case "path" if "name" in given:
                skill = self._services.skills.skills.get(given["name"])
                return [file.path for file in skill.files] if skill is not None else []
            case "path" if "thread_id" in given:
                return await self._files(given["thread_id"])
            case _:
                return []

    async def _files(self, thread_id: str) -> list[str]:
        """Return files that live in the thread; those on disk are too many to list."""
        if await self._services.journal.load(thread_id) is None:
            return []
        await self._services.places.prepare(thread_id)
        state = await self._services.places(thread_id).get_state(thread_id)
        files = cast("Iterable[str]", state.values.get("files") or ())
        return [path.lstrip("/") for path in files]
