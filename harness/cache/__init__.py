"""Caches of model answers and tool results."""
