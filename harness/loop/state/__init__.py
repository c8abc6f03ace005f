"""The state of a thread: read from the journal, changed by writes, committed step by step."""
