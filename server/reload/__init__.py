"""Hot reload: which files are watched, and what a change updates."""
