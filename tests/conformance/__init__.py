"""The protocol's official conformance suite, run against our server: `python -m tests.conformance`.

The suite calls tools, reads resources and gets prompts that no real server has. `fixtures` adds
them to the server that `server/app.py` puts together, what is tested is our composition: the same
handlers, middleware, extensions and transports.
"""
