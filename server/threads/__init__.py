"""Threads, for the server and the command line."""
