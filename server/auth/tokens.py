"""Static tokens: random secrets that the operator issues, stored as hashes."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol, cast

import anyio.to_thread
from filelock import FileLock, Timeout
from mcp.server.auth.provider import AccessToken

from ...harness._internal.records import record
from .caller import AGENTS_CLAIM, KNOWN_SCOPES, Scope

__all__ = [
    "FileTokens",
    "TokenError",
    "TokenFile",
    "TokenRecord",
    "TokenVerifier",
    "Tokens",
    "new_token",
    "no_token",
    "record_from_json",
    "record_to_json",
]

_TOKEN = re.compile(r"dam_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_LOCK_SECONDS = 10.0
_LOOK_SECONDS = 1.0
"""Seconds until running servers refuse a revoked token; a new one is valid at once."""


class TokenError(Exception):
    """Tokens cannot be read or changed; the text says why and what to do."""


@record
class TokenRecord:
    """Record of a token, without the token itself.

    Attributes:
        id: Names it in lists; part of the token.
        principal: The user on whose behalf its bearer acts.
        scopes: What its bearer may do.
        digest: SHA-256 of the secret part, which has 256 random bits.
        created_at: Unix time in seconds.
        expires_at: Unix time in seconds, or None if it is valid until it is revoked.
        agents: Agents that its bearer is limited to; empty for all agents.
    """

    id: str
    principal: str
    scopes: tuple[Scope, ...]
    digest: str
    created_at: float
    expires_at: float | None = None
    agents: tuple[str, ...] = ()

    @property
    def is_expired(self) -> bool:
        """Whether it has expired."""
        return self.expires_at is not None and self.expires_at <= time.time()


def new_token(
    principal: str,
    scopes: Sequence[Scope],
    lifetime: float | None = None,
    agents: Sequence[str] = (),
) -> tuple[TokenRecord, str]:
    """Return the record of a new token, not yet stored, and the token itself.

    Args:
        principal: On whose behalf its bearer acts.
        scopes: What they may do.
        lifetime: Seconds for which it is valid; None until it is revoked.
        agents: Agents that its bearer is limited to; empty for all agents.
    """
    secret = secrets.token_urlsafe(32)
    now = time.time()
    record = TokenRecord(
        secrets.token_hex(6),
        principal,
        tuple(scopes),
        _digest(secret),
        now,
        None if lifetime is None else now + lifetime,
        tuple(agents),
    )
    return record, f"dam_{record.id}_{secret}"


class Tokens(Protocol):
    """A store of token records. Their times are by this machine's clock."""

    async def all(self) -> Sequence[TokenRecord]:
        """Return all tokens, oldest first.

        Raises:
            TokenError, HarnessError: They cannot be read.
        """
        ...

    async def add(self, record: TokenRecord) -> None:
        """Store a token.

        Raises:
            TokenError, HarnessError: It cannot be stored.
        """
        ...

    async def revoke(self, id_: str) -> TokenRecord:
        """Remove a token; return what it was.

        Raises:
            TokenError: There is none of that id; or it cannot be removed.
            HarnessError: Likewise.
        """
        ...

    async def find(self, id_: str) -> TokenRecord | None:
        """Return a token by its id, as it was at most a second ago; a new one is found at once.

        Raises:
            TokenError, HarnessError: It is unknown whether there is one.
        """
        ...


def no_token(id_: str, records: Sequence[TokenRecord]) -> TokenError:
    """Return the error for an unknown token id."""
    known = ", ".join(one.id for one in records) or "none"
    return TokenError(f"there is no token {id_!r}; nothing was done. Tokens: {known}.")


class TokenFile:
    """The file of all tokens, `tokens.json` in the state directory, readable by its owner only."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Sequence[TokenRecord]:
        """Return all tokens, oldest first; none if there is no file.

        Raises:
            TokenError: The file cannot be read.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise TokenError(f"{self.path} cannot be read: {error.strerror or error}.") from error
        try:
            rows = cast("list[dict[str, Any]]", json.loads(text)["tokens"])
            return [record_from_json(row) for row in rows]
        except (ValueError, KeyError, TypeError) as error:
            raise TokenError(
                f"{self.path} is damaged ({error}); no token is accepted. Restore it, or delete it "
                "and create new tokens."
            ) from error

    def create(
        self,
        principal: str,
        scopes: Sequence[Scope],
        lifetime: float | None = None,
        agents: Sequence[str] = (),
    ) -> tuple[TokenRecord, str]:
        """Create and store a token; return its record and the token; see `new_token`.

        Raises:
            TokenError: The file cannot be written.
        """
        record, token = new_token(principal, scopes, lifetime, agents)
        self.add(record)
        return record, token

    def add(self, record: TokenRecord) -> None:
        """Store a token.

        Raises:
            TokenError: The file cannot be written.
        """
        with self._changing():
            self._write([*self.read(), record])

    def revoke(self, id_: str) -> TokenRecord:
        """Remove a token; return what it was.

        Raises:
            TokenError: There is none of that id, or the file cannot be written.
        """
        with self._changing():
            records = self.read()
            found = next((one for one in records if one.id == id_), None)
            if found is None:
                raise no_token(id_, records)
            self._write([one for one in records if one is not found])
        return found

    @contextmanager
    def _changing(self) -> Generator[None]:
        """Keep other commands from changing the file meanwhile."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = FileLock(f"{self.path}.lock", timeout=_LOCK_SECONDS, mode=0o600)
            lock.acquire()
        except Timeout:
            raise TokenError(
                f"{self.path} is being changed by another command. Nothing was done; try again."
            ) from None
        except OSError as error:
            raise TokenError(
                f"{self.path} cannot be written: {error.strerror or error}. Nothing was changed."
            ) from error
        try:
            yield
        finally:
            lock.release()

    def _write(self, records: Sequence[TokenRecord]) -> None:
        own = self.path.with_name(f"{self.path.name}.{secrets.token_hex(4)}")
        data = {"tokens": [record_to_json(one) for one in records]}
        try:
            descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(data, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            own.replace(self.path)
        except OSError as error:
            own.unlink(missing_ok=True)
            raise TokenError(
                f"{self.path} cannot be written: {error.strerror or error}. Nothing was changed."
            ) from error


class FileTokens:
    """The tokens of a file; see `Tokens`.

    Args:
        file: The file.
    """

    def __init__(self, file: TokenFile) -> None:
        self._file = file
        self._known: dict[str, TokenRecord] = {}
        self._looked = float("-inf")
        self._seen: tuple[int, int] | None = None

    async def all(self) -> Sequence[TokenRecord]:
        """Return all tokens, oldest first."""
        return await anyio.to_thread.run_sync(self._file.read)

    async def add(self, record: TokenRecord) -> None:
        """Store a token."""
        await anyio.to_thread.run_sync(self._file.add, record)

    async def revoke(self, id_: str) -> TokenRecord:
        """Remove a token; return what it was."""
        return await anyio.to_thread.run_sync(self._file.revoke, id_)

    async def find(self, id_: str) -> TokenRecord | None:
        """Return a token by its id, as the file is now."""
        self._look(at_once=id_ not in self._known)
        return self._known.get(id_)

    def _look(self, *, at_once: bool) -> None:
        """Read the file again if it has changed; it is small, and local."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS and not at_once:
            return
        self._looked = now
        try:
            status = self._file.path.stat()
        except OSError:
            self._known, self._seen = {}, None
            return
        seen = (status.st_mtime_ns, status.st_ino)
        if seen != self._seen:
            self._known, self._seen = {}, None  # no token is valid while the file is damaged
            self._known = {one.id: one for one in self._file.read()}
            self._seen = seen


class TokenVerifier:
    """Accepts the stored tokens (SDK: `TokenVerifier`)."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return whose token it is, or None if it is not, or no longer, accepted.

        Raises:
            TokenError: The file is damaged.
            HarnessError: The tokens cannot be read now.
        """
        found = _TOKEN.fullmatch(token)
        if found is None:
            return None
        record = await self._tokens.find(found[1])
        # Also for an unknown id, so that the time does not reveal which ids exist.
        expected = record.digest if record is not None else "0" * 64
        fits = hmac.compare_digest(_digest(found[2]), expected)
        if record is None or not fits or record.is_expired:
            return None
        expires = None if record.expires_at is None else int(record.expires_at)
        return AccessToken(
            token="",  # it is no longer needed
            client_id=record.id,
            scopes=list(record.scopes),
            expires_at=expires,
            subject=record.principal,
            claims={AGENTS_CLAIM: [*record.agents]} if record.agents else None,
        )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def record_to_json(record: TokenRecord) -> dict[str, Any]:
    """Return the stored form of a record; earlier versions have no agents."""
    row = asdict(record)
    if not record.agents:
        del row["agents"]
    return row


def record_from_json(row: dict[str, Any]) -> TokenRecord:
    """Return a record from its stored form.

    Raises:
        ValueError, TypeError: It is malformed.
    """
    record = TokenRecord(**row)
    if not set(record.scopes) <= KNOWN_SCOPES:
        raise ValueError(f"unknown scopes of token {record.id}: {record.scopes}")
    return replace(record, scopes=tuple(record.scopes), agents=tuple(record.agents))
