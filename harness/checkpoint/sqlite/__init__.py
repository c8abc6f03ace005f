"""A journal in one SQLite file."""

from harness.checkpoint.sqlite.journal import SqliteCheckpointer

__all__ = ["SqliteCheckpointer"]
