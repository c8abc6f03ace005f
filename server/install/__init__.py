"""Puts this server into MCP clients: one entry in the file where each keeps its list of servers."""

from .clients import CLIENTS, KEY_VARIABLE, Client
from .config_file import ConfigFileError
from .installer import (
    Change,
    InstallError,
    PathOption,
    Placement,
    Request,
    find_entry,
)
from .machine import Machine, NotInstalled
from .places import PLACES, Scope

__all__ = [
    "CLIENTS",
    "KEY_VARIABLE",
    "PLACES",
    "Change",
    "Client",
    "ConfigFileError",
    "InstallError",
    "Machine",
    "NotInstalled",
    "PathOption",
    "Placement",
    "Request",
    "Scope",
    "find_entry",
]
