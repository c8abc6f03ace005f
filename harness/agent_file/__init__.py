"""The agent file: a whole agent described in TOML, for users of the server and of the library."""
