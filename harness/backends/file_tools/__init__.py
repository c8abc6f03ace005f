"""The file tools of agents: their checks, their answers, and past results as files."""
