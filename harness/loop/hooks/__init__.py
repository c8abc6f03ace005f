"""Hooks of middleware: their requests and results, and how they are called."""
