"""Tools: their declaration, description, calls and results."""
