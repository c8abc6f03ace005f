"""Middleware around tools and their calls."""
