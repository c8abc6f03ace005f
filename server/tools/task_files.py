"""Task files: files and images that come with a goal, as content or as links to resources."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from hashlib import blake2b
from urllib.parse import unquote

from mcp.shared.exceptions import MCPError
from mcp.types import ReadResourceRequestParams, TextResourceContents
from pydantic import BaseModel, ConfigDict

from ...harness._internal.concurrency import work_apart
from ...harness.errors import HarnessError
from ...harness.messages.message import new_id
from ..mcp.requests import MAX_FILE_BYTES, Context, Services
from ..mcp.resources import Resources
from ..runs.task_inputs import TaskInput, inputs_directory

__all__ = ["MOST_BYTES", "MOST_FILES", "TaskFile", "task_inputs"]

MOST_FILES = 32
"""Files that may come with one goal."""

MOST_BYTES = MAX_FILE_BYTES
"""Bytes of all of them together: they are written in one step."""

_SCHEMES = ("thread://", "skill://")
_NAME_CHARS = 100
_ODD = re.compile(r"[^\w.\- ()+@]+")


class TaskFile(BaseModel):
    """One file: its `text`, its `data` in base64, or the `uri` of a resource of this server."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str | None = None
    text: str | None = None
    data: str | None = None
    uri: str | None = None


async def task_inputs(
    ctx: Context, services: Services, files: Sequence[TaskFile], key: str
) -> tuple[TaskInput, ...]:
    """Return files with the paths they will have.

    Args:
        ctx: The request.
        services: Those of all requests.
        files: What came with the goal.
        key: The call's idempotency key: a second call names the same paths.

    Raises:
        HarnessError: One is none, or too large, or there are too many; nothing was started.
    """
    if len(files) > MOST_FILES:
        raise _refused(f"{len(files)} files were given, and at most {MOST_FILES} are taken")
    parts = services.places.of().parts
    token = blake2b(key.encode(), digest_size=4).hexdigest() if key else new_id("in")[-8:]
    directory = f"{inputs_directory(parts.settings, parts.backend)}/{token}"
    found: list[TaskInput] = []
    names: set[str] = set()
    total = 0
    for number, one in enumerate(files, start=1):
        data = await _data(ctx, services, one, number)
        total += len(data)
        if total > MOST_BYTES:
            raise _refused(
                f"file {number} has {len(data):,} bytes, and {total:,} with those before it; all "
                f"of them have at most {MOST_BYTES:,}"
            )
        name = _free(_name(one, number), names)
        names.add(name.lower())
        found.append(TaskInput(f"{directory}/{name}", data))
    return tuple(found)


async def _data(ctx: Context, services: Services, one: TaskFile, number: int) -> bytes:
    given = [part for part in (one.text, one.data, one.uri) if part is not None]
    if len(given) != 1:
        raise _refused(f"file {number} has {len(given)} of text, data and uri; give one of them")
    if one.text is not None:
        try:
            return one.text.encode()
        except UnicodeEncodeError:
            raise _refused(f"the text of file {number} has half of a surrogate pair") from None
    if one.data is not None:
        coded = one.data
        try:
            return await work_apart(lambda: _decoded(coded), len(coded))
        except (binascii.Error, ValueError) as error:
            raise _refused(f"the data of file {number} is not base64 ({error})") from error
    return await _linked(ctx, services, one.uri or "", number)


def _decoded(coded: str) -> bytes:
    """Return what base64 holds; line breaks in it mean nothing.

    Raises:
        ValueError: It is none.
    """
    try:
        return base64.b64decode(coded, validate=True)
    except binascii.Error:
        return base64.b64decode("".join(coded.split()), validate=True)


async def _linked(ctx: Context, services: Services, uri: str, number: int) -> bytes:
    if not uri.startswith(_SCHEMES):
        raise _refused(
            f"the uri of file {number} is {uri[:200]!r}; this server reads its own resources only, "
            f"which begin with {' or '.join(_SCHEMES)}. Send what it holds as text or data"
        )
    try:
        result = await Resources(services).read(ctx, ReadResourceRequestParams(uri=uri))
    except MCPError as error:
        raise _refused(f"file {number}: {error.error.message.rstrip('.')}") from error
    (content,) = result.contents
    if isinstance(content, TextResourceContents):
        return content.text.encode()
    blob = content.blob
    return await work_apart(lambda: base64.b64decode(blob), len(blob))


def _name(one: TaskFile, number: int) -> str:
    """Return a file's name without directories, and without what a path could mistake."""
    said = one.name or unquote((one.uri or "").partition("?")[0])
    last = said.replace("\\", "/").rstrip("/").rpartition("/")[2]
    name = _ODD.sub("_", last).strip(" .")
    return name[-_NAME_CHARS:].lstrip(" .") or f"file-{number}"


def _free(name: str, taken: set[str]) -> str:
    stem, dot, suffix = name.rpartition(".")
    stem, ending = (stem, f".{suffix}") if dot and stem else (name, "")
    found, number = name, 2
    while found.lower() in taken:
        found, number = f"{stem}-{number}{ending}", number + 1
    return found


def _refused(why: str) -> HarnessError:
    return HarnessError(f"Nothing was started: {why}.")
