"""A journal in a Redis server."""

from harness.checkpoint.redis.journal import RedisCheckpointer

__all__ = ["RedisCheckpointer"]
