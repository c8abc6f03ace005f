"""Transports: standard streams, Streamable HTTP and SSE."""
