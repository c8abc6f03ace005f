"""Account texts: an account of a run as text and as data for a tool result."""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence

from mcp.types import ContentBlock, ResourceLink
from pydantic import JsonValue

from ...harness._internal.records import record
from ..mcp.media import media_block
from ..mcp.uris import thread_uri
from ..runs.accounts import Account, ChangedFile

__all__ = ["AccountFacts", "account_facts"]

MOST_FILES = 10
MOST_SAID = 5
"""Maximum number of refused calls, and of todos, in a summary."""

MOST_CHARS = 150
"""Maximum characters of each of them."""


@record
class AccountFacts:
    """An account of a run for a tool result.

    Attributes:
        lines: Lines of text.
        data: The same as data; empty parts are left out.
        blocks: Links to changed files, and media of the answer.
    """

    lines: Sequence[str]
    data: dict[str, JsonValue]
    blocks: Sequence[ContentBlock]


def account_facts(thread_id: str, account: Account | None) -> AccountFacts:
    """Return the account of a run for a tool result.

    Args:
        thread_id: The run's thread.
        account: Account of the run; None if it has none.
    """
    account = account or Account()
    lines: list[str] = []
    data: dict[str, JsonValue] = {}
    newest = account.files[-MOST_FILES:]
    if newest:
        data["changes"] = [_data(one) for one in newest]
        more = len(account.files) - len(newest)
        rest = f", and {more} more" if more else ""
        if more:
            data["changes_more"] = more
        lines.append(f"Changed: {', '.join(map(_words, newest))}{rest}.")
    if account.has_unlisted:
        data["changes_unlisted"] = True
        lines.append("Commands may have changed more files, which are not listed.")
    left = _left(account)
    if left:
        data["not_done"] = left
        if failed := account.failed:
            named = ", ".join(f"{name} {count}" for name, count in failed.items())
            lines.append(f"Calls that failed: {named}.")
        for key, head in (("refused", "Refused"), ("open_todos", "Todos left open")):
            said = left.get(key)
            if isinstance(said, list):
                lines.append(f"{head}: {'; '.join(map(str, said))}.")
    if account.is_cut:
        data["account_cut"] = True
        lines.append("Some of its events are missing, so this account is not complete.")
    links = [_link(thread_id, one) for one in newest if one.how != "deleted"]
    media = [block for one in account.media if (block := media_block(one)) is not None]
    return AccountFacts(lines, data, [*media, *links])


def _left(account: Account) -> dict[str, JsonValue]:
    left: dict[str, JsonValue] = {}
    if account.failed:
        left["failed_calls"] = dict(account.failed)
    if account.refused:
        left["refused"] = _few(account.refused)
    if account.open_todos:
        left["open_todos"] = _few(account.open_todos)
    return left


def _few(said: Sequence[str]) -> list[JsonValue]:
    shown = [one if len(one) <= MOST_CHARS else f"{one[:MOST_CHARS]} \u2026" for one in said]
    rest = len(shown) - MOST_SAID
    return [*shown[:MOST_SAID], f"and {rest} more"] if rest > 0 else [*shown]


def _data(one: ChangedFile) -> dict[str, JsonValue]:
    counts: dict[str, JsonValue] = {"added": one.added, "removed": one.removed}
    known = {key: value for key, value in counts.items() if value is not None}
    return {"path": one.path, **({} if one.how == "changed" else {"how": one.how}), **known}


def _words(one: ChangedFile) -> str:
    about = [] if one.how == "changed" else [one.how]
    if one.added is not None and one.removed is not None:
        about.append(f"+{one.added} -{one.removed}")
    return f"{one.path} ({', '.join(about)})" if about else one.path


def _link(thread_id: str, one: ChangedFile) -> ResourceLink:
    return ResourceLink(
        uri=thread_uri(thread_id, f"files{one.path}"),
        name=one.path.rpartition("/")[2],
        description=_words(one),
        mime_type=mimetypes.guess_type(one.path)[0],
    )
