"""A journal in a Postgres database."""

from .journal import PostgresCheckpointer

__all__ = ["PostgresCheckpointer"]
