"""Background jobs: `execute` with `background`, and the tool `job`."""

import os
import re
import signal
import threading
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import anyio
import anyio.to_thread
import jsonschema
import pytest

from deep_agent_mcp.harness.agent import Agent, RunResult
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.mounts import with_workspace
from deep_agent_mcp.harness.checkpoint.base import Checkpointer
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import ToolError
from deep_agent_mcp.harness.messages.message import HumanMessage, ToolCall, ToolMessage
from deep_agent_mcp.harness.middleware.commands.execute import ExecuteMiddleware
from deep_agent_mcp.harness.shell.bubblewrap import BubblewrapExecutionPolicy
from deep_agent_mcp.harness.shell.jobs import JobLimits, JobPool
from deep_agent_mcp.harness.shell.session import open_session
from deep_agent_mcp.harness.subagents.background.engine import delete_with_tasks
from deep_agent_mcp.harness.subagents.definitions import CompiledSubAgent
from tests.loop.models import Turn, Turns, call, says
from tests.shell.support import need_bubblewrap, other_process

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.name == "nt", reason="shells need a POSIX system"),
]


class Jobs:
    """A deep agent that starts jobs in `/workspace`, and a way to tell them to go on."""

    def __init__(
        self, folder: Path, limits: JobLimits | None = None, journal: Checkpointer | None = None
    ) -> None:
        self.root = folder / "project"
        self.root.mkdir(exist_ok=True)
        self.folder = folder
        self.turns: list[Turn] = []
        self.model = Turns()
        backend = with_workspace(DirectoryBackend(self.root), confined=True)
        execute = ExecuteMiddleware(
            backend,
            execution_policy=BubblewrapExecutionPolicy(),
            jobs=limits or JobLimits(),
            job_directory=folder / "jobs",
        )
        self.schema = execute.tools[1].output_schema or {}
        self.agent: Agent = create_deep_agent(
            self.model,
            execution_policy=execute,
            checkpointer=journal or MemoryCheckpointer(),
        )

    async def run(self, *calls: ToolCall | str, thread: str = "t") -> RunResult:
        made = [start(one, f"c{i}") if isinstance(one, str) else one for i, one in enumerate(calls)]
        self.turns += [*(says("", one) for one in made), says("done")]
        self.model.turns = [*self.turns]
        result = await self.agent.ainvoke("Go", thread_id=thread)
        assert result.error is None, result.error
        return result

    async def calls(self, *calls: ToolCall | str, thread: str = "t") -> Sequence[ToolMessage]:
        result = await self.run(*calls, thread=thread)
        found = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
        found = found[-len(calls) :]
        for one in found:
            if one.name == "job" and one.artifact is not None:
                jsonschema.validate(one.artifact, self.schema)
        return found

    async def call(self, one: ToolCall | str, thread: str = "t") -> ToolMessage:
        return (await self.calls(one, thread=thread))[0]

    def pipe(self, name: str) -> str:
        os.mkfifo(self.root / name)
        return f"/workspace/{name}"

    def go_on(self, name: str) -> None:
        with (self.root / name).open("w") as file:
            file.write("go\n")


def start(command: str, name: str = "c") -> ToolCall:
    return call(name, "execute", command=command, background=True)


def job(action: str, job_id: str | None = None, **more: Any) -> ToolCall:
    named = {} if job_id is None else {"job_id": job_id}
    return call("j", "job", action=action, **named, **more)


def id_of(message: ToolMessage) -> str:
    assert isinstance(message.artifact, dict)
    job_id = message.artifact["job_id"]
    assert isinstance(job_id, str), message.text
    return job_id


def facts(message: ToolMessage) -> dict[str, Any]:
    assert isinstance(message.artifact, dict), message.text
    return message.artifact


def state_of(message: ToolMessage) -> dict[str, Any]:
    (one,) = facts(message)["jobs"]
    return one


def notices(result: RunResult) -> list[str]:
    messages = result.state["messages"]
    return [m.text for m in messages if isinstance(m, HumanMessage) and m.source == "jobs"]


@pytest.fixture
async def jobs(tmp_path: Path) -> AsyncGenerator[Jobs]:
    need_bubblewrap()
    made = Jobs(tmp_path)
    yield made
    await made.agent.aclose()


async def test_a_job_goes_on_when_its_run_has_ended(jobs: Jobs) -> None:
    pipe = jobs.pipe("go")
    begun = await jobs.call(f"echo begun; read line <{pipe}; echo $line >done; echo over; exit 3")
    job_id = id_of(begun)
    assert f"Job {job_id} was started" in begun.text
    listed = await jobs.call(job("list"))
    assert state_of(listed)["running"]
    jobs.go_on("go")
    ended = await jobs.call(job("wait", job_id))
    assert facts(ended)["output"] == "begun\nover\n"
    assert (state_of(ended)["running"], state_of(ended)["exit_code"]) == (False, 3)
    assert ended.text.startswith("begun\nover\n[" + job_id + ": exit code 3 after ")
    assert (jobs.root / "done").read_text() == "go\n"


async def test_the_model_is_told_once_that_a_job_has_ended(jobs: Jobs) -> None:
    pipe = jobs.pipe("go")
    job_id = id_of(await jobs.call(f"read line <{pipe}; echo x"))
    assert notices(await jobs.run()) == []
    jobs.go_on("go")
    pool = jobs.agent.definition.middleware[2]._jobs.pool  # type: ignore[attr-defined]
    assert await pool.get(job_id).wait(60)
    told = notices(await jobs.run())
    assert len(told) == 1
    assert f"{job_id}: exit code 0 after " in told[0]
    assert f'job(action="output", job_id="{job_id}")' in told[0]
    assert notices(await jobs.run()) == told


async def test_a_model_that_saw_the_end_is_not_told_of_it(jobs: Jobs) -> None:
    job_id = id_of(await jobs.call("echo quick"))
    assert facts(await jobs.call(job("wait", job_id)))["output"] == "quick\n"
    assert notices(await jobs.run()) == []


async def test_a_copy_of_a_thread_follows_a_job_and_cannot_stop_it(jobs: Jobs) -> None:
    pipe = jobs.pipe("go")
    job_id = id_of(await jobs.call(f"echo begun; read line <{pipe}; echo over"))
    await jobs.agent.checkpointer.copy_thread("t", "copy")
    result = await jobs.run(job("list"), job("stop", job_id), thread="copy")
    listed, stopped = [one for one in result.state["messages"] if isinstance(one, ToolMessage)][-2:]
    assert notices(result) == []
    assert state_of(listed)["running"]
    assert "belongs to the thread that this one was copied from" in stopped.text
    jobs.go_on("go")
    ended = await jobs.call(job("wait", job_id), thread="copy")
    assert facts(ended)["output"] == "begun\nover\n"
    assert len(notices(await jobs.run())) == 1  # the thread itself is told of the end, too


async def test_waiting_is_bounded_and_says_that_the_job_runs(jobs: Jobs) -> None:
    job_id = id_of(await jobs.call("echo early; sleep 1000"))
    message = await jobs.call(job("wait", job_id, seconds=0.3))
    assert state_of(message)["running"]
    assert f"{job_id}: running for" in message.text
    assert message.status == "success"


async def test_a_stopped_job_takes_with_it_what_it_started(jobs: Jobs) -> None:
    pipe = jobs.pipe("held")
    fd = os.open(jobs.root / "held", os.O_RDONLY | os.O_NONBLOCK)
    job_id = id_of(await jobs.call(f"setsid sh -c 'echo up; sleep 1000' >{pipe} & wait; sleep 100"))
    with anyio.fail_after(60):
        await anyio.wait_readable(fd)
    assert os.read(fd, 64) == b"up\n"
    message = await jobs.call(job("stop", job_id))
    assert f"{job_id}: stopped after" in message.text
    assert os.read(fd, 64) == b""  # nobody holds it any more
    os.close(fd)
    again = await jobs.call(job("stop", job_id))
    assert f"{job_id}: stopped after" in again.text


async def test_output_is_read_page_by_page(jobs: Jobs) -> None:
    job_id = id_of(await jobs.call("seq 3000"))
    await jobs.call(job("wait", job_id))
    last = await jobs.call(job("output", job_id))
    assert facts(last)["output"].endswith("2999\n3000\n")
    assert facts(last)["offset"] > 0
    assert len(last.text) < 9_000
    text, offset = "", 0
    while True:
        page = facts(await jobs.call(job("output", job_id, offset=offset, limit=4_000)))
        text, offset = text + page["output"], page["next_offset"]
        if offset == page["size"]:
            break
    assert text == "".join(f"{number}\n" for number in range(1, 3001))
    past = await jobs.call(job("output", job_id, offset=10**9))
    assert facts(past)["output"] == ""


async def test_the_end_of_one_long_line_is_shown(jobs: Jobs) -> None:
    write = "head -c 20000 /dev/zero | tr '\\0' x; echo the end"
    begun = await jobs.call(start(write))
    ended = await jobs.call(job("wait", id_of(begun), seconds=20))
    assert facts(ended)["output"].endswith("xthe end\n")


async def test_pages_end_between_characters(jobs: Jobs) -> None:
    begun = await jobs.call(start("printf '漢字漢字'"))
    await jobs.call(job("wait", id_of(begun), seconds=20))
    texts, offset = "", 0
    for _ in range(4):
        page = facts(await jobs.call(job("output", id_of(begun), offset=offset, limit=4)))
        texts, offset = texts + page["output"], page["next_offset"]
    assert texts == "漢字漢字"


async def test_of_too_much_output_both_ends_are_kept(tmp_path: Path) -> None:
    need_bubblewrap()
    jobs = Jobs(tmp_path, JobLimits(output_bytes=10_000))
    job_id = id_of(await jobs.call("echo first; yes | head -c 1000000; echo last"))
    await jobs.call(job("wait", job_id))
    assert (tmp_path / "jobs" / f"{job_id}.out").stat().st_size < 30_000
    assert "bytes left out" in (tmp_path / "jobs" / f"{job_id}.out").read_text()
    assert facts(await jobs.call(job("output", job_id, offset=0)))["output"].startswith("first\n")
    assert facts(await jobs.call(job("output", job_id)))["output"].endswith("last\n")
    await jobs.agent.aclose()


async def test_what_jobs_write_is_for_this_user_alone(jobs: Jobs) -> None:
    job_id = id_of(await jobs.call("echo secret"))
    directory = jobs.folder / "jobs"
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / f"{job_id}.out").stat().st_mode & 0o777 == 0o600


async def test_there_is_a_most_of_jobs(tmp_path: Path) -> None:
    need_bubblewrap()
    jobs = Jobs(tmp_path, JobLimits(running=2))
    first, second, third = await jobs.calls("sleep 1000", "sleep 1000", "touch started")
    assert "2 jobs of this thread run, which is the most" in third.text
    assert third.status == "error"
    for one in (first, second):
        await jobs.call(job("stop", id_of(one)))
    assert "was started" in (await jobs.call("true")).text
    assert not (jobs.root / "started").exists()
    await jobs.agent.aclose()


async def test_a_job_ends_when_its_time_is_over(tmp_path: Path) -> None:
    need_bubblewrap()
    jobs = Jobs(tmp_path, JobLimits(seconds=0.5))
    begun = await jobs.call("sleep 1000")
    ended = await jobs.call(job("wait", id_of(begun)))
    assert "the longest a job may run" in ended.text
    await jobs.agent.aclose()


async def test_jobs_are_those_of_their_thread(jobs: Jobs) -> None:
    job_id = id_of(await jobs.call("sleep 1000"))
    jobs.turns.clear()
    other = await jobs.call(job("output", job_id), thread="other")
    assert other.status == "error"
    assert f"there is no job '{job_id}'. Jobs of this thread: none" in other.text
    jobs.turns.clear()
    assert "There are no jobs." in (await jobs.call(job("list"), thread="third")).text


@pytest.mark.parametrize("by", ["this process", "another process"])
@pytest.mark.parametrize("first", ["a run", "a call of a client"])
async def test_the_jobs_of_a_deleted_thread_end_and_a_new_one_of_its_name_has_none(
    jobs: Jobs, by: str, first: str
) -> None:
    pipe = jobs.pipe("held")
    fd = os.open(jobs.root / "held", os.O_RDONLY | os.O_NONBLOCK)
    quick = id_of(await jobs.call("true"))
    job_id = id_of(await jobs.call(f"exec 5>{pipe}; echo up >&5; sleep 1000"))
    with anyio.fail_after(60):
        await anyio.wait_readable(fd)
    assert os.read(fd, 64) == b"up\n"
    outputs = [jobs.folder / "jobs" / f"{one}.out" for one in (quick, job_id)]
    assert all(one.exists() for one in outputs)
    journal = jobs.agent.checkpointer
    if by == "this process":
        await delete_with_tasks(journal, "t", jobs.agent)
        assert os.read(fd, 64) == b""
        assert not any(one.exists() for one in outputs)
    else:
        await journal.delete_thread("t")
    jobs.turns.clear()
    if first == "a run":
        result = await jobs.run(job("list"))
    else:
        result = await jobs.agent.adrive([job("list")], thread_id="t")
    assert notices(result) == []
    (listed,) = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert "There are no jobs." in listed.text
    assert os.read(fd, 64) == b""
    assert not any(one.exists() for one in outputs)
    os.close(fd)


async def test_the_jobs_of_a_compiled_subagent_end_with_their_thread(
    jobs: Jobs, tmp_path: Path
) -> None:
    pipe = jobs.pipe("held")
    fd = os.open(jobs.root / "held", os.O_RDONLY | os.O_NONBLOCK)
    jobs.model.turns = [says("", start(f"exec 5>{pipe}; echo up >&5; sleep 1000")), says("begun")]
    journal = MemoryCheckpointer()
    main = create_deep_agent(
        Turns(says("", call("t1", "task", description="go", subagent_type="worker")), says("done")),
        subagents=[CompiledSubAgent("worker", "Works.", jobs.agent)],
        checkpointer=journal,
    )
    result = await main.ainvoke("Go", thread_id="t")
    assert result.error is None
    with anyio.fail_after(60):
        await anyio.wait_readable(fd)
    assert os.read(fd, 64) == b"up\n"
    await delete_with_tasks(journal, "t", main)
    assert os.read(fd, 64) == b""
    assert not [*(jobs.folder / "jobs").glob("*.out")]
    os.close(fd)


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"action": "output"},
        {"action": "jump", "job_id": "job_000000000000"},
        {"action": "output", "job_id": "../../etc/passwd"},
        {"action": "wait", "job_id": "job_000000000000", "seconds": 1e9},
    ],
)
async def test_wrong_arguments_are_errors(jobs: Jobs, args: dict[str, Any]) -> None:
    message = await jobs.call(call("j", "job", **args))
    assert message.status == "error"
    assert re.search(r"job (did nothing|was not run)", message.text)


async def test_closing_the_agent_ends_its_jobs(jobs: Jobs) -> None:
    pipe = jobs.pipe("held")
    fd = os.open(jobs.root / "held", os.O_RDONLY | os.O_NONBLOCK)
    await jobs.call(f"exec 5>{pipe}; echo up >&5; sleep 1000")
    with anyio.fail_after(60):
        await anyio.wait_readable(fd)
    assert os.read(fd, 64) == b"up\n"
    await jobs.agent.aclose()
    assert os.read(fd, 64) == b""
    os.close(fd)


@pytest.mark.parametrize("what", ["the agent is closed", "its thread is deleted"])
async def test_a_job_does_not_start_once_it_would_belong_to_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    need_bubblewrap()
    preparing, go_on = threading.Event(), threading.Event()
    prepare = JobPool._prepare

    def slowly(self: JobPool) -> None:
        preparing.set()
        assert go_on.wait(60)
        prepare(self)

    monkeypatch.setattr(JobPool, "_prepare", slowly)
    pool = JobPool(tmp_path / "jobs", JobLimits())
    policy = BubblewrapExecutionPolicy()
    session = await open_session(policy.launch(None, tmp_path, {}), policy)
    try:
        async with anyio.create_task_group() as group:

            async def begin() -> None:
                with pytest.raises(ToolError, match="No job was started"):
                    await pool.start(session, "t", "", "sleep 1000")

            group.start_soon(begin)
            assert await anyio.to_thread.run_sync(preparing.wait, 20)
            await (pool.aclose() if what == "the agent is closed" else pool.forget("t"))
            go_on.set()
        assert pool.of("t") == []
        again = await pool.start(session, "t", "", "true")  # it can be used again
        assert await again.wait(60)
    finally:
        await session.close()


async def test_a_killed_process_takes_its_jobs_along_and_the_next_one_says_so(
    tmp_path: Path,
) -> None:
    need_bubblewrap()
    (tmp_path / "project").mkdir()
    os.mkfifo(tmp_path / "project/held")
    fd = os.open(tmp_path / "project/held", os.O_RDONLY | os.O_NONBLOCK)
    theirs, ours = os.pipe()
    script = f"""
        import anyio
        import os
        from pathlib import Path
        from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
        from tests.middleware.test_jobs import Jobs

        async def main():
            async with SqliteCheckpointer({str(tmp_path / "journal")!r}) as journal:
                jobs = Jobs(Path({str(tmp_path)!r}), journal=journal)
                await jobs.call("echo written; exec 5>held; echo up >&5; sleep 1000")
                kept = jobs.folder / "jobs"
                while not any(one.read_bytes() for one in kept.rglob("*") if one.is_file()):
                    await anyio.sleep(0.01)
                os.write({ours}, b"stored")
                await anyio.sleep_forever()

        anyio.run(main)
    """
    arguments = ("-c", dedent(script))
    with other_process(*arguments, pass_fds=(ours,)) as child, anyio.fail_after(60):
        await anyio.wait_readable(fd)
        assert os.read(fd, 64) == b"up\n"
        await anyio.wait_readable(theirs)
        child.send_signal(signal.SIGKILL)
        await anyio.wait_readable(fd)
        while True:
            try:
                assert os.read(fd, 64) == b""
                break
            except BlockingIOError:
                await anyio.wait_readable(fd)
    for one in (fd, theirs, ours):
        os.close(one)
    async with SqliteCheckpointer(tmp_path / "journal") as journal:
        jobs = Jobs(tmp_path, journal=journal)
        jobs.turns = [says("", start("")), says("done")]  # those of the first process
        result = await jobs.run()
        (told,) = notices(result)
        assert "lost: it ended with its process" in told
        (job_id,) = re.findall(r"job_[0-9a-f]{12}", told.partition(":")[2])[:1]
        message = await jobs.call(job("output", job_id))
        assert facts(message)["output"] == "written\n"
        assert "lost: it ended with its process" in message.text
        assert not state_of(message)["running"]


def test_it_works_without_an_event_loop(tmp_path: Path) -> None:
    need_bubblewrap()
    jobs = Jobs(tmp_path)
    pipe = jobs.pipe("go")
    jobs.model.turns = [says("", start(f"read line <{pipe}; echo got $line")), says("done")]
    begun = jobs.agent.invoke("Go", thread_id="t")
    job_id = id_of([one for one in begun.state["messages"] if isinstance(one, ToolMessage)][-1])
    jobs.go_on("go")
    jobs.model.turns = [*jobs.model.turns, says("", job("wait", job_id)), says("done")]
    result = jobs.agent.invoke("Go on", thread_id="t")
    message = [one for one in result.state["messages"] if isinstance(one, ToolMessage)][-1]
    assert facts(message)["output"] == "got go\n"
    anyio.run(jobs.agent.aclose)


def test_a_program_does_not_wait_for_its_jobs_to_end(tmp_path: Path) -> None:
    need_bubblewrap()
    script = f"""
        import anyio
        from pathlib import Path
        from tests.middleware.test_jobs import Jobs
        anyio.run(Jobs(Path({str(tmp_path)!r})).call, "sleep 1000")
    """
    with other_process("-c", dedent(script)) as child:
        assert child.wait(60) == 0
