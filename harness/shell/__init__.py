"""Shells that stay open between commands: how they are started, spoken to, bounded and ended."""
