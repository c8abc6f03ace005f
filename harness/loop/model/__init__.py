"""The model step: its request, its call, and its answer."""
