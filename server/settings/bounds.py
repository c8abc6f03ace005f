"""Bounds that operators set: of runs, and of commands."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["CommandSettings", "LimitSettings"]

_WHOLE = "a whole number, at least 1"
_SECONDS = "seconds, more than 0"
_BYTES = "bytes, at least 1024"


class LimitSettings(BaseModel):
    """Bounds for one run and all of its subagents; see `harness.limits.limits.Limits`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model_calls: int = Field(default=200, ge=1, description=_WHOLE)
    tool_calls: int = Field(default=1_000, ge=1, description=_WHOLE)
    depth: int = Field(default=3, ge=0, description="a whole number, at least 0")
    parallel_tool_calls: int = Field(default=16, ge=1, description=_WHOLE)
    fan_out: int = Field(default=32, ge=1, description=_WHOLE)
    tokens: int | None = Field(default=None, ge=1, description=_WHOLE)
    cost: float | None = Field(default=None, gt=0, description="US dollars, more than 0")
    seconds: float | None = Field(default=None, gt=0, description=_SECONDS)
    thread_tokens: int | None = Field(default=None, ge=1, description=_WHOLE)
    thread_cost: float | None = Field(default=None, gt=0, description="US dollars, more than 0")
    thread_model_calls: int | None = Field(default=None, ge=1, description=_WHOLE)


class CommandSettings(BaseModel):
    """Bounds for commands of agents and clients; see `docs/commands.md`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: float = Field(default=30, gt=0, description=_SECONDS)
    max_seconds: float = Field(default=600, gt=0, description=_SECONDS)
    cpu_seconds: int | None = Field(default=None, ge=1, description=_WHOLE)
    memory_bytes: int = Field(default=4 << 30, ge=32 << 20, description="bytes, at least 33554432")
    processes: int = Field(default=1_024, ge=8, description="a whole number, at least 8")
    output_lines: int = Field(default=100, ge=1, description=_WHOLE)
    output_bytes: int = Field(default=8_000, ge=1_024, description=_BYTES)
    kept_bytes: int = Field(default=1 << 20, ge=1_024, description=_BYTES)
    jobs: int = Field(default=4, ge=0, description="a whole number, at least 0 (no jobs)")
    jobs_in_all: int = Field(default=64, ge=1, description=_WHOLE)
    job_seconds: float = Field(default=3_600, gt=0, description=_SECONDS)
    job_output_bytes: int = Field(default=8 << 20, ge=1_024, description=_BYTES)
