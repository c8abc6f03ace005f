"""Hot reload: time from saving a SKILL.md to the notification of clients, with many skills."""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskStatus
from anyio.streams.memory import MemoryObjectSendStream

from benchmarks.client import ERAS, Era, WrongReply
from benchmarks.http_client import HttpClient, HttpServerProcess
from benchmarks.report import Bar, Report, spread
from benchmarks.startup import ours

__all__ = ["RELOAD_LIMIT", "measure_reload", "run"]

RELOAD_LIMIT = 150.0
"""Milliseconds, at the 95th percentile."""

SETTLE_SECONDS = 2.0
"""Seconds before the first save: the server starts watching shortly after its start."""

NOTICE_SECONDS = 10.0

_CHANGED = "notifications/prompts/list_changed"


def run(skills: int = 1_000, saves: int = 60) -> Report:
    """Measure only hot reload; it is part of `serve`, too."""
    with tempfile.TemporaryDirectory() as name:
        return Report("reload", *measure_reload(Path(name), skills, saves))


def measure_reload(
    folder: Path, skills: int, saves: int
) -> tuple[dict[str, dict[str, float | int | None]], list[Bar]]:
    """Save one of many skills repeatedly; return measurements and limits."""
    place = folder / "skills"
    for number in range(skills):
        _save(place, number, 0)
    command = ours(folder / "reload", "--skills", str(place), "--transport", "http", "--port", "0")
    with HttpServerProcess(command) as server:
        series, answers = anyio.run(_saves, server.url, place, skills, saves)
    measures: dict[str, dict[str, float | int | None]] = {}
    bars: list[Bar] = []
    for era, values in series.items():
        p95 = statistics.quantiles(values, n=20)[18]
        name = f"reload of one of {skills} skills, {era}"
        measures[f"{name}, ms"] = {**spread(values), "p95": round(p95, 1)}
        bars.append(Bar(f"{name}, p95", p95, RELOAD_LIMIT, "ms"))
    for asked, values in answers.items():
        measures[f"{asked} after the notice, ms"] = spread(values)
    return measures, bars


async def _saves(
    url: str, place: Path, skills: int, saves: int
) -> tuple[dict[Era, list[float]], dict[str, list[float]]]:
    """Return the milliseconds from save to notification, and those of the requests after it."""
    series: dict[Era, list[float]] = {era: [] for era in ERAS}
    answers: dict[str, list[float]] = {"skill()": [], "skills/list": []}
    heard, notices = anyio.create_memory_object_stream[tuple[Era, float]](1_000)
    async with anyio.create_task_group() as tasks:
        for era in ERAS:
            await tasks.start(_listen, url, era, heard.clone())
        await anyio.sleep(SETTLE_SECONDS)
        for turn in range(1, saves + 1):
            number = random.randrange(skills)
            saved_at = time.perf_counter()
            _save(place, number, turn)
            missing = set(ERAS)
            while missing:
                with anyio.fail_after(NOTICE_SECONDS):
                    era, at = await notices.receive()
                if era not in missing:
                    raise WrongReply(f"the {era} client was notified of one save twice")
                missing.discard(era)
                series[era].append(1_000 * (at - saved_at))
            async with HttpClient(url, "modern") as client:
                asked_at = time.perf_counter()
                await _expect_content(client, number, turn)
                told_at = time.perf_counter()
                await client.request("skills/list", {})
            answers["skill()"].append(1_000 * (told_at - asked_at))
            answers["skills/list"].append(1_000 * (time.perf_counter() - told_at))
            await anyio.sleep(random.uniform(0.1, 0.3))  # avoids synchrony with the watcher
        tasks.cancel_scope.cancel()
    return series, answers


async def _listen(
    url: str,
    era: Era,
    heard: MemoryObjectSendStream[tuple[Era, float]],
    *,
    task_status: TaskStatus[None],
) -> None:
    async with HttpClient(url, era) as client, aclosing(client.notices()) as notices:
        if era == "legacy":
            task_status.started()
        async for message in _after_acknowledgement(notices, era, task_status):
            if message.get("method") == _CHANGED:
                await heard.send((era, time.perf_counter()))


async def _after_acknowledgement(
    notices: AsyncGenerator[dict[str, Any]], era: Era, task_status: TaskStatus[None]
) -> AsyncGenerator[dict[str, Any]]:
    if era == "modern":
        first = await anext(notices)
        if "acknowledged" not in first.get("method", ""):
            raise WrongReply(f"the subscription was not acknowledged: {first}")
        task_status.started()
    async for message in notices:
        yield message


async def _expect_content(client: HttpClient, number: int, turn: int) -> None:
    """Check that the server has the new content after the notification."""
    shown = await client.call("skill", {"name": _name(number)})
    if f"turn {turn}." not in str(shown):
        raise WrongReply(f"skill {_name(number)} is not the one saved: {shown}")


def _name(number: int) -> str:
    return f"bench-{number:04}"


def _save(place: Path, number: int, turn: int) -> None:
    """Write a skill like an editor: write a new file, then rename it."""
    name = _name(number)
    folder = place / name
    folder.mkdir(parents=True, exist_ok=True)
    head = f"---\nname: {name}\ndescription: What to do in case {number}.\n---\n\n"
    beside = folder / ".SKILL.md.new"
    beside.write_text(f"{head}# Steps\n\nDo it, turn {turn}.\n", encoding="utf-8")
    os.replace(beside, folder / "SKILL.md")
