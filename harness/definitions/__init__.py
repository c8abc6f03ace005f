"""Definition files of skills, agents, memory and profiles: read safely, and reloaded."""
