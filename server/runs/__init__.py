"""Runs: how they start, who carries them, and how they are followed."""
