"""OAuth tokens: what a login to a remote server left, one file for each server.

The directory and its files are the user's alone. With keys the files are sealed, too, by the cipher
of journals. Tokens belong to a URL: a server that is given another URL has none.

Nothing here imports the protocol's SDK, and nothing shows a token.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._internal.records import record
from ..errors import HarnessError

if TYPE_CHECKING:
    from ..checkpoint.keyring import Keyring

__all__ = ["Login", "LoginNeeded", "TokenFiles", "TokensUnusable"]

_SEALED = b"deep-agent-mcp sealed tokens 1\n"
_CONTEXT = b"tokens of an MCP server"
_LOCK_SECONDS = 20.0


class TokensUnusable(HarnessError):
    """Stored tokens cannot be read or written; the text says what to do."""


class LoginNeeded(Exception):
    """A request was not sent, because the server needs a login; the text says what to run."""


@record
class Login:
    """What a login left.

    Attributes:
        url: The server's URL.
        client: The client as it is registered.
        tokens: The tokens.
        expires_at: Unix time in seconds from which on the access token is of no use, if known.
        metadata: What the authorization server says of itself.
        resource: What the server says of itself.
    """

    url: str
    client: Mapping[str, Any]
    tokens: Mapping[str, Any]
    expires_at: float | None = None
    metadata: Mapping[str, Any] | None = None
    resource: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        return "<Login>"


class TokenFiles:
    """The logins of one user, in a directory.

    Args:
        folder: The directory; made with the first login.
        keys: What the files are sealed with; None leaves them readable to the user.
    """

    def __init__(self, folder: str | os.PathLike[str], keys: Keyring | None = None) -> None:
        self.folder = Path(folder)
        self._keys = keys

    def __repr__(self) -> str:
        return f"TokenFiles({str(self.folder)!r})"

    def read(self, server: str, url: str) -> Login | None:
        """Return the login to a server; None if there is none at this URL.

        Raises:
            TokensUnusable: The file cannot be read, or not with these keys.
        """
        try:
            data = self._file(server).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(server, error.strerror or str(error)) from error
        if data.startswith(_SEALED):
            data = self._opened(server, data[len(_SEALED) :])
        try:
            login = Login(**json.loads(data))
        except (ValueError, TypeError, RecursionError):
            raise self._unusable(server, "the file is damaged") from None
        return login if login.url == url else None

    def stamp(self, server: str) -> tuple[int, int] | None:
        """Return what changes with each login; None while there is none."""
        with suppress(OSError):
            found = self._file(server).stat()
            return found.st_mtime_ns, found.st_ino
        return None

    def write(self, server: str, login: Login) -> None:
        """Store a login in place of the one before.

        Raises:
            TokensUnusable: The file cannot be written; the one before is still there.
        """
        names = ("url", "client", "tokens", "expires_at", "metadata", "resource")
        data = json.dumps({name: getattr(login, name) for name in names}).encode()
        if self._keys is not None:
            from ..checkpoint.keyring import Cipher

            data = _SEALED + Cipher(self._keys).seal(data, self._context(server))
        file = self._file(server)
        fresh = file.with_suffix(f".{secrets.token_hex(4)}.new")
        try:
            self._make_folder()
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(data)
                opened.flush()
                os.fsync(opened.fileno())
            os.replace(fresh, file)
        except OSError as error:
            with suppress(OSError):
                fresh.unlink()
            raise self._unusable(server, error.strerror or str(error)) from error

    def remove(self, server: str) -> bool:
        """Forget a login; return whether there was one.

        Raises:
            TokensUnusable: The file cannot be removed.
        """
        try:
            self._file(server).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._unusable(server, error.strerror or str(error)) from error
        return True

    @contextmanager
    def alone(self, server: str) -> Generator[None]:
        """Keep other processes from using a refresh token meanwhile; blocks for a bounded time.

        Raises:
            TokensUnusable: Another process does not come to an end.
        """
        from filelock import FileLock, Timeout  # only for a refresh

        file = self._file(server).with_suffix(".lock")
        lock = FileLock(file, _LOCK_SECONDS, thread_local=False, mode=0o600)
        try:
            self._make_folder()
            lock.acquire()
        except Timeout:
            text = "another process has been refreshing it for too long"
            raise self._unusable(server, text) from None
        except OSError as error:
            raise self._unusable(server, error.strerror or str(error)) from error
        try:
            yield
        finally:
            lock.release()

    def _make_folder(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _opened(self, server: str, sealed: bytes) -> bytes:
        if self._keys is None:
            raise self._unusable(server, "it is sealed with the journal's key, and none is set")
        from ..checkpoint.keyring import Cipher, Damaged, UnknownKey

        try:
            return Cipher(self._keys).open(sealed, self._context(server))
        except UnknownKey as error:
            why = f"it is sealed with the key {error}, which is not set"
            raise self._unusable(server, why) from None
        except Damaged:
            raise self._unusable(server, "it was altered") from None

    def _context(self, server: str) -> list[bytes]:
        return [_CONTEXT, server.encode(errors="replace")]

    def _file(self, server: str) -> Path:
        digest = blake2b(server.encode(errors="replace"), digest_size=6).hexdigest()
        plain = re.sub(r"[^A-Za-z0-9_-]+", "_", server)[:40]
        return self.folder / f"{plain}-{digest}.json"

    def _unusable(self, server: str, why: str) -> TokensUnusable:
        return TokensUnusable(
            f"the login to MCP server {server!r} in {self.folder} cannot be used: {why}. Fix that, "
            f"or log in again with `deep-agent-mcp mcp login {server}`."
        )
