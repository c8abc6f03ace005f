"""Settings: what an operator can choose, and where the values come from."""
