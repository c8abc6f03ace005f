"""OAuth tokens: stores the logins to remote servers, one file for each server.

Only the user can read the directory and its files. If there are keys, the files are also encrypted,
with the cipher of journals. Tokens belong to a URL: if a server's URL changes, it has none. The
local address to which the browser returns after a login is here too. Nothing here imports the
protocol's SDK, and nothing shows a token.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl, urlsplit

import anyio
from anyio.abc import Listener, SocketAttribute, SocketStream, TaskGroup

from .._internal.concurrency import raising_one
from .._internal.records import record
from ..errors import HarnessError

if TYPE_CHECKING:
    from ..checkpoint.keyring import Keyring

__all__ = [
    "Callback",
    "Login",
    "LoginNeeded",
    "LoginStore",
    "TokenFiles",
    "TokensUnusable",
    "login_from_json",
    "login_to_json",
    "unusable_login",
]


_SEALED = b"deep-agent-mcp sealed tokens 1\n"
_CONTEXT = b"tokens of an MCP server"
_LOCK_SECONDS = 20.0


class TokensUnusable(HarnessError):
    """Stored tokens cannot be read or written; the text says what to do."""


class LoginNeeded(Exception):
    """A request was not sent, because the server needs a login; the text says what to run."""


def unusable_login(server: str, place: str, why: str) -> TokensUnusable:
    """Return the error for a stored login that cannot be read or written."""
    return TokensUnusable(
        f"the login to MCP server {server!r} in {place} cannot be used: {why}. Fix that, or log in "
        f"again with `deep-agent-mcp mcp login {server}`."
    )


@record
class Login:
    """Result of a login.

    Attributes:
        url: The server's URL.
        client: The registered client.
        tokens: The tokens.
        expires_at: Unix time in seconds at which the access token expires, if known.
        metadata: Metadata of the authorization server.
        resource: Metadata of the server.
    """

    url: str
    client: Mapping[str, Any]
    tokens: Mapping[str, Any]
    expires_at: float | None = None
    metadata: Mapping[str, Any] | None = None
    resource: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        return "<Login>"


def login_to_json(login: Login) -> bytes:
    """Return a login in its stored form."""
    names = ("url", "client", "tokens", "expires_at", "metadata", "resource")
    return json.dumps({name: getattr(login, name) for name in names}).encode()


def login_from_json(data: bytes) -> Login | None:
    """Return a login from its stored form; None if that is damaged."""
    try:
        return Login(**json.loads(data))
    except (ValueError, TypeError, RecursionError):
        return None


class LoginStore(Protocol):
    """Storage of one user's logins, by the names of servers. Every method blocks.

    All raise `TokensUnusable` when the store cannot be used.
    """

    def read(self, server: str, url: str | None = None) -> Login | None:
        """Return the login to a server; None if there is none for this URL."""
        ...

    def stamp(self, server: str) -> tuple[int, int] | None:
        """Return a value that changes with each login; None without a login."""
        ...

    def write(self, server: str, login: Login) -> None:
        """Store a login in place of the one before."""
        ...

    def remove(self, server: str) -> bool:
        """Delete a login; return whether there was one."""
        ...

    def alone(self, server: str) -> AbstractContextManager[None]:
        """Prevent others from using a refresh token during the block; waits for a limited time."""
        ...


class TokenFiles:
    """The logins of one user, in a directory; a `LoginStore`.

    Args:
        folder: The directory; created with the first login.
        keys: The encryption keys of the files; None leaves the files readable to the user.
    """

    def __init__(self, folder: str | os.PathLike[str], keys: Keyring | None = None) -> None:
        self.folder = Path(folder)
        self._keys = keys

    def __repr__(self) -> str:
        return f"TokenFiles({str(self.folder)!r})"

    def read(self, server: str, url: str | None = None) -> Login | None:
        """Return the login to a server; None if there is none for this URL.

        Args:
            server: Its name.
            url: Its current URL; None for any URL.

        Raises:
            TokensUnusable: The file cannot be read, or not with these keys.
        """
        login = self._read(server, self._file(server))
        return login if login is not None and url in (None, login.url) else None

    def stamp(self, server: str) -> tuple[int, int] | None:
        """Return a value that changes with each login; None without a login."""
        with suppress(OSError):
            found = self._file(server).stat()
            return found.st_mtime_ns, found.st_ino
        return None

    def write(self, server: str, login: Login) -> None:
        """Store a login in place of the one before.

        Raises:
            TokensUnusable: The file cannot be written; the one before is still there.
        """
        self._write(server, self._file(server), login)

    def remove(self, server: str) -> bool:
        """Delete a login; return whether there was one.

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

    def alone(self, server: str) -> AbstractContextManager[None]:
        """Prevent other processes from using a refresh token; blocks for a limited time.

        Raises:
            TokensUnusable: Another process does not finish.
        """
        return self._held(server, self._file(server))

    def reseal(self, keys: Keyring | None) -> None:
        """Encrypt all logins with other keys; None leaves them readable to the user.

        Raises:
            TokensUnusable: A file cannot be read or written. Those before it are done.
        """
        again = TokenFiles(self.folder, keys)
        for file in sorted(self.folder.glob("*.json")):
            server = file.stem.rpartition("-")[0]
            try:
                with self._held(server, file):
                    login = self._read(server, file)
                    if login is not None:
                        again._write(server, file, login)
            except TokensUnusable as error:
                raise TokensUnusable(
                    f"the login in {file} cannot be sealed again; those before it were. If its key "
                    f"is lost, delete the file, and log in again. ({error})"
                ) from error

    @contextmanager
    def _held(self, server: str, file: Path) -> Generator[None]:
        from filelock import FileLock, Timeout  # only for a refresh

        lock = FileLock(file.with_suffix(".lock"), _LOCK_SECONDS, thread_local=False, mode=0o600)
        try:
            self._make_folder()
            lock.acquire()
        except Timeout:
            text = "another process is still refreshing it"
            raise self._unusable(server, text) from None
        except OSError as error:
            raise self._unusable(server, error.strerror or str(error)) from error
        try:
            yield
        finally:
            lock.release()

    def _read(self, server: str, file: Path) -> Login | None:
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(server, error.strerror or str(error)) from error
        if data.startswith(_SEALED):
            data = self._opened(server, data[len(_SEALED) :], file)
        login = login_from_json(data)
        if login is None:
            raise self._unusable(server, "the file is damaged")
        return login

    def _write(self, server: str, file: Path, login: Login) -> None:
        data = login_to_json(login)
        if self._keys is not None:
            from ..checkpoint.keyring import Cipher

            data = _SEALED + Cipher(self._keys).seal(data, _context(file))
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

    def _make_folder(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _opened(self, server: str, sealed: bytes, file: Path) -> bytes:
        if self._keys is None:
            raise self._unusable(
                server, "it is encrypted with the journal's key, but no key is set"
            )
        from ..checkpoint.keyring import Cipher, Damaged, UnknownKey

        try:
            return Cipher(self._keys).open(sealed, _context(file))
        except UnknownKey as error:
            why = f"it is encrypted with the key {error}, which is not set"
            raise self._unusable(server, why) from None
        except Damaged:
            raise self._unusable(server, "it was altered") from None

    def _file(self, server: str) -> Path:
        plain = re.sub(r"[^A-Za-z0-9_-]+", "_", server)[:40]
        return self.folder / f"{plain}-{_digest(server)}.json"

    def _unusable(self, server: str, why: str) -> TokensUnusable:
        return unusable_login(server, str(self.folder), why)


def _digest(server: str) -> str:
    return blake2b(server.encode(errors="replace"), digest_size=6).hexdigest()


def _context(file: Path) -> list[bytes]:
    """Return what a login is bound to: its server, as far as the file's name tells it."""
    server, _, digest = file.stem.rpartition("-")
    return [_CONTEXT, (server if _digest(server) == digest else file.stem).encode()]


_PATH = "/callback"
_MOST_BYTES = 16 << 10
_SECONDS = 10.0

_PAGE = (
    "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\n"
    "Content-Security-Policy: default-src 'none'\r\nConnection: close\r\nContent-Length: {size}\r\n"
    "\r\n{body}"
)


class Callback:
    """Waits for the answer to one login. All other requests are refused.

    Attributes:
        url: The address.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._state = ""
        self._given: dict[str, str] = {}
        self._arrived = anyio.Event()

    @classmethod
    @asynccontextmanager
    async def open(cls, port: int) -> AsyncGenerator[Callback]:
        """Listen on 127.0.0.1.

        Raises:
            OSError: The port is taken.
        """
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
        async with listener, raising_one(), anyio.create_task_group() as group:
            bound = listener.listeners[0].extra(SocketAttribute.local_port)
            callback = cls(f"http://127.0.0.1:{bound}{_PATH}")
            group.start_soon(callback._serve, listener, group)
            yield callback
            group.cancel_scope.cancel()

    def expect(self, state: str) -> None:
        """Set the state that the answer must contain."""
        self._state = state

    async def answer(self) -> dict[str, str]:
        """Wait for the answer and return its parameters."""
        await self._arrived.wait()
        return self._given

    async def _serve(self, listener: Listener[SocketStream], group: TaskGroup) -> None:
        await listener.serve(self._handle, group)

    async def _handle(self, stream: SocketStream) -> None:
        async with stream:
            try:
                with anyio.move_on_after(_SECONDS):
                    target = await _target(stream)
                    status, text = self._took(target)
                    body = f"<!doctype html><title>Deep Agent MCP</title><p>{text}</p>"
                    page = _PAGE.format(status=status, size=len(body.encode()), body=body)
                    await stream.send(page.encode())
            except (anyio.BrokenResourceError, anyio.EndOfStream):
                return  # a browser that left

    def _took(self, target: str) -> tuple[str, str]:
        parts = urlsplit(target)
        if parts.path != _PATH:
            return "404 Not Found", "There is nothing here."
        given = dict(parse_qsl(parts.query))
        if not self._state or not secrets.compare_digest(
            given.get("state", "").encode(), self._state.encode()
        ):
            return "400 Bad Request", "This does not belong to the login that is under way."
        if not self._arrived.is_set():
            self._given = given
            self._arrived.set()
        if "error" in given:
            return "200 OK", "The login was refused. You can close this page."
        return "200 OK", "You can close this page and go back to the terminal."


async def _target(stream: SocketStream) -> str:
    """Return the target of an HTTP request."""
    data = b""
    while b"\r\n\r\n" not in data and len(data) < _MOST_BYTES:
        data += await stream.receive()
    parts = data.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    return parts[1] if len(parts) == 3 and parts[0] == "GET" else ""
