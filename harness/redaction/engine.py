"""Adapter for analysers that find names, places and more, such as Presidio's `AnalyzerEngine`.

No analyser is a dependency: any object with this `analyze` method works.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Protocol

from . import Span
from .detectors.custom import Boundary, inside, within

__all__ = ["Analyzer", "AnalyzerResult", "EngineDetector"]


class AnalyzerResult(Protocol):
    """One finding of an analyser."""

    @property
    def start(self) -> int:
        """Start of the match."""
        ...

    @property
    def end(self) -> int:
        """End of the match, exclusive."""
        ...

    @property
    def score(self) -> float:
        """Confidence of the analyser, from 0 to 1."""
        ...


class Analyzer(Protocol):
    """Analyser: the part of Presidio's `AnalyzerEngine` that `EngineDetector` uses."""

    def analyze(
        self, text: str, language: str, entities: list[str] | None = None
    ) -> Iterable[AnalyzerResult]:
        """Return the findings in a text."""
        ...


class EngineDetector:
    """Detector that uses an analyser.

    It runs on the event loop: a slow analyser delays other runs. It does not get short numbers in
    JSON data: without the words around it, an analyser takes any of them for a date.

    Args:
        engine: The analyser.
        entities: Entities to look for, such as `PERSON`; by default all.
        language: Language of the texts.
        score: Minimum confidence, from 0 to 1.
        boundary: Boundary that no match crosses; streams hold text back until they reach one.
    """

    reads_numbers: ClassVar[bool] = False

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
            MiddlewareError: The analyser returned a position outside the text.
        """
        if not text.strip():
            return
        for one in self._engine.analyze(text, self._language, entities=self._entities):
            if one.score >= self._score and inside(text, one.start, one.end):
                yield one.start, one.end

    def open_from(self, text: str) -> int:
        """See `Detector.open_from`."""
        return within(self._boundary, text)
