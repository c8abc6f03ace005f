"""Files that define skills, agents, memory and profiles: read safely, followed, reloaded."""
