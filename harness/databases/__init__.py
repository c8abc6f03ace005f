"""Databases: SQLite files and Postgres connections, for journals, stores and caches."""
