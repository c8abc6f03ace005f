"""The file tools, over any backend.

Reading or writing a file stores its digest in the thread. An edit needs the digest of the current
content, so a model never edits content that it has not seen. Answers fit on a page; see `pages`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from ..._internal.concurrency import work_apart
from ...errors import ToolError
from ...tools.tool import Tool, ToolResult, ToolRuntime, tool
from ..base import Backend, FileError, Files, canonical_path, shown
from ..edits import edited
from ..ignore import without_ignored
from ..state import StateBackend
from ..text import decode
from .file_guards import (
    canonicaliser,
    changed_lines,
    claimed,
    read,
    require_file,
    require_first,
    require_free,
    require_seen,
    seen,
    with_hint,
)
from .pages import fit, read_page
from .results import (
    ENTRIES,
    FLAG,
    MATCHES,
    NEXT,
    NUMBER,
    STRING,
    answer,
    binary_notice,
    entry_line,
    entry_row,
    found_files,
    found_lines,
    found_schema,
    match_line,
    media_content,
    next_page,
    schema,
    span,
)
from .visible_files import HistoryFiles, authorized_files, history_directory

__all__ = ["ALL_FILE_TOOLS", "FILE_TOOLS", "FileCalls", "file_tools"]

_Path = Annotated[str, Field(description="Such as /docs/plan.md")]
_Directory = Annotated[str, Field(description="A directory, such as /docs")]
_Offset = Annotated[int, Field(ge=0, description="Results to skip")]
_SkipIgnored = Annotated[bool, Field(description="Leave out what .gitignore names")]


class FileCalls:
    """The bodies of the tools; their signatures are the schemas.

    Args:
        backend: The files.
        page_chars: The most characters of file text, or of results, in one answer.
        history: Whether the thread's messages can be read below `history_directory(backend)`.
        message_chars: Length above which a message is shown as a preview and has a file there.
    """

    def __init__(
        self,
        backend: Backend,
        page_chars: int = 8_000,
        history: bool = False,
        message_chars: int | None = None,
    ) -> None:
        self._backend = backend
        self._canonical = canonicaliser(backend)
        self._history = f"{history_directory(backend)}/" if history else None
        self._page_chars = page_chars
        self._message_chars = message_chars

    async def ls(
        self, runtime: ToolRuntime, path: _Directory = "/", offset: _Offset = 0
    ) -> ToolResult:
        """List a directory, with sizes. To find files further down use glob."""
        path = canonical_path(path)
        files = self._files(runtime, path)
        try:
            entries = await files.ls(path)
        except FileError as error:
            raise await with_hint(files, error) from error
        rows = await work_apart(lambda: [entry_row(one) for one in entries], items=len(entries))
        listing = fit(rows, entry_line, offset, self._budget(path))
        more = next_page(listing, len(rows), "ls", path=path)
        rest = f"; next: {more['next']}" if more else ""
        head = f"[{shown(path)}: {span(listing, offset, len(rows), 'entries')}{rest}]"
        artifact: dict[str, JsonValue] = {
            "path": path,
            "total": len(rows),
            "entries": listing.rows,
            **more,
        }
        return ToolResult("\n".join([head, *listing.lines]), artifact)

    async def read_file(
        self,
        runtime: ToolRuntime,
        path: _Path,
        offset: Annotated[int, Field(ge=0, description="Lines to skip")] = 0,
        limit: Annotated[int, Field(ge=1, description="Most lines to show; default 2000")] = 2_000,
        column: Annotated[int, Field(ge=0, description="Characters of the first line to skip")] = 0,
    ) -> ToolResult:
        """Read a file; needed before edit_file. Images are shown.

        Below one header line in brackets the text is verbatim, without line numbers.
        """
        path = canonical_path(path)
        files = self._files(runtime, path)
        data = await read(files, path)
        update = {**files.update(), **seen(path, data)}
        media = media_content(path, data)
        if media is not None:
            return ToolResult(media, update=update)
        budget = self._budget(path)

        def page() -> str | None:
            text = decode(data)
            return None if text is None else read_page(path, text, offset, column, limit, budget)

        shown_page = await work_apart(page, len(data))
        if shown_page is None:
            return ToolResult(binary_notice(path, data), update=update)
        return ToolResult(shown_page, update=update)

    async def write_file(
        self,
        runtime: ToolRuntime,
        path: _Path,
        content: str,
    ) -> ToolResult:
        """Create a file, with its directories, or replace all of it.

        To change a part of a file use edit_file.
        """
        path = canonical_path(path)
        files = self._files(runtime, path)
        require_first(self._canonical, runtime, path)
        expected = await require_free(self._backend, runtime, files, path)
        try:
            data = content.encode()
        except UnicodeEncodeError as error:
            raise ToolError(
                f"{shown(path)} was not written: the content has half of a surrogate pair at "
                f"character {error.start}, which is not text."
            ) from error
        with claimed(self._backend, runtime, path):
            created = await files.write(path, data, expected=expected)
        replaced = getattr(files, "replaced", None)  # of backends that keep it
        lines = await changed_lines(replaced, data, created=created)
        what = "a new file" if created else "replaced"
        return ToolResult(
            f"Wrote {shown(path)}: {len(data)} bytes, {what}.",
            {"path": path, "bytes": len(data), "created": created, **lines},
            update={**files.update(), **seen(path, data)},
        )

    async def edit_file(
        self,
        runtime: ToolRuntime,
        path: _Path,
        old_string: Annotated[str, Field(description="Exactly as in the file")],
        new_string: str,
        replace_all: bool = False,
    ) -> ToolResult:
        """Replace text in a file that was read before.

        old_string must be there exactly once unless replace_all is true: give enough of the lines
        around it.
        """
        path = canonical_path(path)
        files = self._files(runtime, path)
        require_first(self._canonical, runtime, path)
        data = await read(files, path)
        require_seen(runtime, path, data)
        await require_free(self._backend, runtime, files, path)
        edit = partial(edited, path, data, old_string, new_string, replace_all)
        made = await work_apart(edit, len(data) + len(old_string) + len(new_string))
        with claimed(self._backend, runtime, path):
            await files.write(path, made.data, expected=data)
        lines = await changed_lines(data, made.data, created=False)
        plural = "s" if made.count > 1 else ""
        return ToolResult(
            f"Edited {shown(path)}: {made.count} replacement{plural}, the first in line "
            f"{made.line}.",
            {"path": path, "replacements": made.count, "line": made.line, **lines},
            update={**files.update(), **seen(path, made.data)},
        )

    async def delete_file(self, runtime: ToolRuntime, path: _Path) -> ToolResult:
        """Delete one file. Directories cannot be deleted."""
        path = canonical_path(path)
        files = self._files(runtime, path)
        require_first(self._canonical, runtime, path)
        await require_free(self._backend, runtime, files, path)
        await require_file(files, path)
        with claimed(self._backend, runtime, path):
            await files.delete(path)
        facts: dict[str, JsonValue] = {"path": path, "deleted": True}
        return ToolResult(f"Deleted {shown(path)}.", facts, update=files.update())

    async def glob(
        self,
        runtime: ToolRuntime,
        pattern: Annotated[
            str,
            Field(description="Such as *.py (at any depth) or src/**/*.{ts,js}"),
        ],
        path: _Directory = "/",
        skip_ignored: _SkipIgnored = False,
        offset: _Offset = 0,
    ) -> ToolResult:
        """Find files by name, hidden ones too, newest first."""
        path = canonical_path(path)
        files = self._files(runtime, path)
        try:
            wanted = await without_ignored(files, path, pattern) if skip_ignored else pattern
            found = (await found_files(files, wanted, path, offset)).judged(wanted)
        except FileError as error:
            raise await with_hint(files, error) from error
        listing = fit(found.rows, entry_line, offset, self._budget(pattern, path))
        asked = {"pattern": pattern, "path": path, **_if_set(skip_ignored=skip_ignored)}
        head = f"files below {shown(path)} that match {pattern!r}"
        return answer(found, head, listing, offset, "glob", asked)

    async def grep(
        self,
        runtime: ToolRuntime,
        pattern: Annotated[str, Field(description="Regular expression")],
        path: Annotated[str, Field(description="A directory or file")] = "/",
        glob: Annotated[str, Field(description="Only files that match, such as *.py")] = "",
        output_mode: Annotated[
            Literal["files", "content", "count"],
            Field(description="Paths (default), lines with numbers, or matches per file"),
        ] = "files",
        ignore_case: bool = False,
        skip_ignored: _SkipIgnored = False,
        offset: _Offset = 0,
    ) -> ToolResult:
        """Search text files line by line. Line N is read with read_file(path, offset=N-1)."""
        path = canonical_path(path)
        files = self._files(runtime, path)
        try:
            wanted = await without_ignored(files, path, glob) if skip_ignored else glob or None
            search = partial(files.grep, pattern, path, glob=wanted, ignore_case=ignore_case)
            lines = await found_lines(lambda limit: search(limit=limit), output_mode, offset)
            found = lines.judged(wanted)
        except FileError as error:
            raise await with_hint(files, error) from error
        listing = fit(found.rows, match_line, offset, self._budget(pattern, path, glob))
        asked: dict[str, JsonValue] = {
            "pattern": pattern,
            "path": path,
            **_if_set(glob=glob),
            "output_mode": output_mode,
            **_if_set(ignore_case=ignore_case, skip_ignored=skip_ignored),
        }
        what = "matching lines" if output_mode == "content" else "files with matches"
        head = f"{what} for {pattern!r} in {shown(path)}"
        return answer(found, head, listing, offset, "grep", asked)

    def _budget(self, *repeated: str) -> int:
        """Return the characters left for results if the header repeats these arguments."""
        return max(1_000, self._page_chars - 3 * sum(map(len, repeated)))

    def _files(self, runtime: ToolRuntime, path: str) -> Files:
        """Return the files that a path is among."""
        if self._history is not None and f"{path}/".startswith(self._history):
            return HistoryFiles(runtime, self._message_chars, self._history[:-1])
        return authorized_files(self._backend.open(runtime), self._backend, runtime)


def _if_set(**arguments: JsonValue) -> dict[str, JsonValue]:
    """Return the arguments that are not empty or false."""
    return {name: value for name, value in arguments.items() if value}


_LINES: Mapping[str, JsonValue] = {"added": NUMBER, "removed": NUMBER}
_READS = {"read_only": True, "idempotent": True}
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "ls": {
        **_READS,
        "title": "List a directory",
        "output_schema": schema(
            {"path": STRING, "total": NUMBER, "entries": ENTRIES, "next": NEXT}, "next"
        ),
    },
    "read_file": {**_READS, "title": "Read a file"},
    "write_file": {
        "title": "Write a file",
        "destructive": True,
        "idempotent": True,
        "output_schema": schema(
            {"path": STRING, "bytes": NUMBER, "created": FLAG, **_LINES}, *_LINES
        ),
    },
    "edit_file": {
        "title": "Edit a file",
        "destructive": True,
        "output_schema": schema(
            {"path": STRING, "replacements": NUMBER, "line": NUMBER, **_LINES}, *_LINES
        ),
    },
    "delete_file": {
        "title": "Delete a file",
        "destructive": True,
        "output_schema": schema({"path": STRING, "deleted": FLAG}),
    },
    "glob": {**_READS, "title": "Find files by name", "output_schema": found_schema(ENTRIES)},
    "grep": {**_READS, "title": "Search in files", "output_schema": found_schema(MATCHES)},
}

ALL_FILE_TOOLS: tuple[str, ...] = tuple(_OPTIONS)
"""Names of all file tools."""

FILE_TOOLS = tuple(name for name in ALL_FILE_TOOLS if name != "delete_file")
"""Names of the tools that an agent has by default."""


@cache
def _template(name: str) -> Tool:
    """Return a tool without its backend: a schema takes about a millisecond to build."""
    make = tool(name=name, open_world=False, **_OPTIONS[name])
    return make(getattr(FileCalls(StateBackend()), name))


def file_tools(
    backend: Backend,
    names: Sequence[str] = FILE_TOOLS,
    *,
    page_chars: int = 8_000,
    history: bool = False,
    message_chars: int | None = None,
    descriptions: Mapping[str, str] | None = None,
) -> list[Tool]:
    """Return file tools over a backend, each with title, hints and the schema of its data.

    Args:
        backend: The files.
        names: Names of the tools.
        page_chars: See `FileCalls`.
        history: See `FileCalls`.
        message_chars: See `FileCalls`.
        descriptions: Descriptions for the model that replace our own, by tool name.
    """
    calls = FileCalls(backend, page_chars, history, message_chars)
    tools = [_template(name).with_body(getattr(calls, name)) for name in names]
    own = descriptions or {}
    return [replace(one, description=own[one.name]) if one.name in own else one for one in tools]
