"""Subagents: descriptions, and Markdown files that hold them."""
