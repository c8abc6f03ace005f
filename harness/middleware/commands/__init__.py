"""Middleware that runs commands: in sandboxes, and in a shell that stays open."""
