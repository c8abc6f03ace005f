"""Middleware that ships, one file each."""
