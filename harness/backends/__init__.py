"""Where files live: thread state and real directories."""
