"""The agent file: one TOML file that describes an agent, checked before anything starts."""
