"""A journal in a Postgres database."""

from harness.checkpoint.postgres.journal import PostgresCheckpointer

__all__ = ["PostgresCheckpointer"]
