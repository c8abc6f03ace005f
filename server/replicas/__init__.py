"""Replicas: servers on many machines that share one journal in Postgres."""
