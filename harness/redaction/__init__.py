"""Finding and replacing what must not be kept: personal data and secrets."""
