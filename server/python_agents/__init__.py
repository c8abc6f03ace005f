"""Python agents served by this server: loading, the operator's rules, and reload."""
