"""Our server over HTTP in the scenarios of the agents draft."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import anyio
import pytest

from tests.conformance.agents_draft import SCENARIOS, Subject
from tests.e2e.servers import Setup

pytestmark = pytest.mark.anyio

AGENT = """\
---
name: {name}
description: {about}
{more}
---
You are {name}.
"""


def write(place: Path, name: str, *more: str, about: str = "Does one thing.") -> None:
    file = place / f"{name}.md"
    text = AGENT.format(name=name, about=about, more="\n".join(("public: true", *more)))
    file.with_suffix(".new").write_text(text)
    file.with_suffix(".new").rename(file)


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    place = tmp_path_factory.mktemp("agents-draft")
    agents = place / "agents"
    agents.mkdir()
    for number in range(55):  # more than a page
        write(agents, f"helper-{number:02}")
    write(agents, "reader", "tools: ls, read_file, grep", "capabilities: [reading of code]")
    write(agents, "seer", "model_role: small", "vision: true")
    write(agents, "secret", "tools: ls")
    (agents / "secret.md").write_text((agents / "secret.md").read_text().replace("true", "false"))
    (agents / "broken.md").write_text("---\nname: broken\n---\nYou have no description.\n")
    setup = Setup(place, flags=["--experimental", "agents", "--agents", str(agents)])
    changes = count()

    async def change() -> None:
        about = f"Reads for the {next(changes)}th time."
        await anyio.to_thread.run_sync(lambda: write(agents, "reader", about=about))

    with setup.serving() as server:
        yield Subject(server.listening["url"], hidden="secret", broken="broken", change=change)


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_scenario_of_the_draft(name: str, subject: Subject) -> None:
    with anyio.fail_after(60):
        await SCENARIOS[name](subject)
