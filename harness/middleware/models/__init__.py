"""Middleware around model calls."""
