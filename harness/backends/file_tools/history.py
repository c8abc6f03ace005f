"""The thread's own messages as read-only files: the way back to what left the model's view.

Nothing is copied: the files are made from the thread's state when they are read, so they fork and
rewind with it, and cost nothing until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ...messages.message import HumanMessage, Message
from ...messages.transcript import transcript_text
from ...tools.tool import ToolRuntime
from ..base import Backend, FileError, artifact_path
from ..state import FileData, StateFiles

__all__ = ["HISTORY_DIRECTORY", "HistoryFiles", "history_directory", "history_file", "message_path"]

HISTORY_DIRECTORY = "/conversation_history"
_TRANSCRIPT = "transcript.md"


def history_directory(backend: Backend) -> str:
    """Return where the messages of a thread appear among the files of a backend."""
    return artifact_path(backend, HISTORY_DIRECTORY[1:])


def history_file(backend: Backend) -> str:
    """Return where all messages of a thread can be read as text, in their order."""
    return f"{history_directory(backend)}/{_TRANSCRIPT}"


def message_path(message: HumanMessage, directory: str = HISTORY_DIRECTORY) -> str:
    """Return where one message can be read."""
    return f"{directory}/{message.id.replace('/', '_')}.md"


class HistoryFiles(StateFiles):
    """`Files` below a directory: the transcript, and messages shown as a preview.

    Args:
        runtime: The call that reads.
        long: Ids of the messages shown as a preview.
        directory: Where they appear.
    """

    def __init__(
        self, runtime: ToolRuntime, long: Sequence[str], directory: str = HISTORY_DIRECTORY
    ) -> None:
        messages = cast(Sequence[Message], runtime.state.get("messages") or ())
        texts = {f"{directory}/{_TRANSCRIPT}": transcript_text(messages)}
        for message in messages if long else ():
            if isinstance(message, HumanMessage) and message.id in long:
                texts[message_path(message, directory)] = message.text
        super().__init__({path: _file(text) for path, text in texts.items()})

    async def write(self, path: str, data: bytes, *, expected: bytes | None = None) -> bool:
        """Refuse; see `Files`."""
        raise _read_only(path)

    async def delete(self, path: str) -> None:
        """Refuse; see `Files`."""
        raise _read_only(path)


def _file(text: str) -> FileData:
    return FileData(text.encode("utf-8", "replace").decode())


def _read_only(path: str) -> FileError:
    return FileError(
        "permission_denied",
        path,
        f"{path} is part of this thread's history, which cannot be changed. Nothing was done.",
    )
