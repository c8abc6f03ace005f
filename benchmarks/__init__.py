"""Benchmarks with limits for performance: `python -m benchmarks NAME [--json]`."""
