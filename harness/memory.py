"""Memory files: AGENTS.md and the like, reloaded when they change.

A file is read again only when its stat signature changed, so asking before each model call costs
one stat per file. Missing files are skipped. What else is wrong with a file is kept as an error
beside its last good text, is logged once, and never stops a run.
"""

from __future__ import annotations

import codecs
import hashlib
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ._internal.records import record
from .definitions.confined_files import ConfinedFiles, FollowedFiles
from .definitions.frontmatter import DefinitionError
from .definitions.registry import SETTLED_SECONDS
from .definitions.sources import FileStat

__all__ = ["MAX_MEMORY_BYTES", "MemoryFile", "MemoryFiles", "MemorySnapshot"]


_log = logging.getLogger(__name__)

MAX_MEMORY_BYTES = 100_000
"""What all memory files together may give the model, in UTF-8 bytes, comments not counted."""

_MAX_READ = 1_000_000


@record
class MemoryFile:
    """One memory file as the model sees it.

    Attributes:
        path: Where it is.
        text: Its text without HTML comments, cut where the size cap was met.
        digest: SHA-256 of the text.
    """

    path: str
    text: str
    digest: str


@record
class MemorySnapshot:
    """All memory files at one moment.

    Attributes:
        files: In the order they were named; missing ones are left out.
        errors: What is wrong, by path.
        digests: One entry per file that is there or broken; a changed value means it changed.
        version: Counts up with every change.
    """

    files: tuple[MemoryFile, ...]
    errors: Mapping[str, str]
    digests: Mapping[str, str]
    version: int


@record
class _Read:
    signature: FileStat | None
    settled: bool
    text: str | None
    error: str | None


class MemoryFiles(FollowedFiles[MemorySnapshot]):
    """Memory files, such as AGENTS.md, in order. Safe to read from any thread.

    The constructor reads the files; `reload` looks again. Both block, so call them from a worker
    thread when an event loop is running.

    Args:
        paths: The files, in the order the model shall see them; they need not exist yet.
        untrusted: Directories that agents can write: of a file there that is a link out of them,
            nothing is read.
    """

    def __init__(self, paths: Sequence[Path], *, untrusted: Sequence[Path] = ()) -> None:
        self._paths = tuple(dict.fromkeys(path.absolute() for path in paths))
        super().__init__(MemorySnapshot((), {}, {}, 0), untrusted)
        self._read: dict[Path, _Read] = {}
        self.reload()

    @property
    def roots(self) -> Sequence[Path]:
        """The files to watch for changes."""
        return self._paths

    def use(self, paths: Sequence[Path]) -> bool:
        """Take these files from now on; return whether that changed anything. Blocks."""
        with self._lock:
            self._paths = tuple(dict.fromkeys(path.absolute() for path in paths))
        return self.reload()

    def reload(self) -> bool:
        """Read what changed and return whether anything did."""
        with self._lock:
            return self._look_at_all()

    def _doubt(self) -> None:
        self._read = {}
        self._look_at_all()

    def _look_at_all(self) -> bool:
        read = {path: self._look(path, self._read.get(path)) for path in self._paths}
        old = self.snapshot
        before = self._read
        if old.version and [*read] == [*before] and all(read[one] is before[one] for one in read):
            return False
        self._read = read
        errors = {str(path): one.error for path, one in read.items() if one.error is not None}
        texts = {str(path): one.text for path, one in read.items() if one.text is not None}
        files = _within_cap(texts)
        digests = dict(errors)
        for file in files:
            digests[file.path] = f"{file.digest} {errors.get(file.path, '')}"
        if old.version and digests == old.digests:
            return False
        for path, problem in errors.items():
            if old.errors.get(path) != problem:
                _log.warning("memory: %s", problem)
        self.snapshot = MemorySnapshot(
            files, MappingProxyType(errors), MappingProxyType(digests), old.version + 1
        )
        return True

    def _look(self, path: Path, before: _Read | None) -> _Read:
        signature: FileStat | None = None
        settled = False
        try:
            started = time.time()
            signature = self._files.file_stat(path)
            settled = signature.mtime_ns / 1e9 < started - SETTLED_SECONDS
            if before is not None and before.settled and before.signature == signature:
                return before
            return _Read(signature, settled, _text(path, self._files), None)
        except FileNotFoundError:
            return _Read(None, False, None, None)
        except DefinitionError as error:
            problem = str(error)
        except OSError as error:
            problem = f"{path}: cannot be read ({error.strerror or error})."
            settled = False
        last_good = before.text if before is not None else None
        if last_good is not None:
            problem += " Its last good text stays in use until this is fixed."
        return _Read(signature, settled, last_good, problem)


def _text(path: Path, files: ConfinedFiles) -> str:
    data = files.read(path, _MAX_READ + 1)
    if len(data) > _MAX_READ:
        raise DefinitionError(
            f"{path}: the file has more than {_MAX_READ:,} bytes, too much for memory. Keep what "
            "the agent must always know and move the rest elsewhere."
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DefinitionError(f"{path}:{line}: not UTF-8 text. Save the file as UTF-8.") from error
    return _without_comments(text.replace("\r\n", "\n")).strip()


def _without_comments(text: str) -> str:
    """Return the text without HTML comments, in linear time; one that never ends is text."""
    parts: list[str] = []
    place = 0
    while (start := text.find("<!--", place)) >= 0:
        end = text.find("-->", start + 4)
        if end < 0:
            break
        parts.append(text[place:start])
        place = end + 3
    return "".join((*parts, text[place:]))


def _within_cap(texts: Mapping[str, str]) -> tuple[MemoryFile, ...]:
    left = MAX_MEMORY_BYTES
    files: list[MemoryFile] = []
    for path, text in texts.items():
        data = text.encode()
        if len(data) > left:
            shown = codecs.getincrementaldecoder("utf-8")().decode(data[:left])
            text = (
                f"{shown}\n[Cut here: {len(data) - left:,} bytes of this file are not shown, "
                f"because all memory files together may have {MAX_MEMORY_BYTES:,}. Read the file "
                "for the rest, and shorten it.]"
            )
        left = max(0, left - len(data))
        files.append(MemoryFile(path, text, hashlib.sha256(text.encode()).hexdigest()))
    return tuple(files)
