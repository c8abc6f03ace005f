"""Builds what is published besides the wheel: the site, the bundle, the entry in the registry."""
