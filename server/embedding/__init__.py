"""The server inside other people's programs: `serve` and `asgi_app`."""
