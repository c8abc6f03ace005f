"""State schemas: channels, reducers and visibility marks."""
