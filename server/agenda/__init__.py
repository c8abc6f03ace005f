"""Agenda: what servers do on their own: start runs on a schedule, and call webhooks after runs."""
