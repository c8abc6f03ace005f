"""The journal: what is stored, and where."""
