"""What all agents of a run's tree share: its record, commits, events, questions and redaction."""
