"""Policies as text: read strictly, with the line of what is wrong."""
