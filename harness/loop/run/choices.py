"""Run choices: options that the caller of a run chose, such as model and schema.

They are a value of the thread's state, written by the step that accepts the input. So they are
stored exactly when the run is, and any process that continues the run finds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import JsonValue

from ..._internal.records import changed, record
from ...errors import HarnessError
from ...limits.limits import Limits

__all__ = ["InvalidChoice", "RunChoices"]

_BOUNDS = ("tokens", "cost", "seconds")


class InvalidChoice(HarnessError):
    """A run was given choices that are not possible; nothing was stored or run."""


@record
class RunChoices:
    """Options that a caller chooses for one run; all others stay as built into the agent.

    For a driven call of `task`, they apply to the subagent that the call starts, even if it has its
    own model or response format. Subagents of a run use the chosen model and effort unless they
    have their own model; background tasks never use them.

    Attributes:
        output_schema: JSON schema of an object for the run's answer. The answer is in
            `RunResult.structured_response`, and as JSON text in `Run.answer`.
        model: Name for `init_chat_model`. A deep agent is built for it with that model's profile.
        effort: How much the model reasons, such as `low` or `high`; see `effort_settings`.
        tokens: Limit of the run tree, as in `Limits`; the lower of the two applies.
        cost: The same for cost, in US dollars.
        seconds: The same for time.
    """

    output_schema: Mapping[str, JsonValue] | None = None
    model: str = ""
    effort: str = ""
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None

    def narrow(self, limits: Limits) -> Limits:
        """Return limits, lowered to the chosen values."""
        bounds: dict[str, Any] = {}
        for name in _BOUNDS:
            own = cast("float | None", getattr(self, name))
            given = cast("float | None", getattr(limits, name))
            if own is not None and (given is None or own < given):
                bounds[name] = own
        return changed(limits, **bounds) if bounds else limits

    def to_json(self) -> dict[str, JsonValue]:
        """Return the choices as JSON data for storage."""
        given: dict[str, Any] = {
            "output_schema": None if self.output_schema is None else dict(self.output_schema),
            "model": self.model,
            "effort": self.effort,
            **{name: getattr(self, name) for name in _BOUNDS},
        }
        return {key: value for key, value in given.items() if value not in (None, "")}

    @staticmethod
    def from_json(data: object) -> RunChoices | None:
        """Return the choices that `to_json` stored; None if there are none."""
        if not isinstance(data, Mapping) or not data:
            return None
        stored = cast("Mapping[str, Any]", data)
        known = ("output_schema", "model", "effort", *_BOUNDS)
        return RunChoices(**{key: stored[key] for key in known if key in stored})
