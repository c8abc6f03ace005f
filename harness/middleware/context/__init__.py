"""Middleware that keeps requests inside the model's window."""
