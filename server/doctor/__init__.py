"""Looks whether the server can work here, and how each client would meet it."""

from .examination import Examination
from .findings import Finding
from .handshakes import Handshake

__all__ = ["Examination", "Finding", "Handshake"]
