"""URIs of the resources that clients can read."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from ..auth.caller import current_caller
from ..runs.active_run import PARTS, WRITING

__all__ = [
    "AGENT_SCHEME",
    "INBOX_URI",
    "OWN_URIS",
    "SCHEDULES_URI",
    "SKILL_SCHEME",
    "THREADS_URI",
    "agent_uri",
    "may_watch",
    "moved_uri",
    "owned_uri",
    "parse_agent",
    "parse_run_events",
    "parse_skill",
    "parse_thread",
    "skill_uri",
    "thread_uri",
]

THREADS_URI = "threads://recent"
INBOX_URI = "inbox://questions"
OWN_URIS = (THREADS_URI, INBOX_URI)
"""URIs whose resource is different for each principal."""

SCHEDULES_URI = "schedules://all"
THREAD_SCHEME = "thread://"
RUN_SCHEME = "run://"
SKILL_SCHEME = "skill://"
AGENT_SCHEME = "agent://"
MAX_URI_CHARS = 2_048

_RUN_EVENTS = re.compile(r"run://(?P<run>[^/?#]+)/events(\?after=(?P<after>\d{1,12}))?", re.ASCII)


def thread_uri(thread_id: str, part: str) -> str:
    """Return the URI of a part of a thread; for a file `files/<path>`."""
    return f"{THREAD_SCHEME}{thread_id}/{quote(part, safe='/')}"


def owned_uri(uri: str, owner: str) -> str:
    """Return our internal URI for a principal's own resource, such as the list of their threads.

    Clients use only the name.
    """
    return f"{uri}#{owner}" if owner and uri in OWN_URIS else uri


def moved_uri(thread_id: str) -> str:
    """Return our internal URI for changes of a thread, which no client can watch."""
    return f"{THREAD_SCHEME}{thread_id}#moved"


def parse_thread(uri: str) -> tuple[str, str] | None:
    """Return the thread id and the part, or None for another URI.

    The part is one of `ThreadPart`, or `files/<path>`.
    """
    if not uri.startswith(THREAD_SCHEME):
        return None
    thread_id, slash, part = uri[len(THREAD_SCHEME) :].partition("/")
    part = unquote(part)
    if not slash or not thread_id or not (part in (*PARTS, *WRITING) or part.startswith("files/")):
        return None
    return thread_id, part


def may_watch(uri: str) -> bool:
    """Whether the caller may subscribe to its changes."""
    if len(uri) > MAX_URI_CHARS:
        return False
    thread = parse_thread(uri)
    if thread is not None:
        return current_caller.get().owns(thread[0])
    if uri.startswith(RUN_SCHEME):
        return current_caller.get().owns(uri[len(RUN_SCHEME) :].partition("/")[0])
    return uri in OWN_URIS or uri.startswith((SKILL_SCHEME, AGENT_SCHEME))


def parse_run_events(uri: str) -> tuple[str, int] | None:
    """Return the run and the event to continue after, or None for another URI."""
    found = _RUN_EVENTS.fullmatch(uri)
    return (found["run"], int(found["after"] or 0)) if found is not None else None


def skill_uri(name: str, path: str = "SKILL.md") -> str:
    """Return the URI of a skill's file (SEP-2640)."""
    return f"{SKILL_SCHEME}{name}/{quote(path, safe='/')}"


def agent_uri(name: str) -> str:
    """Return the URI of a subagent's description."""
    return f"{AGENT_SCHEME}{quote(name, safe='')}"


def parse_agent(uri: str) -> str | None:
    """Return the name of a subagent, or None for another URI."""
    return unquote(uri[len(AGENT_SCHEME) :]) if uri.startswith(AGENT_SCHEME) else None


def parse_skill(uri: str) -> tuple[str, str] | None:
    """Return the skill's name and the path of one of its files, or None for another URI."""
    if not uri.startswith(SKILL_SCHEME):
        return None
    name, slash, path = uri[len(SKILL_SCHEME) :].partition("/")
    return (name, unquote(path)) if slash and name and path else None
