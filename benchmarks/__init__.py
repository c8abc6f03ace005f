"""Measurements behind the bars of the design: `python -m benchmarks NAME [--json]`."""
