"""Tools: how they are declared, described, called, and what they return."""
