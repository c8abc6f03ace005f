"""Settings: the operator's options, and the sources of their values."""
