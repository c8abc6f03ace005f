"""The agent file: one TOML file that describes everything a server runs."""
