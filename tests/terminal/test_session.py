"""Runs that are followed at a terminal: questions, and who decides them."""

from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.terminal.questions import Reject
from deep_agent_mcp.server.terminal.session import Interrupts, Outcome, Session, advice
from deep_agent_mcp.server.terminal.states import (
    CalledOff,
    Exit,
    LinkError,
    NotStarted,
    Question,
    RunState,
    Task,
)
from deep_agent_mcp.server.terminal.views import View
from deep_agent_mcp.server.terminal.working import requirement

pytestmark = pytest.mark.anyio

ASKS = RunState(
    "run_1",
    "thread_1",
    "needs_approval",
    questions=[Question("int_1", "May it?", "main", "execute", "{}", ("approve", "reject"))],
)
DONE = RunState("run_1", "thread_1", "done", "It went on.")


class Refusing:
    """A link to a server that refuses every decision; the run has one status after the other."""

    def __init__(self, *states: RunState) -> None:
        self.states: Sequence[RunState] = states
        self.refused = 0

    async def start(self, task: Task) -> RunState:
        return self.states[0]

    async def wait(self, run_id: str, on_line: Any) -> RunState:
        return self.states[min(self.refused, len(self.states) - 1)]

    async def answer(self, run_id: str, answers: Any) -> RunState:
        self.refused += 1
        assert self.refused < 9, "it never ends"
        raise LinkError("This token may not approve")

    async def events(self, run_id: str, after: int) -> Any:
        return [], False

    async def subagent_of(self, run_id: str) -> str:
        return "scout"

    async def whole_answer(self, state: RunState) -> RunState:
        return state


async def followed(link: Refusing) -> tuple[Outcome, str]:
    """Return the outcome of a run with `--approve never`, and what is printed beside the answer."""
    place: Any = SimpleNamespace(link=link, pause=lambda run_id: False)
    errors = StringIO()
    session = Session(place, View(StringIO(), errors), Reject(), advice(False, ""))
    return await session.run(Task("go"), Interrupts()), errors.getvalue()


async def test_a_rejection_that_the_server_refuses_leaves_the_question_open() -> None:
    link = Refusing(ASKS)
    outcome, said = await followed(link)
    assert (outcome.code, link.refused) == (Exit.NEEDS_APPROVAL, 1)
    assert "This token may not approve" in said
    assert "Decide: deep-agent-mcp run --resume run_1" in said


async def test_a_run_that_somebody_else_decided_meanwhile_is_followed_on() -> None:
    outcome, _ = await followed(Refusing(ASKS, DONE))
    assert outcome.code is Exit.DONE


@pytest.mark.parametrize("resumes", [False, True])
async def test_ctrl_c_before_the_run_begins_starts_nothing(resumes: bool) -> None:
    link: Any = Refusing(RunState("run_1", "thread_1", "paused"))
    sent: list[str] = []

    async def starts(task: Task) -> RunState:
        sent.append(task.goal)
        return DONE

    async def continues(run_id: str, answers: Any) -> RunState:
        sent.append(run_id)
        return DONE

    async def agent_of(run_id: str) -> None:
        return None

    link.start, link.answer, link.agent_of = starts, continues, agent_of
    link.look = lambda run_id: link.wait(run_id, 0)
    place: Any = SimpleNamespace(link=link, pause=lambda run_id: False)
    session, heard = Session(place, View(StringIO(), StringIO()), Reject()), Interrupts()
    heard.hear()
    with pytest.raises(CalledOff, match="Nothing was started"):
        await (session.resume("run_1", heard) if resumes else session.run(Task("go"), heard))
    assert sent == []


@pytest.mark.parametrize(
    ("agent", "needs"),
    [("main", "ANTHROPIC"), ("clerk", "ANTHROPIC"), ("scout", "OPENAI"), (None, "")],
)
async def test_a_resumed_run_needs_the_key_of_the_agent_that_works_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: str | None, needs: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    file = tmp_path / "agent.toml"
    scout = '[agents.scout]\ndescription = "x"\ninstructions = "x"\nmodel = "openai:gpt-5"\n'
    file.write_text(f'[agent]\nname = "clerk"\nmodel = "anthropic:claude-opus-4-5"\n{scout}')
    link: Any = Refusing(RunState("run_1", "thread_1", "failed"), DONE)

    async def agent_of(run_id: str) -> str | None:
        return agent

    async def resumed(run_id: str, answers: Any) -> RunState:
        link.refused = 1
        return DONE

    link.agent_of, link.answer, link.look = agent_of, resumed, lambda run_id: link.wait(run_id, 0)
    settings = load_settings({"agent_file": str(file), "state_dir": str(tmp_path)}, {})
    place: Any = SimpleNamespace(link=link, pause=lambda run_id: False)
    session = Session(
        place, View(StringIO(), StringIO()), Reject(), require_model=requirement(settings)
    )
    if needs:
        with pytest.raises(NotStarted, match=f"without {needs}_API_KEY"):
            await session.resume("run_1", Interrupts())
    else:
        assert (await session.resume("run_1", Interrupts())).code is Exit.DONE
