"""A journal in a Redis server."""

from .journal import RedisCheckpointer

__all__ = ["RedisCheckpointer"]
