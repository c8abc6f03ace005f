"""Puts this server into MCP clients: one entry in the file where each keeps its list of servers."""

from server.install.clients import CLIENTS, KEY_VARIABLE, Client
from server.install.config_file import ConfigFileError
from server.install.installer import (
    Change,
    InstallError,
    PathOption,
    Placement,
    Request,
    find_entry,
)
from server.install.machine import Machine, NotInstalled
from server.install.places import PLACES, Scope

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
