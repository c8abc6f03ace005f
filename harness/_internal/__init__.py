"""Helpers that any room may use and that know none of them."""
