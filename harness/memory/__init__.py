"""Memory files: what the agent is always told."""

from .files import MAX_MEMORY_BYTES, MemoryFile, MemoryFiles, MemorySnapshot

__all__ = ["MAX_MEMORY_BYTES", "MemoryFile", "MemoryFiles", "MemorySnapshot"]
