"""Files in a real directory, confined to it: the backend, its trees and its searches."""

from .backend import DirectoryBackend, native_to_virtual

__all__ = ["DirectoryBackend", "native_to_virtual"]
