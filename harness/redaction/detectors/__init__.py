"""The detectors that ship, one kind of value each."""
