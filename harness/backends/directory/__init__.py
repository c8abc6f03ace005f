"""Files in a real directory, confined to it: the backend, its trees and its searches."""

from .backend import DirectoryBackend

__all__ = ["DirectoryBackend"]
