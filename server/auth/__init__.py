"""Who may do what over HTTP: tokens, OAuth, scopes, and whose each thread and run is."""
