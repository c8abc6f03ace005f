"""Agents made in Python, behind the server: found, judged by the operator's rules, and reloaded."""
