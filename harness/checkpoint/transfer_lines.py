"""Lines of an exported thread: formats, and strict parsing."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    TypeAdapter,
    model_validator,
)

from .._internal.json_bounds import can_be_read
from .base import (
    Checkpoint,
    FileChange,
    Interrupt,
    InterruptKind,
    Next,
    Run,
    RunStatus,
    Source,
    StoredWrite,
    TaskWrites,
)

__all__ = [
    "LINE",
    "CheckpointLine",
    "EndLine",
    "FileChangeLine",
    "InterruptLine",
    "Line",
    "RunLine",
    "TaskLine",
    "ThreadLine",
    "WriteLine",
]

Seconds: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Whole: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def fields(self) -> dict[str, Any]:
        """Return the values of the line's record."""
        return {name: getattr(self, name) for name in type(self).model_fields if name != "type"}

    def text(self) -> str:
        """Return the line, without fields that have their default."""
        data = self.model_dump(exclude_defaults=True, by_alias=True)
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n"


class WriteLine(_Part):
    """A write; its value is the only item of `json_value` (`json` in the file), or in base64."""

    channel: str
    overwrite: bool = False
    json_value: list[JsonValue] = Field(default_factory=list[JsonValue], alias="json", max_length=1)
    base64: str | None = None

    @model_validator(mode="after")
    def _one_value(self) -> WriteLine:
        if (self.base64 is None) != bool(self.json_value):
            raise ValueError("a write has a value as json or as base64, one of them")
        self.stored()
        return self

    @classmethod
    def of(cls, write: StoredWrite) -> WriteLine:
        """Return the part of a line for a write."""
        plain, value = _as_json(write.value)
        if plain:
            return cls(channel=write.channel, overwrite=write.overwrite, json=[value])
        return cls(
            channel=write.channel, overwrite=write.overwrite, base64=b64encode(write.value).decode()
        )

    def stored(self) -> StoredWrite:
        """Return the write.

        Raises:
            ValueError: It is not base64.
        """
        if self.base64 is not None:
            value = b64decode(self.base64, validate=True)
        else:
            value = _dumped(self.json_value[0])
        return StoredWrite(self.channel, value, self.overwrite)

    @staticmethod
    def writes(lines: Sequence[WriteLine]) -> tuple[StoredWrite, ...]:
        """Return the writes of several parts."""
        return tuple(line.stored() for line in lines)


class ThreadLine(_Part):
    """The first line."""

    type: Literal["thread"]
    format: Literal["deep-agent-thread"]
    version: Literal[1]
    thread_id: str

    @classmethod
    def of(cls, thread_id: str) -> ThreadLine:
        """Return the first line of a thread's export."""
        return cls(type="thread", format="deep-agent-thread", version=1, thread_id=thread_id)


class EndLine(_Part):
    """The last line, with the number of lines between the first and this one."""

    type: Literal["end"]
    lines: int


class CheckpointLine(_Part):
    """A checkpoint with the writes since its parent."""

    type: Literal["checkpoint"]
    ns: str = ""
    id: str
    parent_id: str | None
    step: Whole
    source: Source
    author: str
    next: Next
    run_id: str | None = None
    created_at: Seconds
    summary: str = ""
    weight: Whole = 0
    writes: list[WriteLine]

    @classmethod
    def of(cls, made: Checkpoint, writes: Sequence[StoredWrite]) -> CheckpointLine:
        """Return a checkpoint's line."""
        data = asdict(made)
        del data["thread_id"], data["seq"]
        return cls(type="checkpoint", **data, writes=[WriteLine.of(one) for one in writes])

    def record(self, thread_id: str) -> Checkpoint:
        """Return the checkpoint for a thread."""
        data = self.fields()
        del data["writes"]
        return Checkpoint(thread_id=thread_id, **data)


class TaskLine(_Part):
    """A finished task of an unfinished step."""

    type: Literal["task"]
    ns: str = ""
    step_id: str
    task_id: str
    index: Whole
    writes: list[WriteLine]

    @classmethod
    def of(cls, ns: str, task: TaskWrites) -> TaskLine:
        """Return a task's line."""
        return cls(
            type="task",
            ns=ns,
            step_id=task.step_id,
            task_id=task.task_id,
            index=task.index,
            writes=[WriteLine.of(one) for one in task.writes],
        )


class FileChangeLine(_Part):
    """The version of a file before a change that was made after the checkpoints above."""

    type: Literal["file_change"]
    run_id: str
    path: str
    before: str | None = None
    after_digest: str | None = None

    @model_validator(mode="after")
    def _is_base64(self) -> FileChangeLine:
        b64decode(self.before or "", validate=True)
        return self

    @classmethod
    def of(cls, change: FileChange) -> FileChangeLine:
        """Return a change's line."""
        before = None if change.before is None else b64encode(change.before).decode()
        return cls(
            type="file_change",
            run_id=change.run_id,
            path=change.path,
            before=before,
            after_digest=change.after_digest,
        )

    def record(self, thread_id: str) -> FileChange:
        """Return the change for a thread."""
        before = None if self.before is None else b64decode(self.before)
        return FileChange(thread_id, self.run_id, self.path, before, self.after_digest)


class RunLine(_Part):
    """A run."""

    type: Literal["run"]
    id: str
    kind: Literal["drive", "delegate"]
    agent: str
    status: RunStatus
    goal: str = ""
    owner: str | None = None
    answer: str | None = None
    reason: str | None = None
    idempotency_key: str | None = None
    created_at: Seconds
    updated_at: Seconds
    attempt: Whole = 1
    used: str = ""
    base: str | None = None

    @classmethod
    def of(cls, run: Run) -> RunLine:
        """Return a run's line."""
        data = asdict(run)
        del data["thread_id"]
        return cls(type="run", **data)

    def record(self, thread_id: str) -> Run:
        """Return the run for a thread; if it was running, it is paused, if queued, cancelled.

        The whole goal of a queued run is in an event, and events are not exported.
        """
        data = self.fields()
        if self.status == "running":
            data |= {"status": "paused", "owner": None, "reason": "imported while it was running"}
        if self.status == "queued":
            reason = "imported while it was queued; start it again"
            data |= {"status": "cancelled", "owner": None, "reason": reason}
        return Run(thread_id=thread_id, **data)


class InterruptLine(_Part):
    """A question, answered or not."""

    type: Literal["interrupt"]
    id: str
    ns: str = ""
    step_id: str
    run_id: str
    kind: InterruptKind
    path: list[str]
    message: str
    payload: dict[str, JsonValue]
    answer_schema: dict[str, JsonValue]
    index: Whole = 0
    answer: JsonValue = None
    answered: bool = False

    @classmethod
    def of(cls, asked: Interrupt) -> InterruptLine:
        """Return an interrupt's line."""
        data: dict[str, Any] = {**asdict(asked), "path": list(asked.path)}
        del data["thread_id"]
        return cls(type="interrupt", **data)

    def record(self, thread_id: str) -> Interrupt:
        """Return the interrupt for a thread."""
        data: dict[str, Any] = {**self.fields(), "path": tuple(self.path)}
        return Interrupt(thread_id=thread_id, **data)


Line: TypeAlias = (
    ThreadLine | EndLine | CheckpointLine | TaskLine | FileChangeLine | RunLine | InterruptLine
)
LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Discriminator("type")])


def _dumped(value: JsonValue) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _as_json(value: bytes) -> tuple[bool, JsonValue]:
    """Return whether bytes are JSON that is restored byte for byte, and that JSON."""
    if not can_be_read(value):
        return False, None
    try:
        data: JsonValue = json.loads(value)
        return _dumped(data) == value, data
    except (ValueError, RecursionError):
        return False, None
