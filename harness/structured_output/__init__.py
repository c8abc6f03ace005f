"""Structured output: strategies, schemas, and how answers are read and repaired."""
