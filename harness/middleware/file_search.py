"""File search in a directory, for agents without file tools: by name, and in the text of files.

Nothing outside the directory is found, whatever paths, patterns and links point to. Results come in
pages, so that all of them can be read; searches end after a few seconds and say so.
"""

from __future__ import annotations

import os
from functools import cache, partial
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from ..backends.base import shown
from ..backends.directory import DirectoryBackend
from ..backends.file_tools.pages import fit
from ..backends.file_tools.results import (
    ENTRIES,
    MATCHES,
    answer,
    entry_line,
    found_files,
    found_lines,
    found_schema,
    match_line,
)
from ..backends.file_tools.visible_files import authorized_files
from ..errors import AgentBuildError, ToolError
from ..loop.hooks.middleware import AgentMiddleware
from ..tools.tool import Tool, ToolResult, ToolRuntime, tool

__all__ = ["FilesystemFileSearchMiddleware"]

_Directory = Annotated[str, Field(description="Directory to look in, such as /docs; / is the root")]
_Offset = Annotated[int, Field(ge=0, description="Results to skip; the answer names the next one")]


class FilesystemFileSearchMiddleware(AgentMiddleware):
    """Adds `glob_search` and `grep_search` over a directory.

    Args:
        root_path: The directory; it is `/` in paths.
        max_file_size_mb: Larger files are not searched.
        page_chars: The most characters of results in one answer.

    Raises:
        AgentBuildError: The root is not a directory, or a limit is not positive.
    """

    def __init__(
        self,
        root_path: str | os.PathLike[str],
        *,
        max_file_size_mb: float = 10,
        page_chars: int = 8_000,
    ) -> None:
        if max_file_size_mb <= 0 or page_chars < 1:
            raise AgentBuildError(
                "max_file_size_mb and page_chars must be positive; got "
                f"{max_file_size_mb} and {page_chars}"
            )
        limit = int(max_file_size_mb * 1_000_000)
        calls = _SearchCalls(DirectoryBackend(root_path, max_read_bytes=limit), page_chars)
        self.tools = tuple(_template(name).with_body(getattr(calls, name)) for name in _TITLES)


class _SearchCalls:
    """The bodies of the tools; their signatures are the schemas."""

    def __init__(self, backend: DirectoryBackend, page_chars: int) -> None:
        self._backend = backend
        self._page_chars = page_chars

    async def glob_search(
        self,
        runtime: ToolRuntime,
        pattern: Annotated[
            str, Field(description="Such as *.py (at any depth) or src/**/*.{ts,tsx}")
        ],
        path: _Directory = "/",
        offset: _Offset = 0,
    ) -> ToolResult:
        """Find files by name, newest first. ** crosses directories; hidden files are included."""
        _check_pattern(pattern)
        path = self._backend.canonical(path)
        files = authorized_files(self._backend.open(runtime), self._backend, runtime)
        found = await found_files(files, pattern, path, offset)
        listing = fit(found.rows, entry_line, offset, self._budget(pattern, path))
        asked: dict[str, JsonValue] = {"pattern": pattern, "path": path}
        head = f"files below {shown(path)} that match {pattern!r}"
        return answer(found, head, listing, offset, "glob_search", asked)

    async def grep_search(
        self,
        runtime: ToolRuntime,
        pattern: Annotated[str, Field(description="Regular expression, such as def \\w+_handler")],
        path: Annotated[str, Field(description="Directory or file to search; / is all")] = "/",
        include: Annotated[
            str, Field(description="Only files that match, such as *.{py,pyi}")
        ] = "",
        output_mode: Annotated[
            Literal["files_with_matches", "content", "count"],
            Field(description="Paths, matching lines with their numbers, or matches per file"),
        ] = "files_with_matches",
        offset: _Offset = 0,
    ) -> ToolResult:
        """Search text files line by line with a regular expression; binary ones are left out."""
        _check_pattern(include)
        path = self._backend.canonical(path)
        files = authorized_files(self._backend.open(runtime), self._backend, runtime)
        search = partial(files.grep, pattern, path, glob=include or None)
        found = await found_lines(lambda limit: search(limit=limit), output_mode, offset)
        listing = fit(found.rows, match_line, offset, self._budget(pattern, path, include))
        asked: dict[str, JsonValue] = {"pattern": pattern, "path": path}
        if include:
            asked["include"] = include
        asked["output_mode"] = output_mode
        what = "matching lines" if output_mode == "content" else "files with matches"
        head = f"{what} for {pattern!r} in {shown(path)}"
        return answer(found, head, listing, offset, "grep_search", asked)

    def _budget(self, *repeated: str) -> int:
        """Return the characters left for results after a header with these arguments."""
        return max(self._page_chars // 2, self._page_chars - 3 * sum(map(len, repeated)))


def _check_pattern(pattern: str) -> None:
    """Raise `ToolError` for a glob that leaves the root, since it could only match nothing."""
    if ".." in pattern.replace("\\", "/").split("/") or pattern.startswith("~"):
        raise ToolError(
            f"the glob {pattern!r} leads out of the files; nothing was searched. Patterns count "
            "from the directory given as `path`, and / is the root of all files."
        )


_TITLES = {"glob_search": "Find files by name", "grep_search": "Search in files"}
_RESULTS: dict[str, JsonValue] = {"glob_search": ENTRIES, "grep_search": MATCHES}


@cache
def _template(name: str) -> Tool:
    """Return a tool without its directory: a schema takes about a millisecond to build."""
    options: dict[str, Any] = {
        "title": _TITLES[name],
        "read_only": True,
        "idempotent": True,
        "open_world": False,
        "output_schema": found_schema(_RESULTS[name]),
    }
    make = tool(name=name, **options)
    # The body is never called: each middleware has its own.
    return make(getattr(_SearchCalls.__new__(_SearchCalls), name))
