"""Engines: who carries which run, how many at once, and whose first."""
