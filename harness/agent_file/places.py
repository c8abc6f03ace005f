"""Storage by URL: opens the journal, store or cache that a URL names.

What the functions return connects at its first use; use it with `async with`, or `open()` it, to
get errors early. No message shows a password.

    memory:                       this process
    sqlite:///srv/agent/store.db  a file, by its absolute path
    sqlite:store.db               a file, relative to the base directory
    postgresql://user@host/name   a Postgres database
    redis://host:6379/0           a Redis server
    name:text                     a journal of an installed plugin, which is given the text

With `?schema=name` several of them share one database: the tables of a journal are in the schema
`name_journal`, those of a store in `name_store`, those of a cache in `name_cache`. In Redis, the
keys of a journal begin with `name:`, those of a store with `name:store:`, those of a cache with
`name:cache:`.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast
from urllib.parse import SplitResult, parse_qsl, unquote, unquote_plus, urlsplit

import anyio.to_thread

from ..errors import AgentBuildError
from ..plugins import ObjectError, call_object, entry_points, resolve

if TYPE_CHECKING:
    from ..cache import Cache
    from ..checkpoint.base import Checkpointer
    from ..store.base import Embed, Index, Store

__all__ = [
    "journal_plugin",
    "open_cache",
    "open_checkpointer",
    "open_store",
    "scheme_of",
    "shown_place",
    "split_database_url",
]

Scheme: TypeAlias = Literal["memory", "sqlite", "postgresql", "redis"]

_SCHEMES: Mapping[str, Scheme] = {
    "memory": "memory",
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "redis": "redis",
    "rediss": "redis",
    "unix": "redis",
}
_EXAMPLES: Mapping[Scheme, str] = {
    "memory": "memory:",
    "sqlite": "sqlite:///path/of/file.db",
    "postgresql": "postgresql://user@host/database",
    "redis": "redis://host:6379/0",
}
_TIMEOUT = 30.0
_CONNECT_SECONDS = 10


def open_store(
    url: str,
    *,
    base: Path | None = None,
    embed: str | Embed | None = None,
    dims: int | None = None,
    index: Index | None = None,
    default_ttl: float | None = None,
    timeout: float = _TIMEOUT,
) -> Store:
    """Return the long-term store at a URL: `memory:`, `sqlite:`, `postgresql:` or `redis:`.

    Args:
        url: The URL.
        base: What relative files count from; the current directory by default.
        embed: Makes a `query` search by meaning: a function of texts that returns their vectors,
            or its name as `module:function`.
        dims: Length of the vectors; by default what the first ones have.
        index: What a `query` searches; by default every text.
        default_ttl: Seconds until an item expires that does not say it itself.
        timeout: Seconds that the database has for an answer.

    Raises:
        AgentBuildError: The URL or the name is none that is accepted, or an extra is missing.
            Nothing was opened.
    """
    options: dict[str, Any] = {"embed": _embedding(embed), "dims": dims, "default_ttl": default_ttl}
    if index is not None:
        options["index"] = index
    match _checked("store", url):
        case "memory":
            from ..store.memory import MemoryStore

            return MemoryStore(**options)
        case "sqlite":
            from ..store.sqlite import SqliteStore

            return SqliteStore(_file("store", url, base), **options)
        case "postgresql":
            module = _imported("store", "postgresql", "..store.postgres")
            return _in_postgres("store", url, module.PostgresStore, timeout=timeout, **options)
        case "redis":
            module = _imported("store", "redis", "..store.redis")
            return _in_redis("store", url, module.RedisStore, timeout=timeout, **options)


def open_cache(url: str, *, base: Path | None = None) -> Cache:
    """Return the cache at a URL: `memory:`, `sqlite:`, `postgresql:` or `redis:`.

    Args:
        url: The URL.
        base: What relative files count from; the current directory by default.

    Raises:
        AgentBuildError: The URL is none that is accepted, or an extra is missing. Nothing was
            opened.
    """
    match _checked("cache", url):
        case "memory":
            from ..cache import MemoryCache

            return MemoryCache()
        case "sqlite":
            from ..cache import SqliteCache

            return SqliteCache(_file("cache", url, base))
        case "postgresql":
            module = _imported("cache", "postgresql", "..cache.postgres")
            return _in_postgres("cache", url, module.PostgresCache)
        case "redis":
            module = _imported("cache", "redis", "..cache.redis")
            return _in_redis("cache", url, module.RedisCache)


def open_checkpointer(
    url: str, *, base: Path | None = None, timeout: float = _TIMEOUT
) -> Checkpointer:
    """Return the journal at a URL: `memory:`, `sqlite:`, `postgresql:`, `redis:` or a plugin's.

    Args:
        url: The URL.
        base: What relative files count from; the current directory by default.
        timeout: Seconds that the database has for an answer.

    Raises:
        AgentBuildError: The URL is none that is accepted, an extra is missing, or the plugin made
            no journal. Nothing was opened.
    """
    if scheme_of(url) is None:
        return _made_by_plugin(url, journal_plugin(url))
    match _checked("journal", url):
        case "memory":
            from ..checkpoint.memory import MemoryCheckpointer

            return MemoryCheckpointer()
        case "sqlite":
            from ..checkpoint.sqlite import SqliteCheckpointer

            return SqliteCheckpointer(_file("journal", url, base))
        case "postgresql":
            module = _imported("journal", "postgresql", "..checkpoint.postgres")
            return _in_postgres("journal", url, module.PostgresCheckpointer, timeout=timeout)
        case "redis":
            module = _imported("journal", "redis", "..checkpoint.redis")
            return _in_redis("journal", url, module.RedisCheckpointer, timeout=timeout)


def _in_postgres(what: str, url: str, made: Any, **options: Any) -> Any:
    url, schema = split_database_url(url)
    named = {} if schema is None else {"schema": f"{schema}_{what}"}
    return made(_conninfo(what, url), **named, **options)


def _in_redis(what: str, url: str, made: Any, **options: Any) -> Any:
    url, schema = split_database_url(url)
    kind = "" if what == "journal" else f"{what}:"
    named = {} if schema is None else {"prefix": f"{schema}:{kind}"}
    try:
        return made(url, **named, **options)
    except ValueError:  # its text may show the URL
        raise _refused(what, url, "it is not a URL of a Redis server") from None


def journal_plugin(url: str) -> Any:
    """Return the class or function of a plugin that makes the journal at a URL.

    The URL begins with the plugin's name.

    Raises:
        AgentBuildError: There is no such plugin, or it cannot be imported.
    """
    name, colon, _ = url.partition(":")
    plugins = entry_points("checkpointers")
    if name in plugins:
        return resolve(name, "checkpointers")
    given = f"a URL of {name[:40]!r}" if colon else "no URL"
    begin = ", ".join(f"{one}:" for one in _EXAMPLES)
    there = ", ".join(plugins) or "none"
    near = difflib.get_close_matches(name, [*_SCHEMES, *plugins], n=1) if colon else []
    hint = f" Did you mean {near[0]}:?" if near else ""
    raise AgentBuildError(
        f"the journal is named by {given}; nothing was opened. It begins with {begin} or the name "
        f"of a plugin (installed: {there}).{hint}"
    )


def _made_by_plugin(url: str, factory: Any) -> Checkpointer:
    name, _, rest = url.partition(":")
    what = f"the journal plugin {name!r}"
    if not callable(factory):
        raise AgentBuildError(f"{what} is {factory!r:.200}, which does not return a journal.")
    try:
        made = call_object(factory, what, rest)
    except ObjectError as error:
        raise AgentBuildError(_without_secrets(str(error), url)) from None
    if not all(hasattr(made, one) for one in ("commit", "load", "close")):
        kind = type(made).__name__  # its text may show the URL
        raise AgentBuildError(f"{what} returned an object of type {kind}, which is not a journal.")
    return cast("Checkpointer", made)


def _without_secrets(text: str, url: str) -> str:
    parts = _split(url)
    user = url.partition("//")[2].rpartition("@")[0]
    given = [url.partition(":")[2], user.partition(":")[2]]
    given += () if parts is None else (parts.query, parts.password or "")
    secrets = {form for one in given if one for form in (one, unquote(one), unquote_plus(one))}
    if parts is not None:
        secrets |= {value for _, value in parse_qsl(parts.query) if value}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "…")
    return text


def scheme_of(url: str) -> Scheme | None:
    """Return the kind of storage that a URL names; None if it names none."""
    return _SCHEMES.get(url.partition(":")[0].lower()) if ":" in url else None


def split_database_url(url: str) -> tuple[str, str | None]:
    """Split a database URL into the URL without its `schema` parameter, and the schema."""
    # `urlsplit` would drop an empty host, and does not know several hosts; libpq accepts both.
    place, _, query = url.partition("?")
    given = query.split("&")
    schemas = [one for one in given if one.startswith("schema=")]
    if not schemas:
        return url, None
    rest = "&".join(one for one in given if one not in schemas)
    return f"{place}?{rest}" if rest else place, unquote(schemas[-1].partition("=")[2])


def shown_place(url: str) -> str:
    """Return a URL as it may be shown: without user, password and parameters."""
    parts = _split(url)
    if parts is None or scheme_of(url) is None or _is_cut(parts):
        return "(a URL that cannot be read)"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}:{'//' if host or parts.path.startswith('/') else ''}{host}{parts.path}"


def _is_cut(parts: SplitResult) -> bool:
    """Whether an unquoted `/`, `?` or `#` in a password may have ended the host too early."""
    if scheme_of(parts.geturl()) == "sqlite" or "@" in parts.netloc:  # a file has no password
        return False
    unshown = parts.query + parts.fragment if ":" in parts.netloc else ""
    return "@" in parts.path + unshown


def _checked(what: str, url: str) -> Scheme:
    scheme = scheme_of(url)
    if scheme is None:
        shown = ", ".join(_EXAMPLES.values())
        name, colon, _ = url.partition(":")
        given = f"a URL of {name[:40]!r}" if colon else "no URL"
        near = difflib.get_close_matches(name, _SCHEMES, n=1) if colon else []
        hint = f" Did you mean {near[0]}:?" if near else ""
        raise AgentBuildError(
            f"the {what} is named by {given}; nothing was opened. Accepted: {shown}.{hint}"
        )
    return scheme


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    # After an unquoted `/` in a password, its beginning looks like a port.
    hosts = parts.netloc.rpartition("@")[2].split(",")
    ports = [one.rpartition("]")[2].partition(":")[2] for one in hosts]
    return parts if all(map(_is_port, ports)) else None


def _is_port(text: str) -> bool:
    """Whether a text is a port, or empty, which means the default."""
    return not text or (text.isdecimal() and len(text) < 6 and int(text) < 65_536)


def _file(what: str, url: str, base: Path | None) -> Path:
    parts = _split(url)
    path = unquote(parts.path) if parts is not None else ""
    if parts is None or parts.netloc or parts.query or parts.fragment or path in ("", "/"):
        raise _refused(
            what, url, "a file is expected, as sqlite:///absolute/path or sqlite:relative/path"
        )
    if path.startswith("/"):
        path = "/" + path.lstrip("/")
    if path[1:2].isalpha() and path[2:3] == ":":  # sqlite:///C:/data.db
        path = path[1:]
    return (base or Path.cwd()) / Path(path).expanduser()


def _conninfo(what: str, url: str) -> str:
    """Return the URL for libpq, with a limit on connecting."""
    from psycopg import Error
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    try:
        parts = cast("dict[str, Any]", conninfo_to_dict(url))
    except Error:  # its text may show the password
        why = "it is not a URL of a Postgres database; quote special characters in the password"
        raise _refused(what, url, f"{why} (%40 for @)") from None
    if not all(map(_is_port, str(parts.get("port", "")).split(","))):
        raise _refused(what, url, "its port is not a number from 1 to 65535")
    return make_conninfo("", **{"connect_timeout": str(_CONNECT_SECONDS), **parts})


def _imported(what: str, scheme: Scheme, module: str) -> Any:
    try:
        return import_module(module, __package__)
    except ImportError as error:
        extra = "postgres" if scheme == "postgresql" else "redis"
        raise AgentBuildError(
            f"a {what} at {scheme}: needs the extra `{extra}`; nothing was opened. Install it "
            f"with: pip install 'deep-agent-mcp[{extra}]'"
        ) from error


def _refused(what: str, url: str, why: str) -> AgentBuildError:
    return AgentBuildError(
        f"the {what} at {url.partition(':')[0]}: cannot be used: {why}. Nothing was opened."
    )


def _embedding(named: str | Embed | None) -> Embed | None:
    """Return the function that makes vectors, imported if it is named."""
    if named is None:
        return None
    function = _function(named) if isinstance(named, str) else named
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  an object with an async __call__
    ):
        return function

    async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        found: Any = await anyio.to_thread.run_sync(cast(Any, function), texts)
        return await found if inspect.isawaitable(found) else found

    return embed


def _function(name: str) -> Any:
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise AgentBuildError(
            f"embed: 'module:function' is expected, such as 'our_tools.vectors:embed'; got {name!r}"
        )
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise AgentBuildError(f"embed: {name!r} cannot be imported: {error}") from error
    if not callable(found):
        raise AgentBuildError(f"embed: {name!r} is not a function")
    return found
