"""The SQL of the stores in SQLite and Postgres."""
