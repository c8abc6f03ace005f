"""Approvals: questions of runs, who answered them and how, and decisions that last."""
