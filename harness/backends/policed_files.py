"""Files as the policy lets a call see them (peers C5.2).

The gate has judged the path that the call names. What it cannot see is judged here: where links
lead, and which files a listing or a search comes to. A listing leaves out what `read_file` would
be refused, a search also what could only be read when a person agrees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import anyio.to_thread

from harness.backends.base import Backend, FileEntry, FileError, Files, Page, PathTest
from harness.policy import BoundPolicy
from harness.tools import ToolRuntime

__all__ = ["PolicedFiles", "policed"]

_MOST = 1_000_000


def policed(files: Files, backend: Backend, runtime: ToolRuntime) -> Files:
    """Return the files a call may see: all of them when no rule is about paths."""
    if runtime.policy is None:
        return files
    real = cast("Callable[[str], str] | None", getattr(backend, "real_path", None))
    return PolicedFiles(files, runtime.policy, real)


@dataclass(frozen=True, slots=True)
class PolicedFiles:
    """`Files` behind a policy.

    Attributes:
        files: All of the files.
        policy: What the policy says to the caller.
        real: Returns a path with links resolved, blocking; None where there are no links.
    """

    files: Files
    policy: BoundPolicy
    real: Callable[[str], str] | None

    async def ls(self, path: str) -> Sequence[FileEntry]:
        """See `Files`."""
        real = await self._require(path)
        entries = await self.files.ls(path)
        return [one for one in entries if not self._hides(one.path, path, real)]

    async def read(self, path: str) -> bytes:
        """See `Files`."""
        await self._require(path)
        return await self.files.read(path)

    async def write(self, path: str, data: bytes, *, expected: bytes | None = None) -> bool:
        """See `Files`."""
        await self._require(path)
        return await self.files.write(path, data, expected=expected)

    async def delete(self, path: str) -> None:
        """See `Files`."""
        await self._require(path)
        await self.files.delete(path)

    async def glob(
        self, pattern: str | PathTest, path: str = "/", *, limit: int = 1_000
    ) -> Sequence[FileEntry]:
        """See `Files`."""
        real = await self._require(path)
        asked = limit
        while True:
            found = await self.files.glob(pattern, path, limit=asked)
            kept = [one for one in found if not self._hides(one.path, path, real)]
            if len(kept) >= limit or len(found) < asked or asked >= _MOST:
                return kept[:limit]
            asked *= 8

    async def grep(
        self,
        pattern: str,
        path: str = "/",
        *,
        glob: str | PathTest | None = None,
        ignore_case: bool = False,
        limit: int = 1_000,
    ) -> Page:
        """See `Files`."""
        real = await self._require(path)
        asked = limit
        while True:
            page = await self.files.grep(
                pattern, path, glob=glob, ignore_case=ignore_case, limit=asked
            )
            kept = [
                one for one in page.matches if not self._hides(one.path, path, real, contents=True)
            ]
            cut = len(page.matches) >= asked  # by the limit, not by time
            if len(kept) >= limit or not (page.truncated and cut) or asked >= _MOST:
                return Page(kept[:limit], page.truncated or len(kept) > limit)
            asked *= 8

    def update(self) -> Mapping[str, Any]:
        """See `Files`."""
        return self.files.update()

    async def _require(self, path: str) -> str:
        """Return the real path; refuse one through a link unless the policy allows its target."""
        if self.real is None:
            return path
        real = await anyio.to_thread.run_sync(self.real, path)
        if real == path:
            return path
        verdict = self.policy.judge(path=real)
        if verdict.action == "allow":
            return real
        asks = verdict.action == "ask"
        advice = f"Name {real} itself, and a person is asked" if asks else "Find another way"
        raise FileError(
            "permission_denied",
            path,
            f"{path} leads through a link to {real}, which the policy guards "
            f"({verdict.reason}). Nothing was done. {advice}.",
        )

    def _hides(self, path: str, below: str, real: str, *, contents: bool = False) -> bool:
        """Whether a path found below another is hidden by its name or by its real place."""
        if self.policy.hides(path, contents=contents):
            return True
        if real != below:
            place = f"{real.rstrip('/')}/{path[len(below.rstrip('/')) :].lstrip('/')}"
            return self.policy.hides(place.rstrip("/") or "/", contents=contents)
        return False
