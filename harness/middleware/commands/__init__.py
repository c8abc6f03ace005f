"""Middleware that brings commands: in sandboxes, and in a shell that stays open."""
