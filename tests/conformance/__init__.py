"""The protocol's official conformance suite, run against our server: `python -m tests.conformance`.

The suite calls tools, reads resources and gets prompts that no real server has. `fixture_server`
adds them to the server that `server/app.py` builds. Everything else is the real server: the same
handlers, middleware, extensions and transports.
"""
