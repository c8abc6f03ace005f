"""Comparisons of our agents with those of other projects; see `compare`."""
