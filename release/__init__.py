"""What a release has besides the wheel: a bundle for desktop apps, an entry for the registry."""
