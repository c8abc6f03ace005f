"""Subagents: definitions in code and in Markdown files, remote ones, background tasks."""
