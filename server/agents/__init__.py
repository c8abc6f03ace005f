"""Agents of runs: how they are made from the settings, and where they work."""
