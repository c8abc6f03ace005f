"""The best tree this platform has: by descriptors where it can, else by real paths."""

from __future__ import annotations

import os

from .realpath_tree import RealpathTree
from .tree import Tree

__all__ = ["open_tree"]


def open_tree(root: str) -> Tree:
    """Return the tree of a root that exists; `root` must be a real path."""
    # Imported here: the module of descriptors cannot be loaded where they do not exist.
    if os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW") and os.scandir in os.supports_fd:
        from .descriptor_tree import DescriptorTree

        return DescriptorTree(root)
    return RealpathTree(root)
