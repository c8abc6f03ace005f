"""The run: record, commits, events, questions and redaction of all agents of its tree."""
