"""Adapter for analysers that know names, places and more, such as Presidio's `AnalyzerEngine`.

No such analyser is a dependency: whatever has this method fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from . import Span
from .detectors.custom import Boundary, inside, within

__all__ = ["Analyzer", "AnalyzerResult", "EngineDetector"]


class AnalyzerResult(Protocol):
    """One thing an analyser found."""

    @property
    def start(self) -> int:
        """Where it begins."""
        ...

    @property
    def end(self) -> int:
        """Where it ends, exclusive."""
        ...

    @property
    def score(self) -> float:
        """How sure the analyser is, from 0 to 1."""
        ...


class Analyzer(Protocol):
    """The part of Presidio's `AnalyzerEngine` that is used."""

    def analyze(
        self, text: str, language: str, entities: list[str] | None = None
    ) -> Iterable[AnalyzerResult]:
        """Return what it found in a text."""
        ...


class EngineDetector:
    """Finds what an analyser finds.

    It runs on the event loop: an analyser that needs long for a text holds up other runs.

    Args:
        engine: The analyser.
        entities: Which of its entities count, such as `PERSON`; by default all.
        language: Language of the texts.
        score: How sure it must be.
        boundary: What its matches do not go beyond; streams wait for it.
    """

    def __init__(
        self,
        engine: Analyzer,
        entities: Sequence[str] | None = None,
        *,
        language: str = "en",
        score: float = 0.5,
        boundary: Boundary = "end",
    ) -> None:
        self._engine = engine
        self._entities = None if entities is None else list(entities)
        self._language = language
        self._score = score
        self._boundary: Boundary = boundary

    def find(self, text: str) -> Iterator[Span]:
        """Yield the matches; see `Detector.find`.

        Raises:
            MiddlewareError: A place that the analyser returned is not in the text.
        """
        if not text.strip():
            return
        for one in self._engine.analyze(text, self._language, entities=self._entities):
            if one.score >= self._score and inside(text, one.start, one.end):
                yield one.start, one.end

    def open_from(self, text: str) -> int:
        """See `Detector.open_from`."""
        return within(self._boundary, text)
