"""Runs: how they start, who executes them, and how they are followed."""
