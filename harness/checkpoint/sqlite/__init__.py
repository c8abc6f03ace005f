"""A journal in one SQLite file."""

from .journal import SqliteCheckpointer

__all__ = ["SqliteCheckpointer"]
