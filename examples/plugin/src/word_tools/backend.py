"""The backend `archive`: the files of a zip archive, to be read."""

from __future__ import annotations

from zipfile import ZipFile

from deep_agent_mcp import ToolRuntime
from deep_agent_mcp.harness.backends.base import Backend, Files
from deep_agent_mcp.harness.backends.composite_parts import ReadOnlyBackend
from deep_agent_mcp.harness.backends.state import FileData, StateFiles

__all__ = ["archive"]


def archive(path: str) -> Backend:
    """Return a backend with the files of a zip archive.

    Args:
        path: The archive. It is read once, when the server starts.
    """
    with ZipFile(path) as packed:
        names = [one for one in packed.namelist() if not one.endswith("/")]
        files = {f"/{name}": FileData.of(packed.read(name)) for name in names}
    return ReadOnlyBackend(_Unpacked(files))


class _Unpacked:
    """Files by path. A backend that is changed has a `Files` of its own; see that protocol."""

    description = "Files of an archive."

    def __init__(self, files: dict[str, FileData]) -> None:
        self._files = files

    def open(self, runtime: ToolRuntime) -> Files:
        """Return the files as one tool call sees them."""
        return StateFiles(self._files)
