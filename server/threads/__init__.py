"""Threads as the server and the command line see them."""
