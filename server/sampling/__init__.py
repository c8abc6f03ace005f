"""The model of the MCP client as the model of runs."""
