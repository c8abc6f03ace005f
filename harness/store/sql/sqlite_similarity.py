"""Vector similarity as an SQL function.

`vec_distance_cosine` comes from the extension sqlite-vec where it is installed and the Python at
hand can load extensions (many builds cannot); else it is a function of ours, slower and otherwise
the same. Vectors are compared one by one, so no index has to be kept and results are exact.
"""

from __future__ import annotations

import sqlite3
from array import array
from functools import lru_cache
from importlib import import_module

from ..vectors import Vector, cosine

__all__ = ["add_similarity", "load_extension"]


def add_similarity(conn: sqlite3.Connection) -> None:
    """Give a connection `vec_distance_cosine(left, right)`."""
    if not load_extension(conn):
        conn.create_function("vec_distance_cosine", 2, _distance, deterministic=True)


def load_extension(conn: sqlite3.Connection) -> bool:
    """Load sqlite-vec; return whether it could be."""
    if not hasattr(conn, "enable_load_extension"):
        return False
    try:
        extension = import_module("sqlite_vec")
    except ImportError:
        return False
    conn.enable_load_extension(True)
    try:
        extension.load(conn)
    except sqlite3.OperationalError:  # no library for this platform
        return False
    finally:
        conn.enable_load_extension(False)
    return True


def _distance(left: bytes, right: bytes) -> float:
    return 1.0 - cosine(_vector(left), _wanted(right))


def _vector(blob: bytes) -> Vector:
    vector = array("f")
    vector.frombytes(blob)
    return vector


@lru_cache(maxsize=16)
def _wanted(blob: bytes) -> Vector:
    return _vector(blob)
