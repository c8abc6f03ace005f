"""Command lines: what they would run, and patterns for them."""
