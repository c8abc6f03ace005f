"""File reports: logs each problem of the operator's files once."""

from __future__ import annotations

import logging
from collections.abc import Mapping

__all__ = ["FileReports"]

logger = logging.getLogger(__name__)


class FileReports:
    """What was said of skill, subagent and policy files."""

    def __init__(self) -> None:
        self._said: dict[str, Mapping[str, str]] = {}

    def report(self, kind: str, errors: Mapping[str, str]) -> None:
        """Log the problems that are new, and those that are solved.

        Args:
            kind: What the files are of, such as `skills`.
            errors: All problems there are with them now, by path.
        """
        said = self._said.get(kind, {})
        for path, problem in errors.items():
            if said.get(path) != problem:
                logger.error("%s", problem)
        for path in said:
            if path not in errors:
                logger.warning("%s: the problem with it is solved", path)
        self._said[kind] = dict(errors)
