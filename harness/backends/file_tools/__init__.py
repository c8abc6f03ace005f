"""The file tools of agents: what they check, what they answer, and past results as files."""
