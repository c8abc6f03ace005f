"""Runs as tasks: durable handles for long calls, in the shapes of both protocol eras.

Thin modules of ours that the SDK's own can replace one day. A task is a run: it has the run's id,
survives what the run survives, and can be reached with `wait`, `reply` and `cancel` too.
"""
