"""Backends: where files live, in thread state, real directories or a store."""
