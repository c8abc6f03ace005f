"""The six file tools, over any backend (peers C1.2-C1.10).

Reading or writing a file remembers its digest in the thread; an edit needs the digest of what is
there now, so a model never edits what it has not seen. Answers fit on a page; see `pages`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from hashlib import sha256
from typing import Annotated, Any, Literal, cast

from pydantic import Field, JsonValue

from harness.backends.base import (
    Backend,
    FileError,
    Files,
    canonical_path,
)
from harness.backends.edits import edit_places
from harness.backends.file_results import (
    ENTRIES,
    FLAG,
    MATCHES,
    NEXT,
    NUMBER,
    STRING,
    binary_content,
    entry_line,
    entry_row,
    found_schema,
    match_line,
    match_rows,
    next_page,
    results,
    schema,
    span,
)
from harness.backends.pages import call_text, fit, read_page, shown
from harness.backends.state import StateBackend
from harness.backends.text import decode, lf
from harness.errors import ToolError
from harness.messages import AIMessage, Message
from harness.tools import Tool, ToolResult, ToolRuntime, tool

__all__ = ["FILE_TOOLS", "FileCalls", "canonicaliser", "file_tools"]

_MAX_MATCHES = 1_000
_MAX_COUNTED = 20_000
_CHANGING = ("write_file", "edit_file")

_Path = Annotated[str, Field(description="Path from the root of the files, such as /docs/plan.md")]
_Directory = Annotated[str, Field(description="Directory to look in, such as /docs; / is the root")]
_Offset = Annotated[int, Field(ge=0, description="Results to skip; the answer names the next one")]


def canonicaliser(backend: Backend) -> Callable[[str], str]:
    """Return how the backend makes paths canonical: its own way if it has one."""
    return cast(Callable[[str], str], getattr(backend, "canonical", canonical_path))


class FileCalls:
    """The bodies of the tools; their signatures are the schemas.

    Args:
        backend: Where the files are.
        page_chars: Most characters of file text, or of results, in one answer.
    """

    def __init__(self, backend: Backend, page_chars: int = 8_000) -> None:
        self._backend = backend
        self._page_chars = page_chars

    async def ls(
        self, runtime: ToolRuntime, path: _Directory = "/", offset: _Offset = 0
    ) -> ToolResult:
        """List the files and directories directly in a directory, with sizes.

        Use glob to find files further down.
        """
        files = self._backend.open(runtime)
        path = canonical_path(path)
        try:
            entries = await files.ls(path)
        except FileError as error:
            raise await _with_hint(files, error) from error
        rows = [entry_row(entry) for entry in entries]
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
        offset: Annotated[int, Field(ge=0, description="First line to show, counted from 0")] = 0,
        limit: Annotated[int, Field(ge=1, description="Most lines to show")] = 2_000,
        column: Annotated[
            int, Field(ge=0, description="Characters of the first line to skip; for long lines")
        ] = 0,
    ) -> ToolResult:
        """Read a file. Needed before edit_file.

        One header line in brackets says which lines follow and how to get the next ones; the text
        below it is verbatim, without line numbers. Images are shown as images.
        """
        files = self._backend.open(runtime)
        path = canonical_path(path)
        data = await _read(files, path)
        update = {**files.update(), **_seen(path, data)}
        text = decode(data)
        if text is None:
            return ToolResult(binary_content(path, data), update=update)
        page = read_page(path, text, offset, column, limit, self._budget(path))
        return ToolResult(page, update=update)

    async def write_file(
        self,
        runtime: ToolRuntime,
        path: _Path,
        content: Annotated[str, Field(description="The whole text of the file")],
    ) -> ToolResult:
        """Create a file, or replace all of its content. Missing directories are made.

        To change a part of a file use edit_file.
        """
        files = self._backend.open(runtime)
        path = canonical_path(path)
        self._require_first(runtime, path)
        try:
            data = content.encode()
        except UnicodeEncodeError as error:
            raise ToolError(
                f"{shown(path)} was not written: the content has half of a surrogate pair at "
                f"character {error.start}, which is not text."
            ) from error
        created = await files.write(path, data)
        what = "a new file" if created else "replaced"
        return ToolResult(
            f"Wrote {shown(path)}: {len(data)} bytes, {what}.",
            {"path": path, "bytes": len(data), "created": created},
            update={**files.update(), **_seen(path, data)},
        )

    async def edit_file(
        self,
        runtime: ToolRuntime,
        path: _Path,
        old_string: Annotated[str, Field(description="Text to replace, exactly as in the file")],
        new_string: Annotated[str, Field(description="Text to put in its place")],
        replace_all: Annotated[
            bool, Field(description="Replace every place instead of the only one")
        ] = False,
    ) -> ToolResult:
        """Replace text in a file that was read before. Everything else stays as it is.

        old_string must be in the file exactly once, unless replace_all is true; give it enough
        of the lines around it. Line ends may be written as plain newlines.
        """
        files = self._backend.open(runtime)
        path = canonical_path(path)
        self._require_first(runtime, path)
        data = await _read(files, path)
        _require_seen(runtime, path, data)
        text = decode(data)
        if text is None:
            raise ToolError(f"{shown(path)} is not text; edit_file cannot change it.")
        places = edit_places(path, text, old_string, new_string, replace_all)
        edited = text.replaced(old_string, new_string, every=replace_all)
        try:
            after = edited.encode()
        except UnicodeEncodeError as error:
            raise ToolError(
                f"{shown(path)} was not changed: it is stored as {text.encoding}, which has no "
                f"{error.object[error.start]!r}. Use other characters, or write the whole file "
                "with write_file, which makes it UTF-8."
            ) from error
        await files.write(path, after, expected=data)
        # Overlapping places are found but cannot all be replaced.
        count = text.view.count(lf(old_string)) if replace_all else 1
        line = text.view.count("\n", 0, places[0]) + 1
        plural = "s" if count > 1 else ""
        return ToolResult(
            f"Edited {shown(path)}: {count} replacement{plural}, the first in line {line}.",
            {"path": path, "replacements": count, "line": line},
            update={**files.update(), **_seen(path, after)},
        )

    async def glob(
        self,
        runtime: ToolRuntime,
        pattern: Annotated[
            str,
            Field(description="Such as *.py (at any depth), src/**/*.ts or /docs/*.{md,txt}"),
        ],
        path: _Directory = "/",
        offset: _Offset = 0,
    ) -> ToolResult:
        """Find files by name, newest first. ** crosses directories; hidden files are included."""
        files = self._backend.open(runtime)
        path = canonical_path(path)
        try:
            entries = await files.glob(pattern, path, limit=_MAX_MATCHES + 1)
        except FileError as error:
            raise await _with_hint(files, error) from error
        truncated = len(entries) > _MAX_MATCHES
        rows = [entry_row(entry) for entry in entries[:_MAX_MATCHES]]
        listing = fit(rows, entry_line, offset, self._budget(pattern, path))
        more = next_page(listing, len(rows), "glob", pattern=pattern, path=path)
        head = f"files below {shown(path)} that match {pattern!r}"
        return results(head, listing, offset, len(rows), truncated, more)

    async def grep(
        self,
        runtime: ToolRuntime,
        pattern: Annotated[str, Field(description="Regular expression, such as def \\w+_handler")],
        path: Annotated[str, Field(description="Directory or file to search; / is all")] = "/",
        glob: Annotated[str, Field(description="Only files that match, such as *.py")] = "",
        output_mode: Annotated[
            Literal["files", "content", "count"],
            Field(description="Paths, matching lines with their numbers, or matches per file"),
        ] = "files",
        ignore_case: Annotated[bool, Field(description="Ignore upper and lower case")] = False,
        offset: _Offset = 0,
    ) -> ToolResult:
        """Search text files line by line with a regular expression.

        Line numbers count from 1; line N is read with read_file(path, offset=N-1).
        """
        files = self._backend.open(runtime)
        path = canonical_path(path)
        try:
            page = await files.grep(
                pattern,
                path,
                glob=glob or None,
                ignore_case=ignore_case,
                limit=_MAX_MATCHES if output_mode == "content" else _MAX_COUNTED,
            )
        except FileError as error:
            raise await _with_hint(files, error) from error
        rows = match_rows(page.matches, output_mode)
        listing = fit(rows, match_line, offset, self._budget(pattern, path, glob))
        more = next_page(
            listing,
            len(rows),
            "grep",
            **{"pattern": pattern, "path": path, **({"glob": glob} if glob else {})},
            **{"output_mode": output_mode, **({"ignore_case": True} if ignore_case else {})},
        )
        what = "matching lines" if output_mode == "content" else "files with matches"
        head = f"{what} for {pattern!r} in {shown(path)}"
        return results(head, listing, offset, len(rows), page.truncated, more)

    def _budget(self, *repeated: str) -> int:
        """Return the characters left for results when the header repeats these arguments."""
        return max(1_000, self._page_chars - 3 * sum(map(len, repeated)))

    def _require_first(self, runtime: ToolRuntime, path: str) -> None:
        """Refuse a change when an earlier call of the same answer changes the file (C1.15).

        Calls of one answer run side by side on the same state, so one change would be lost.
        """
        canonical = canonicaliser(self._backend)
        messages = cast(Sequence[Message], runtime.state.get("messages") or ())
        answer = next((one for one in reversed(messages) if isinstance(one, AIMessage)), None)
        for call in answer.tool_calls if answer is not None else ():
            if call.id == runtime.tool_call_id:
                return
            other = call.args.get("path")
            if call.name in _CHANGING and isinstance(other, str) and _same(canonical, other, path):
                raise ToolError(
                    f"{shown(path)} was not changed: call {call.id} of the same answer changes it "
                    "already. Make this change in your next answer."
                )


def _same(canonical: Callable[[str], str], written: str, path: str) -> bool:
    try:
        return canonical(written) == path
    except FileError:
        return False


def _seen(path: str, data: bytes) -> dict[str, Any]:
    return {"file_digests": {path: sha256(data).hexdigest()}}


def _require_seen(runtime: ToolRuntime, path: str, data: bytes) -> None:
    """Raise unless this thread knows the file's present content (peers C1.7)."""
    digests = cast(Mapping[str, str], runtime.state.get("file_digests") or {})
    read = call_text("read_file", path=path)
    if path not in digests:
        raise ToolError(
            f"{shown(path)} was not changed: it was not read in this thread yet. Call {read} "
            "first, then edit."
        )
    if digests[path] != sha256(data).hexdigest():
        raise FileError(
            "changed",
            path,
            f"{shown(path)} was not changed: somebody else changed it since it was read here. "
            f"Call {read}, then edit again.",
        )


async def _read(files: Files, path: str) -> bytes:
    try:
        return await files.read(path)
    except FileError as error:
        raise await _with_hint(files, error) from error


async def _with_hint(files: Files, error: FileError) -> FileError:
    """Return a `not_found` error that also names what is there."""
    if error.code != "not_found":
        return error
    parent, _, name = error.path.rpartition("/")
    try:
        entries = [entry.path for entry in await files.ls(parent or "/")]
    except FileError:
        hint = (
            f"{shown(parent or '/')} does not exist either; start with {call_text('ls', path='/')}."
        )
    else:
        near = get_close_matches(f"{parent}/{name}", entries, n=3)
        hint = f"Near it: {', '.join(map(shown, near))}." if near else ""
        hint = hint or f"See {call_text('ls', path=parent or '/')}."
    return FileError("not_found", error.path, f"{error} {hint}")


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
        "output_schema": schema({"path": STRING, "bytes": NUMBER, "created": FLAG}),
    },
    "edit_file": {
        "title": "Edit a file",
        "destructive": True,
        "output_schema": schema({"path": STRING, "replacements": NUMBER, "line": NUMBER}),
    },
    "glob": {**_READS, "title": "Find files by name", "output_schema": found_schema(ENTRIES)},
    "grep": {**_READS, "title": "Search in files", "output_schema": found_schema(MATCHES)},
}

FILE_TOOLS: tuple[str, ...] = tuple(_OPTIONS)
"""Names of the file tools."""


@cache
def _template(name: str) -> Tool:
    """Return a tool without its backend: a schema takes about a millisecond to build."""
    make = tool(name=name, open_world=False, **_OPTIONS[name])
    return make(getattr(FileCalls(StateBackend()), name))


def file_tools(
    backend: Backend, names: Sequence[str] = FILE_TOOLS, *, page_chars: int = 8_000
) -> list[Tool]:
    """Return file tools over a backend, each with title, hints and the schema of its data."""
    calls = FileCalls(backend, page_chars)
    return [_template(name).with_body(getattr(calls, name)) for name in names]
