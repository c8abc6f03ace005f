"""Looks whether the server can work here, and how each client would meet it."""

from server.doctor.examination import Examination
from server.doctor.findings import Finding
from server.doctor.handshakes import Handshake

__all__ = ["Examination", "Finding", "Handshake"]
