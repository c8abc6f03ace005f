"""Agenda: what servers do by themselves, at a time or after a run: schedules and webhooks."""
