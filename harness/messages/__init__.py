"""Messages, their content blocks, and the transcript of a thread."""
