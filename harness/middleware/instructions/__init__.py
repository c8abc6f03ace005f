"""Middleware that brings skills and memory."""
