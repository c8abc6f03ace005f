"""Authentication and authorization over HTTP: tokens, OAuth, scopes, owners of threads."""
