"""Errors that callers can catch. Each message says what failed and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .messages.message import Usage

__all__ = [
    "AgentBuildError",
    "CheckpointError",
    "HarnessError",
    "InvalidAnswer",
    "InvalidUpdate",
    "JournalAway",
    "KnownRun",
    "LeaseLost",
    "MiddlewareError",
    "ModelError",
    "NewerDatabase",
    "RunEnded",
    "StaleThread",
    "Superseded",
    "ThreadBusy",
    "ToolError",
    "ToolFailed",
    "UnfinishedAnswer",
    "UnknownCheckpoint",
    "UnknownInterrupt",
    "UnknownRun",
    "UnknownThread",
]


class HarnessError(Exception):
    """Base class of every error that the engine raises on purpose."""


class AgentBuildError(HarnessError):
    """The agent cannot be built as described; raised before anything runs.

    Attributes:
        about: Kind and name of the part that cannot be used, where it is one: `middleware`,
            `subagent`, `tool` or `node`.
    """

    def __init__(self, message: str, *, about: tuple[str, str] | None = None) -> None:
        super().__init__(message)
        self.about = about


class MiddlewareError(HarnessError):
    """A middleware broke a rule or raised; the message names it."""


class InvalidUpdate(HarnessError):
    """A state update names an unknown key or does not fit its type."""


class ToolError(HarnessError):
    """Raised by a tool to answer its call with an error; the text is what the model sees."""


class ToolFailed(HarnessError):
    """A tool marked `strict` failed, which ends the run; finished calls are stored."""


class ModelError(HarnessError):
    """A model call failed for good.

    Attributes:
        kind: `auth`, `rate_limit`, `overloaded`, `overflow` (the request is larger than the
            model's window), `refusal` (the provider stopped the answer for what is said in it or
            before it), `unfinished` (`UnfinishedAnswer`), `invalid_request`, `connection`,
            `server`, `script` or `unknown`.
        retryable: Whether the same call may succeed later.
        retry_after: Seconds the provider asked to wait, if it said so.
        usage: Tokens that are billed all the same.
        given_up: Whether the call was repeated for as long as allowed: nobody should repeat it at
            once.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "unknown",
        retryable: bool = False,
        retry_after: float | None = None,
        usage: Usage | None = None,
        given_up: bool = False,
    ) -> None:
        super().__init__(message)
        self.usage = usage
        self.kind = kind
        self.retryable = retryable
        self.retry_after = retry_after
        self.given_up = given_up


class UnfinishedAnswer(ModelError):
    """A model's answer was cut off, or empty, however often it was asked to continue.

    Attributes:
        text: What it said; marked at its end if it was cut off there.
    """

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message, kind="unfinished")
        self.text = text


class CheckpointError(HarnessError):
    """The journal could not be read or written."""


class NewerDatabase(CheckpointError):
    """The database was written by a newer version."""


class StaleThread(CheckpointError):
    """Another run has changed the thread in the meantime; nothing was written."""


class Superseded(StaleThread):
    """Another process executes the run, or has ended it; nothing was written."""


class JournalAway(CheckpointError):
    """The journal's database cannot be reached, or cannot store anything at the moment.

    Nothing is wrong with what was to be stored. Whether it was is not known, unless the text says
    so. What waits for the journal may go on when it is back.
    """


class LeaseLost(CheckpointError):
    """Another process has taken the journal over."""


class UnknownThread(HarnessError):
    """There is no such thread."""


class UnknownCheckpoint(HarnessError):
    """There is no such checkpoint in this thread."""


class UnknownInterrupt(HarnessError):
    """An answer names an interrupt that is not open."""


class InvalidAnswer(HarnessError):
    """An answer does not fit the interrupt's schema; it was not stored."""


class UnknownRun(HarnessError):
    """There is no such run."""


class RunEnded(HarnessError):
    """The run has ended and cannot continue."""


class ThreadBusy(HarnessError):
    """Another run is working on this thread.

    Attributes:
        run_id: The run; None if it is not known.
    """

    def __init__(self, message: str, run_id: str | None = None) -> None:
        super().__init__(message)
        self.run_id = run_id


class KnownRun(HarnessError):
    """A run with this idempotency key exists already.

    Attributes:
        run_id: That run.
    """

    def __init__(self, message: str, run_id: str) -> None:
        super().__init__(message)
        self.run_id = run_id
