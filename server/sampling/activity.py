"""Activity: whether a run does anything besides waiting for the client's model."""

from __future__ import annotations

from ...harness.loop.run.events import Event

__all__ = ["Activity"]


class Activity:
    """Which tool and model calls of a run are open."""

    def __init__(self) -> None:
        self._tools: set[tuple[str, ...]] = set()
        self._models: set[tuple[str, ...]] = set()

    def hear(self, event: Event) -> bool:
        """Take an event in; return whether it was about a call."""
        path = event.path
        match event.data.get("event"):
            case "tool_start":
                self._tools.add(path)
            case "tool_end":
                self._tools.discard(path)
                # A subagent that failed does not say that its model call is over.
                self._models = {one for one in self._models if one[: len(path)] != path}
            case "model_start":
                self._models.add(path)
            case "model_end":
                self._models.discard(path)
            case _:
                return False
        return True

    def is_more_than(self, asked: int) -> bool:
        """Whether something is at work beside so many calls of the client's model.

        A tool call whose subagent asks a model is not at work itself.
        """
        if asked < len(self._models):
            return True
        return any(
            all(model[: len(tool)] != tool for model in self._models) for tool in self._tools
        )
