"""Hot reload against what editors, storms, odd files and a system at its limits do."""

import logging
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from deep_agent_mcp.harness.definitions.registry import DefinitionRegistry
from deep_agent_mcp.harness.memory import MemoryFiles
from deep_agent_mcp.harness.policy import PolicyFiles
from deep_agent_mcp.harness.skills import SkillRegistry
from deep_agent_mcp.server.reload import hot_reload
from deep_agent_mcp.server.reload.hot_reload import Kind
from tests.skills.folders import save_by_rename, skill_text, write_skill
from tests.skills.test_hot_reload import Listener, watching

pytestmark = pytest.mark.anyio

RULE = '[[rule]]\naction = "deny"\ntool = "ls"\n'


async def test_the_ways_editors_save_are_all_seen(tmp_path: Path) -> None:
    source = tmp_path / "skills"
    path = write_skill(source, "a", body="0")
    registry = SkillRegistry([source])
    async with watching({"skills": registry}) as listener:
        backup = path.with_name("SKILL.md~")
        path.rename(backup)
        path.write_text(skill_text("a", body="backup"))
        backup.unlink()
        await listener.until(lambda: registry.get("a").body == "backup")

        aside = tmp_path / "elsewhere.md"
        aside.write_text(skill_text("a", body="moved"))
        shutil.move(aside, path)
        await listener.until(lambda: registry.get("a").body == "moved")

        whole = skill_text("a", body="whole " * 2_000)
        with path.open("w") as file:
            file.write(whole[:20])
            file.flush()
            await anyio.sleep(0.05)
            file.write(whole[20:])
        await listener.until(lambda: len(registry.get("a").body) > 10_000 and not registry.errors)


async def test_a_storm_is_told_in_few_notices(tmp_path: Path) -> None:
    write_skill(tmp_path, "a")
    registry = SkillRegistry([tmp_path])
    async with watching({"skills": registry}) as listener:
        for number in range(500):
            (tmp_path / "a" / f"{number}.txt").touch()
        await listener.until(lambda: len(registry.get("a").files) == 501)
    assert len(listener.notices) <= 10


async def test_files_that_are_no_files_keep_the_last_good_version(tmp_path: Path) -> None:
    memory, rules = tmp_path / "AGENTS.md", tmp_path / "rules.toml"
    memory.write_text("good")
    rules.write_text(RULE)
    files, policy = MemoryFiles([memory]), PolicyFiles([rules])
    registries: dict[Kind, hot_reload.Reloadable] = {"memory": files, "policy": policy}
    async with watching(registries) as listener:
        for path in (memory, rules):
            path.unlink()
            os.mkfifo(path)  # whoever opens it to read waits for a writer, unless careful
        await listener.until(lambda: bool(files.snapshot.errors and policy.errors))
        assert "not a regular file" in policy.errors[str(rules)]
        for path, text in ((memory, "better"), (rules, RULE.replace("ls", "grep"))):
            path.unlink()
            path.write_text(text)
        await listener.until(lambda: not files.snapshot.errors and not policy.errors)
    assert files.snapshot.files[0].text == "better"
    assert policy.judge("grep", {}).action == "deny"


async def test_a_name_that_is_not_utf_8_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hot_reload, "_RETRY_SECONDS", 0.05)
    path = write_skill(tmp_path, "a")
    registry = SkillRegistry([tmp_path])
    async with watching({"skills": registry}) as listener:
        odd = Path(os.fsdecode(os.fsencode(path.parent) + b"/\xff.md"))
        for _ in range(4):
            odd.touch()
            await listener.until(lambda: bool(registry.errors))
            odd.unlink()
            await listener.until(lambda: not registry.errors)
        assert list(registry.skills) == ["a"]
    assert "failed" not in caplog.text


async def test_a_listener_that_hangs_holds_up_no_reload(tmp_path: Path) -> None:
    class Hanging(Listener):
        async def __call__(self, kind: Kind, changed: frozenset[str]) -> None:
            await super().__call__(kind, changed)
            await self.go_on.wait()

    listener = Hanging()
    listener.go_on = anyio.Event()
    registry = SkillRegistry([tmp_path])
    async with watching({"skills": registry}, listener):
        for name in ("a", "b", "c"):
            write_skill(tmp_path, name)
            with anyio.fail_after(60):
                while name not in registry.skills:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
        assert len(listener.notices) == 1
        listener.go_on.set()
        await listener.until(lambda: len(listener.notices) == 2)
    assert listener.notices[1] == ("skills", frozenset({"b", "c"}))


async def test_what_no_event_told_is_found_some_time_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hot_reload, "_RECHECK_SECONDS", 0.1)
    monkeypatch.setattr(hot_reload, "_FULL_SECONDS", 0.1)
    monkeypatch.setattr("deep_agent_mcp.harness.definitions.registry._WATCHED_SECONDS", 0.0)
    monkeypatch.setattr("deep_agent_mcp.harness.definitions.registry._WATCHED_SHARE", 0.0)
    path = write_skill(tmp_path / "skills", "a", body="one")
    other = tmp_path / "other.md"
    other.hardlink_to(path)
    registry = SkillRegistry([tmp_path / "skills"])
    async with watching({"skills": registry}) as listener:
        other.write_text(skill_text("a", body="two"))
        await listener.until(lambda: registry.get("a").body == "two")


async def test_only_the_skill_that_changed_is_looked_at(tmp_path: Path) -> None:
    for number in range(20):
        write_skill(tmp_path, f"s-{number}")
    scans: list[str] = []

    class Counting(SkillRegistry):
        def reload(self) -> bool:
            scans.append("all")
            return super().reload()

    registry = Counting([tmp_path])
    async with watching({"skills": registry}) as listener:
        before = len(scans)
        for number in range(5):
            save_by_rename(tmp_path / f"s-{number}" / "SKILL.md", skill_text(f"s-{number}", "new"))
            await listener.until(
                lambda number=number: registry.get(f"s-{number}").description == "new"
            )
        assert len(scans) == before
    assert isinstance(registry, DefinitionRegistry)


LIMITED = """
import logging, os, sys
from pathlib import Path
import anyio
from deep_agent_mcp.harness.skills import SkillRegistry
from deep_agent_mcp.server.reload.hot_reload import watch
from tests.skills.folders import skill_text, write_skill

logging.basicConfig(format="%(levelname)s %(message)s")

async def main(source):
    for number in range(20):
        path = write_skill(source, f"s-{number}")
    # Whole seconds are compared; what changes within one is seen by the look at all files.
    os.utime(path, (1e9, 1e9))
    registry = SkillRegistry([source])
    seen = anyio.Event()

    async def on_change(kind, names):
        seen.set()

    async with anyio.create_task_group() as group:
        async def run(*, task_status):
            await watch({"skills": registry}, on_change, task_status=task_status)
        await group.start(run)
        path.write_text(skill_text("s-19", body="seen"))
        with anyio.fail_after(60):
            await seen.wait()
        print(registry.get("s-19").body)
        group.cancel_scope.cancel()

anyio.run(main, Path(sys.argv[1]))
"""


LIMIT = "echo 8 > /proc/sys/user/max_inotify_watches"


def can_limit() -> bool:
    """Whether this system has user namespaces, with limits of their own."""
    if shutil.which("unshare") is None:
        return False
    return not subprocess.run(["unshare", "-Ur", "sh", "-c", LIMIT], capture_output=True).returncode


@pytest.mark.skipif(not can_limit(), reason="needs a user namespace with a limit of its own")
async def test_without_watches_left_files_are_compared_and_the_log_says_so(tmp_path: Path) -> None:
    code = tmp_path / "limited.py"
    code.write_text(LIMITED)
    (tmp_path / "skills").mkdir()
    command = f'{LIMIT}; exec "$@"'
    done = await anyio.run_process(
        ["unshare", "-Ur", "sh", "-c", command, "sh", sys.executable, str(code),
         str(tmp_path / "skills")],
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.stdout == b"seen\n", done.stderr.decode()
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("WARNING the system has no file watches left")
    assert "fs.inotify.max_user_watches" in line


async def test_a_watch_that_cannot_be_made_is_tried_again_and_then_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from watchfiles import awatch

    def refusing(*paths: str, force_polling: bool | None, **given: object) -> object:
        if not force_polling:
            raise RuntimeError("no events today")
        return awatch(*paths, force_polling=True, poll_delay_ms=20, **given)

    monkeypatch.setattr(hot_reload, "awatch", refusing)
    monkeypatch.setattr(hot_reload, "_RETRY_SECONDS", 0.01)
    registry = SkillRegistry([tmp_path])
    with caplog.at_level(logging.ERROR, "deep_agent_mcp.server.reload.hot_reload"):
        async with watching({"skills": registry}) as listener:
            write_skill(tmp_path, "a")
            await listener.until(lambda: "a" in registry.skills)
    said = [one.getMessage() for one in caplog.records]
    assert len(said) == 3
    assert all("no events today" in one for one in said)
    assert said[-1].endswith("comparing them from now on")


async def test_a_watch_that_hears_nothing_for_a_while_rests_and_still_hears_the_next_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bool] = []
    look = hot_reload._Pace.is_set

    def counted(pace: hot_reload._Pace) -> bool:
        looks.append(True)
        return look(pace)

    monkeypatch.setattr(hot_reload, "_BUSY_SECONDS", 0.0)
    monkeypatch.setattr(hot_reload._Pace, "is_set", counted)
    registry = SkillRegistry([tmp_path])
    async with watching({"skills": registry}) as listener:
        looks.clear()
        began = time.monotonic()
        await anyio.sleep(0.5)
        seen, seconds = len(looks), time.monotonic() - began
        assert seen <= 40 * seconds  # two threads; 100 a second if they did not rest
        write_skill(tmp_path, "a")
        await listener.until(lambda: "a" in registry.skills)
