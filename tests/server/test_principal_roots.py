"""`root = "/srv/{principal}"`: each principal has files, skills and agents of their own."""

from __future__ import annotations

import os
import threading
import unicodedata
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.errors import HarnessError
from deep_agent_mcp.server.agents.workplaces import Parts
from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.auth.caller import Caller, Scope, current_caller
from deep_agent_mcp.server.auth.shared_state import PrincipalFile
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.settings.setting_types import directory_name
from deep_agent_mcp.server.settings.settings import Settings, SettingsError
from deep_agent_mcp.server.settings.sources import load_settings
from tests.shell.support import need_bubblewrap

pytestmark = pytest.mark.anyio

SKILL = "---\nname: {0}\ndescription: About {0}.\n---\nBody of {0}.\n"
AGENT = "---\nname: {0}\ndescription: Reads for {0}.\n---\nYou read for {0}.\n"
NAMES = ("ann", "ben")
GO = [{"tool_calls": [{"name": "write_file", "args": {"path": "/done.txt", "content": "x"}}]}]


def settings(place: Path, **flags: object) -> Settings:
    (place / "srv").mkdir(exist_ok=True)
    root = place / "srv" / "{principal}"
    given = {
        "root": str(root),
        "skills": (str(root / "skills"),),
        "agents": str(root / "agents"),
        "memory": (str(root / "AGENTS.md"),),
        "state_dir": str(place / "state"),
        "transport": "http",
        "auth": ("token",),
        **flags,
    }
    return load_settings(given, {})


def scripted(place: Path, *turns: dict[str, Any]) -> str:
    path = place / "script.yaml"
    path.write_text(yaml.safe_dump({"agents": {"main": [*turns]}}), encoding="utf-8")
    return f"scripted:{path}"


@asynccontextmanager
async def served(place: Path, **flags: object) -> AsyncIterator[App]:
    with anyio.fail_after(60):
        async with create_app(settings(place, **flags)) as app:
            yield app


@contextmanager
def calling(place: Path, name: str, *scopes: Scope) -> Iterator[Caller]:
    caller = Caller(name, frozenset(scopes or ("drive", "delegate", "approve")))
    PrincipalFile(place / "state" / "principals.jsonl").add(caller)
    token = current_caller.set(caller)
    try:
        yield caller
    finally:
        current_caller.reset(token)


async def drive(app: App, tool: str, thread_id: str | None = None, **args: Any) -> Any:
    snapshot = await app.runs.drive(tool, dict(args), thread_id)
    assert snapshot.result is not None, snapshot
    return snapshot


def tree(place: Path) -> dict[str, str]:
    return {
        one.relative_to(place).as_posix(): one.read_text()
        for one in sorted(place.rglob("*"))
        if one.is_file()
    }


# --- names ----------------------------------------------------------------------------------


@given(st.text(max_size=200))
def test_a_name_is_one_plain_step_that_leads_nowhere_else(name: str) -> None:
    step = directory_name(name)
    assert step and len(step) <= 120 and step.isascii()
    assert step not in (".", "..") and not {*'/\\\0:<>|?*" '} & {*step}
    assert step[0] != "." and step[-1] != "."
    assert step.split(".")[0].lower() not in ("con", "nul", "aux", "prn", "com1", "lpt9")


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_two_principals_share_a_directory_on_any_file_system(one: str, other: str) -> None:
    def on_disk(name: str) -> str:
        return unicodedata.normalize("NFKC", directory_name(name)).casefold()

    assert (on_disk(one) == on_disk(other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("ann", "Ann"), ("é", "e\u0301"), ("a" * 300, "a" * 301), ("A" * 200, "a" * 200), ("", "%-"),
     ("a/b", "a%2fb"), ("con", "Con"), ("nul.x", "NUL.x"), ("ß", "ss"), ("ﬁ", "fi"), (".", "..")],
)  # fmt: skip
def test_names_that_look_alike_are_told_apart(one: str, other: str) -> None:
    assert directory_name(one).casefold() != directory_name(other).casefold()


# --- reloading ------------------------------------------------------------------------------


async def test_messages_are_served_while_the_files_of_all_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, may_end, was_served = threading.Event(), threading.Event(), list[bool]()

    def read_slowly(*_: object) -> None:
        reads.set()
        was_served.append(may_end.wait(10))

    async with served(tmp_path) as app, anyio.create_task_group() as group:
        with calling(tmp_path, "ann"):
            await app.agent.prepare()
            monkeypatch.setattr(Parts, "take", read_slowly)
            group.start_soon(anyio.to_thread.run_sync, app.agent.take, settings(tmp_path))
            await anyio.to_thread.run_sync(reads.wait)
            await app.agent.prepare()
            may_end.set()
    assert was_served == [True]


# --- settings -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"execute": "host"}, "cannot be combined with {principal} in root"),
        ({"background_subagents": True}, "background_subagents cannot be combined with"),
        ({"root": "/none/{principal}"}, "/none is not an existing directory"),
        ({"root": None}, "only if it is in root"),
    ],
)
def test_what_cannot_be_kept_apart_is_refused(
    tmp_path: Path, flags: dict[str, Any], said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        settings(tmp_path, **flags)


@pytest.mark.parametrize("flags", [{"transport": "stdio"}, {"auth": ()}])
async def test_without_tokens_nobody_knows_whose_a_root_is(
    tmp_path: Path, flags: dict[str, Any]
) -> None:
    with pytest.raises(SettingsError, match="one directory for each user"):
        async with create_app(settings(tmp_path, **flags)):
            pass


def test_the_command_line_looks_at_such_a_server_as_far_as_it_can(tmp_path: Path) -> None:
    (tmp_path / "srv").mkdir()
    flags = ["--root", str(tmp_path / "srv" / "{principal}")]
    listed = CliRunner().invoke(cli, ["middleware", *flags])
    assert listed.exit_code == 0, listed.output
    served = CliRunner().invoke(cli, ["serve", *flags, "--state-dir", str(tmp_path / "state")])
    assert served.exit_code == 2 and "one directory for each user" in served.output
    done = CliRunner().invoke(cli, ["doctor", "--", *flags, "--state-dir", str(tmp_path / "state")])
    assert "with a root for each user, clients connect over HTTP" in done.output
    assert not [*(tmp_path / "srv").iterdir()]


# --- at work --------------------------------------------------------------------------------


async def test_everybody_works_in_a_directory_of_their_own(tmp_path: Path) -> None:
    async with served(tmp_path) as app:
        threads: dict[str, str] = {}
        for name in NAMES:
            with calling(tmp_path, name):
                done = await drive(app, "write_file", path="/note.md", content=name)
                threads[name] = done.run.thread_id
        for name in NAMES:
            with calling(tmp_path, name):
                read = await drive(app, "read_file", threads[name], path="/note.md")
                assert name in read.result.text
                found = await drive(app, "glob", pattern="**/*")
                assert found.result.text.count("note.md") == 1
    assert tree(tmp_path / "srv") == {"ann/note.md": "ann", "ben/note.md": "ben"}
    if os.name != "nt":
        assert {(tmp_path / "srv" / one).stat().st_mode & 0o777 for one in NAMES} == {0o700}


FILES = {
    "file": "plan.md",
    "memory": "AGENTS.md",
    "skill": "skills/theirs/SKILL.md",
    "subagent": "agents/reader.md",
}
WAYS = {
    "up": "/../ben/{}",
    "up from within": "sub/../../ben/{}",
    "native": "{place}/srv/ben/{}",
    "backslashes": "\\..\\ben\\{}",
    "home": "~/../ben/{}",
    "a link to the directory": "/linked/{}",
    "a link to all": "/all/ben/{}",
    "an address": "file://{place}/srv/ben/{}",
}
ACTS: dict[str, dict[str, Any]] = {
    "write_file": {"content": "EVIL"},
    "edit_file": {"old_string": "ben's", "new_string": "EVIL"},
    "read_file": {},
    "grep": {"pattern": "ben.s"},
}


async def test_no_call_of_one_reaches_the_files_of_another(tmp_path: Path) -> None:
    ben, ann = tmp_path / "srv" / "ben", tmp_path / "srv" / "ann"
    for name in FILES.values():
        (ben / name).parent.mkdir(parents=True, exist_ok=True)
        (ben / name).write_text(f"ben's {name}")
    ann.mkdir()
    if os.name != "nt":
        (ann / "linked").symlink_to(ben)
        (ann / "all").symlink_to(ann.parent)
    before, tried = tree(ben), 0
    async with served(tmp_path) as app:
        with calling(tmp_path, "ann", "drive"):
            thread = (await drive(app, "ls", path="/")).run.thread_id
            for tool, args in ACTS.items():
                for file in FILES.values():
                    for way in WAYS.values():
                        path = way.replace("{}", file).replace("{place}", str(tmp_path))
                        said = await drive(app, tool, thread, path=path, **args)
                        assert "ben's" not in said.result.text, (tool, path)
                        tried += 1
    assert tried >= 100
    assert tree(ben) == before


@pytest.mark.parametrize("name", NAMES)
async def test_skills_subagents_and_memory_are_ones_own(tmp_path: Path, name: str) -> None:
    other = NAMES[1 - NAMES.index(name)]
    for one in NAMES:
        root = tmp_path / "srv" / one
        (root / "skills" / f"of-{one}").mkdir(parents=True)
        (root / "skills" / f"of-{one}" / "SKILL.md").write_text(SKILL.format(f"of-{one}"))
        (root / "agents").mkdir()
        (root / "agents" / f"reader-{one}.md").write_text(AGENT.format(f"reader-{one}"))
        (root / "AGENTS.md").write_text(f"Obey {one}.")
    async with served(tmp_path) as app:
        for one in (other, name):
            with calling(tmp_path, one):
                await drive(app, "ls", path="/")
        with calling(tmp_path, name):
            listed = (await drive(app, "skill")).result.text
            assert f"of-{name}" in listed and f"of-{other}" not in listed
            parts = app.agent.of().parts
            assert [one for one in parts.subagents.subagents if "reader" in one] == [
                f"reader-{name}"
            ]
            assert [one.text for one in parts.memory.snapshot.files] == [f"Obey {name}."]
            # Theirs alone, so theirs to edit.
            await drive(app, "write_file", path="/AGENTS.md.new", content="x")
            text = AGENT.format("mine")
            made = await drive(app, "write_file", path="/agents/mine.md", content=text)
            assert made.result.status == "success"


async def test_what_all_are_told_is_nobodys_to_write_also_from_a_root_of_their_own(
    tmp_path: Path,
) -> None:
    everybodys = tmp_path / "srv" / "skills"
    (everybodys / "one").mkdir(parents=True)
    (everybodys / "one" / "SKILL.md").write_text(SKILL.format("one"))
    (tmp_path / "srv" / "ann").mkdir()
    memory = tmp_path / "srv" / "ann" / "ALL.md"
    flags: dict[str, Any] = {"skills": (str(everybodys),), "memory": (str(memory),)}
    async with served(tmp_path, **flags) as app:
        with calling(tmp_path, "ann"):
            said = await drive(app, "write_file", path="/ALL.md", content="EVIL")
            assert "it instructs every user's agents" in said.result.text
        with calling(tmp_path, "skills"), pytest.raises(HarnessError, match="other users' agents"):
            await app.runs.drive("ls", {}, None)
        with calling(tmp_path, "ben"):
            await drive(app, "write_file", path="/ALL.md", content="mine")
    assert not memory.exists()


async def test_a_principal_named_like_the_servers_own_directory_gets_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "srv").mkdir()
    async with served(tmp_path, state_dir=str(tmp_path / "srv" / "state")) as app:
        caller = Caller("state", frozenset({"drive"}))
        token = current_caller.set(caller)
        try:
            PrincipalFile(tmp_path / "srv" / "state" / "principals.jsonl").add(caller)
            with pytest.raises(HarnessError, match="state directory"):
                await app.runs.drive("ls", {}, None)
        finally:
            current_caller.reset(token)


async def test_a_run_that_a_server_left_goes_on_in_its_owners_directory(tmp_path: Path) -> None:
    slow = scripted(tmp_path, {"text": "Later.", "delay": 600})
    async with served(tmp_path, model=slow) as app:
        with calling(tmp_path, "ann"):
            run_id = await app.runs.start("go")
    scripted(tmp_path, *GO, {"text": "Done."})
    async with served(tmp_path, model=slow) as app:
        with calling(tmp_path, "ann"):
            assert (await app.runs.wait(run_id, 20)).run.status == "done"
    assert tree(tmp_path / "srv") == {"ann/done.txt": "x"}


async def test_a_question_is_answered_after_a_restart_and_the_file_is_the_owners(
    tmp_path: Path,
) -> None:
    flags: dict[str, Any] = {"model": scripted(tmp_path, *GO, {"text": "Done."})}
    flags["approve"] = ("write_file",)
    async with served(tmp_path, **flags) as app:
        with calling(tmp_path, "ann"):
            run_id = await app.runs.start("go")
            (question,) = (await app.runs.wait(run_id, 20)).questions
    async with served(tmp_path, **flags) as app:
        with calling(tmp_path, "boss", "admin"):
            await app.runs.reply(run_id, {question.id: {"decision": "approve"}})
            assert (await app.runs.wait(run_id, 20)).run.status == "done"
    assert tree(tmp_path / "srv") == {"ann/done.txt": "x"}


async def test_an_admin_works_on_a_thread_where_its_owner_does(tmp_path: Path) -> None:
    async with served(tmp_path) as app:
        with calling(tmp_path, "ann"):
            thread = (await drive(app, "ls", path="/")).run.thread_id
        with calling(tmp_path, "boss", "admin"):
            await drive(app, "write_file", thread, path="/a.md", content="for ann")
            await drive(app, "write_file", path="/b.md", content="for boss")
    assert tree(tmp_path / "srv") == {"ann/a.md": "for ann", "boss/b.md": "for boss"}


async def test_going_back_from_the_command_line_knows_whose_files_they_are(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as app:
        with calling(tmp_path, "ann"):
            first = await drive(app, "write_file", path="/a.md", content="one")
            thread = first.run.thread_id
            (newest, *_) = await app.agent().checkpointer.history(thread, limit=1)
            await drive(app, "write_file", thread, path="/a.md", content="two")
    where = ["--state-dir", str(tmp_path / "state"), "--root", str(tmp_path / "srv/{principal}")]
    back = ["threads", *where, "rewind", thread, newest.id]
    done = await anyio.to_thread.run_sync(lambda: CliRunner().invoke(cli, back))
    assert done.exit_code == 0, done.output
    assert tree(tmp_path / "srv") == {"ann/a.md": "one"}


async def test_commands_of_one_see_nothing_of_another(tmp_path: Path) -> None:
    need_bubblewrap()
    (tmp_path / "srv" / "ben").mkdir(parents=True)
    (tmp_path / "srv" / "ben" / "secret").write_text("ben's")
    flags: dict[str, Any] = {"execute": "bubblewrap", "memory": ()}
    async with served(tmp_path, **flags) as app:
        with calling(tmp_path, "ann"):
            look = f"echo mine >/workspace/a; cat {tmp_path}/srv/ben/secret ../ben/secret; ls /"
            ran = await drive(app, "execute", command=look)
            assert "ben's" not in ran.result.text
            assert "workspace" in ran.result.text
        with calling(tmp_path, "ben"):
            ran = await drive(app, "execute", command="ls; echo x >secret")
            assert "secret" in ran.result.text and "a\n" not in ran.result.text
    assert tree(tmp_path / "srv") == {"ann/a": "mine\n", "ben/secret": "x\n"}


async def test_a_saved_skill_reaches_its_owner_and_nobody_else(tmp_path: Path) -> None:
    async with served(tmp_path) as app:
        for name in NAMES:
            with calling(tmp_path, name):
                await drive(app, "ls", path="/")
        folder = tmp_path / "srv" / "ann" / "skills" / "new"
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(SKILL.format("new"))
        with calling(tmp_path, "ann"):
            while "new" not in app.agent.of().parts.skills.skills:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        with calling(tmp_path, "ben"):
            assert "new" not in app.agent.of().parts.skills.skills
            assert "About new" not in (await drive(app, "skill")).result.text


async def test_what_anybody_sees_of_the_server_names_no_users_files(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    for name in NAMES:
        skill = tmp_path / "srv" / name / "skills" / f"secret-of-{name}"
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text("no frontmatter", encoding="utf-8")
        agents = tmp_path / "srv" / name / "agents"
        agents.mkdir()
        (agents / f"secret-of-{name}.md").write_text("no frontmatter", encoding="utf-8")
    async with served(tmp_path, profiles=(str(profiles),)) as app:
        for name in NAMES:
            with calling(tmp_path, name):
                await drive(app, "ls", path="/")
        seen = app.status()
    assert seen["broken_agents"] == ["a user's file"] * 2
    assert seen["broken_skills"] == ["a user's file"] * 2
    assert "secret" not in str(seen) and "SKILL" not in str(seen)
