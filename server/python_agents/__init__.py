"""Python agents behind the server: loaded, put under the operator's rules, and reloaded."""
