"""Middleware that ends what goes on for too long."""
