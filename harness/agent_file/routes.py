"""Routes: tables that say where files live, by the beginning of their paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .._internal.records import record
from ..definitions import no_such
from ..errors import AgentBuildError

if TYPE_CHECKING:
    from ..backends.base import Backend
    from ..store.base import Namespace, Store
    from ..tools.tool import ToolRuntime

__all__ = ["RouteSpec", "backend_from_routes", "route_backend", "route_spec"]


@record
class RouteSpec:
    """Route of files below a path; exactly one of the others than `read_only` is set.

    Attributes:
        root: In this directory.
        store: In the long-term store, apart for each principal.
        thread: In the thread's state.
        backend: In this backend.
        read_only: Whether they cannot be changed.
    """

    root: str | Path | None = None
    store: bool = False
    thread: bool = False
    backend: Backend | None = None
    read_only: bool = False


def backend_from_routes(
    routes: Mapping[str, RouteSpec | Mapping[str, Any]],
    *,
    base: Path | None = None,
    store: Store | None = None,
) -> Backend:
    """Return the backend that stores each file by the beginning of its path.

    Args:
        routes: `{"/": {"root": "."}, "/memories": {"store": True}}`, for example. Paths that no
            route covers live in the thread.
        base: What relative directories count from; the current directory by default.
        store: The store; None for the agent's own.

    Raises:
        AgentBuildError: A route is none that is accepted.
    """
    from ..backends.composite import CompositeBackend
    from ..backends.state import StateBackend

    made = {
        path: route_backend(path, given, base=base, store=store) for path, given in routes.items()
    }
    default = made.pop("/", None) or StateBackend()
    return CompositeBackend(default, made) if made else default


def route_backend(
    path: str,
    given: RouteSpec | Mapping[str, Any],
    *,
    base: Path | None,
    store: Store | None = None,
) -> Backend:
    """Return the backend of one route; see `backend_from_routes`.

    Raises:
        AgentBuildError: The route is none that is accepted.
    """
    return _backend(path, route_spec(path, given), base, store)


def route_spec(path: str, given: RouteSpec | Mapping[str, Any]) -> RouteSpec:
    """Return a route that was checked.

    Raises:
        AgentBuildError: It is none that is accepted.
    """
    if not path.startswith("/"):
        raise AgentBuildError(f"files: a route must begin with /, such as /memories; got {path!r}")
    if not isinstance(given, RouteSpec):
        names = RouteSpec.__dataclass_fields__
        for key in given:
            if key not in names:
                raise AgentBuildError(f"files, route {path!r}: {no_such('key', key, names)}")
        for key in ("store", "thread", "read_only"):
            if not isinstance(given.get(key, False), bool):
                raise AgentBuildError(f"files, route {path!r}: {key} must be true or false")
        if not isinstance(given.get("root"), str | Path | None):
            raise AgentBuildError(f"files, route {path!r}: root must be the path of a directory")
        given = RouteSpec(**given)
    named = (given.root is not None, given.store, given.thread, given.backend is not None)
    if sum(named) != 1:
        raise AgentBuildError(
            f"files, route {path!r}: set exactly one of root = DIRECTORY, store = true, "
            "thread = true and backend"
        )
    if given.thread and given.read_only:
        raise AgentBuildError(
            f"files, route {path!r}: a read-only route in the thread would stay empty; remove "
            "read_only"
        )
    return given


def _backend(path: str, spec: RouteSpec, base: Path | None, store: Store | None) -> Backend:
    from ..backends.composite_parts import ReadOnlyBackend

    made: Backend
    if spec.root is not None:
        from ..backends.directory import DirectoryBackend

        made = DirectoryBackend((base or Path.cwd()) / Path(spec.root).expanduser())
    elif spec.backend is not None:
        made = spec.backend
    elif spec.store:
        from ..backends.store import StoreBackend

        made = StoreBackend(store, _of_principal(path))
    else:
        from ..backends.state import StateBackend

        made = StateBackend()
    return ReadOnlyBackend(made) if spec.read_only else made


def _of_principal(path: str) -> Callable[[ToolRuntime], Namespace]:
    """Return a function from a call to its caller's namespace; names become distinct segments."""
    place = _segment(path.strip("/") or "root")

    def namespace(runtime: ToolRuntime) -> Namespace:
        owner = f"principal:{_segment(runtime.principal)}" if runtime.principal else "local"
        return ("files", place, owner)

    return namespace


def _segment(text: str) -> str:
    return quote(text, safe=" @:+").replace(".", "%2E")
