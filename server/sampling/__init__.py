"""Sampling: the MCP client's model as the model of runs."""
