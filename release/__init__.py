"""What a release consists of besides the wheel: a bundle for desktop apps, an entry for the registry."""
