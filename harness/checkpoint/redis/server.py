"""Redis requirements: checks that a server can hold a journal, and how durable it is."""

from __future__ import annotations

from typing import Any

from ..._internal.records import record
from ...errors import CheckpointError
from .batches import VERSION, newer
from .connections import Session
from .scripts import OPEN

__all__ = ["Trust", "check_server"]

_OLDEST = (7, 0)
"""Earlier ones would leave half a commit behind when memory runs out in the middle of a script."""

_WAITS_FOR_DISK = (7, 2)


@record
class Trust:
    """What a server keeps.

    Attributes:
        can_sync: Whether a commit can wait until it is on the server's disk.
        warning: What its settings may lose, or cost; empty if nothing.
    """

    can_sync: bool
    warning: str


async def check_server(session: Session, prefix: str, place: str) -> Trust:
    """See whether a server will do, and make the journal if it is not there.

    Args:
        session: A connection to the server.
        prefix: What the journal's keys begin with.
        place: The journal, for errors.

    Raises:
        ServerFailed: The server cannot be asked.
        NewerDatabase: A newer version wrote the journal.
        CheckpointError: The server or the journal is not one for us; nothing was touched.
    """
    replies = await session.exchange(
        ("INFO",), ("CONFIG", "GET", "appendfsync", "save", "maxmemory", "maxmemory-policy")
    )
    info, config = _information(replies[0]), _settings(replies[1])
    version = tuple(int(part) for part in info.get("redis_version", "").split(".")[:2] if part)
    if version < _OLDEST:
        raise CheckpointError(
            f"{place} needs Redis {_OLDEST[0]}.{_OLDEST[1]} or later, and this server is "
            f"{info.get('redis_version', 'of an unknown version')}. Nothing was touched; update it."
        )
    if info.get("cluster_enabled") == "1":
        raise CheckpointError(
            f"{place} is a Redis Cluster, where a commit cannot be one step. Nothing was touched; "
            f"use a server that stands alone, with replicas or Sentinel if need be."
        )
    (stored,) = await session.run((OPEN, [prefix, VERSION]))
    if isinstance(stored, Exception):
        raise ValueError(str(stored).rstrip(".")) from stored
    if stored != b"%d" % VERSION:
        raise newer(place, stored)
    appends = info.get("aof_enabled") == "1"
    # With `no`, nobody asks the disk, and a commit would wait in vain.
    asks = config.get("appendfsync") != "no"
    can_sync = appends and asks and version >= _WAITS_FOR_DISK
    return Trust(can_sync, _warning(appends, config, can_sync=can_sync))


def _information(reply: Any) -> dict[str, str]:
    if isinstance(reply, Exception):
        raise ValueError(str(reply).rstrip(".")) from reply
    pairs = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in pairs if colon}


def _settings(reply: Any) -> dict[str, str]:
    """Return settings; none where the server does not tell them, as managed ones do not."""
    if isinstance(reply, Exception):
        return {}
    words = [word.decode(errors="replace") for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))


def _warning(appends: bool, config: dict[str, str], *, can_sync: bool) -> str:
    warnings: list[str] = []
    fsync = config.get("appendfsync")
    if not appends and config.get("save") == "":
        warnings.append(
            "the server keeps nothing on disk: when it stops, everything is lost. Set `appendonly "
            "yes`"
        )
    elif not appends and config:
        warnings.append(
            "the server only stores snapshots: a crash loses all since the last. Set `appendonly "
            "yes`"
        )
    elif appends and fsync == "no":
        warnings.append(
            "a crash of the machine loses what the operating system has not written yet. Set "
            "`appendfsync always`"
        )
    elif can_sync and fsync == "everysec":
        warnings.append(
            "the server asks its disk once a second, so that commits wait for up to a second. Set "
            "`appendfsync always`"
        )
    policy = config.get("maxmemory-policy", "")
    if policy.startswith("allkeys") and config.get("maxmemory", "0") != "0":
        warnings.append(
            f"the server may throw away parts of threads (`maxmemory-policy {policy}`). Set "
            f"`noeviction`"
        )
    return "; ".join(warnings)
