"""Approvals: questions of runs, their answers, and remembered decisions."""
