"""Whatever happens to files: to look at what changed comes to the same as to look at all of it."""

import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from deep_agent_mcp.harness.definitions.registry import DefinitionRegistry
from deep_agent_mcp.harness.definitions.sources import FileStat, Found
from deep_agent_mcp.harness.skills import SkillRegistry
from deep_agent_mcp.harness.subagents.registry import SubAgentRegistry
from tests.skills.folders import save_by_rename, skill_text, write_skill

NAMES = ("a", "b", "c")
FILES = ("SKILL.md", "notes.md", "sub/more.md")
LATER = 1_500_000_000


class Disk:
    """Changes files at random, and says of which a watch would tell.

    Each version has a time of its own in the past, so that equal signatures mean equal files.
    """

    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.sources = [root / "one", root / "two", root / "two" / "inner"]
        self.outside = root / "outside"
        self.changed: set[str] = set()
        self.clock = 0

    def step(self) -> None:
        acts: list[Callable[[], object]] = [
            self.write, self.write, self.write, self.write, self.break_it, self.delete,
            self.delete_skill, self.rename, self.replace_source, self.link_skill, self.link_file,
            self.hard_link, self.move_away, self.write_outside,
        ]  # fmt: skip
        try:
            self.random.choice(acts)()
        except (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError):
            pass  # there is nothing to change, or something in the way
        except OSError as error:
            # A loop of links, into itself, not empty; shutil refuses links without a number.
            if error.errno not in (errno.ELOOP, errno.EINVAL, errno.ENOTEMPTY, None):
                raise

    def source(self) -> Path:
        return self.random.choice(self.sources)

    def folder(self) -> Path:
        return self.source() / self.random.choice(NAMES)

    def file(self) -> Path:
        return self.folder() / self.random.choice(FILES)

    def touch(self, path: Path) -> None:
        self.clock += 1
        os.utime(path, (LATER + self.clock, LATER + self.clock))
        # A watch tells of a file by any of the names that lead to its directory.
        by_link = path.is_symlink() or self.random.random() < 0.5
        self.changed.add(str(path.resolve() if by_link else path))

    def put(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.random.random() < 0.5:
            path.write_text(text)
        else:
            save_by_rename(path, text)
        self.touch(path)
        self.changed.add(str(path.parent))

    def write(self) -> None:
        path = self.file()
        self.put(path, skill_text(path.parent.name, body=str(self.random.random())))

    def write_outside(self) -> None:
        self.put(self.outside / "SKILL.md", skill_text("outside"))

    def break_it(self) -> None:
        self.put(self.folder() / "SKILL.md", "no frontmatter")

    def delete(self) -> None:
        path = self.file()
        path.unlink()
        self.changed.add(str(path))

    def delete_skill(self) -> None:
        path = self.folder()
        if path.is_symlink():
            path.unlink()
        else:
            shutil.rmtree(path)
        self.changed.add(str(path))

    def rename(self) -> None:
        old, new = self.folder(), self.folder()
        old.rename(new)
        self.changed |= {str(old), str(new)}

    def move_away(self) -> None:
        path = self.source()
        path.rename(self.outside / f"gone-{self.clock}")
        self.changed.add(str(path))

    def replace_source(self) -> None:
        path = self.source()
        shutil.rmtree(path)
        self.changed.add(str(path))
        self.clock += 1
        made = write_skill(path, self.random.choice(NAMES), body=str(self.clock))
        self.touch(made)

    def link_skill(self) -> None:
        target, path = self.folder(), self.folder()
        path.symlink_to(target)
        self.changed.add(str(path))

    def link_file(self) -> None:
        target, path = self.file(), self.file()
        path.symlink_to(target)
        self.changed.add(str(path))

    def hard_link(self) -> None:
        target, path = self.file(), self.file()
        path.hardlink_to(target)
        self.changed |= {str(path), str(target)}


def state(registry: DefinitionRegistry[object]) -> object:
    snapshot = registry.snapshot
    return dict(snapshot.items), dict(snapshot.errors), dict(snapshot.digests), list(snapshot.items)


@pytest.mark.exhaustive(cases=3)
@pytest.mark.parametrize("seed", range(12))
def test_after_any_changes_a_partial_look_has_found_what_a_full_one_finds(
    tmp_path: Path, seed: int
) -> None:
    disk = Disk(tmp_path, seed)
    disk.outside.mkdir()
    partial, full = SkillRegistry(disk.sources), SkillRegistry(disk.sources)
    seen = 0
    for _ in range(60):
        for _ in range(disk.random.choice((1, 1, 2, 5))):
            disk.step()
        assert partial.look_at(disk.changed) == full.reload()
        disk.changed.clear()
        assert state(partial) == state(full)
        seen = max(seen, len(full.skills))
    assert seen > 1


def test_a_later_source_wins_and_its_end_brings_the_earlier_one_back(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    write_skill(first, "a", body="one")
    registry = SkillRegistry([first, second])
    path = write_skill(second, "a", body="two")
    assert registry.look_at([str(path)])
    assert registry.get("a").body == "two"
    shutil.rmtree(path.parent)
    assert registry.look_at([str(path.parent)])
    assert registry.get("a").body == "one"


def test_only_what_changed_is_read_again(tmp_path: Path) -> None:
    class Counting(SkillRegistry):
        looked: list[str]

        def _signature(self, found: Found) -> tuple[FileStat, ...]:
            self.looked.append(found.path.parent.name)
            return super()._signature(found)

    Counting.looked = []
    for number in range(20):
        write_skill(tmp_path, f"s-{number}")
    registry = Counting([tmp_path])
    Counting.looked = []
    path = write_skill(tmp_path, "s-7", body="new")
    assert registry.look_at([str(path)])
    assert Counting.looked == ["s-7"]
    assert not registry.look_at([str(tmp_path.parent / "elsewhere")])
    assert Counting.looked == ["s-7"]


def test_a_name_that_is_not_the_one_listed_makes_it_look_at_all(tmp_path: Path) -> None:
    path = write_skill(tmp_path, "a", body="one")
    registry = SkillRegistry([tmp_path])
    path.write_text(skill_text("a", body="another"))
    assert registry.look_at([str(tmp_path / "A" / "SKILL.md")])
    assert registry.get("a").body == "another"


def test_a_source_that_cannot_be_listed_keeps_what_was_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_skill(tmp_path / "skills", "a")
    registry = SkillRegistry([tmp_path / "skills"])
    with monkeypatch.context() as broken:

        def refuse(where: object) -> object:
            raise PermissionError(13, "Permission denied")

        broken.setattr("deep_agent_mcp.harness.definitions.sources.os.scandir", refuse)
        assert registry.look_at([str(path)])
        assert list(registry.skills) == ["a"]
        assert "stays in use" in registry.errors[str(tmp_path / "skills")]
    assert registry.look_at([str(path)])
    assert not registry.errors


def test_odd_things_in_a_source_break_nothing_else(tmp_path: Path) -> None:
    write_skill(tmp_path, "good")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    odd = write_skill(tmp_path, "odd")
    (odd.parent / "loop.md").symlink_to("loop.md")
    os.mkfifo(odd.parent / "pipe.md")
    piped = tmp_path / "piped"
    piped.mkdir()
    os.mkfifo(piped / "SKILL.md")
    bad_name = write_skill(tmp_path, "bad-name")
    Path(os.fsdecode(os.fsencode(bad_name.parent) + b"/\xff.md")).touch()
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xfe"))
    folder.mkdir()
    (folder / "SKILL.md").write_text(skill_text("x"))
    registry = SkillRegistry([tmp_path])
    assert list(registry.skills) == ["good", "odd"]
    assert [one.path for one in registry.get("odd").files] == ["SKILL.md"]
    assert "is not a file inside" in registry.errors[str(piped / "SKILL.md")]
    assert "not UTF-8; rename it" in registry.errors[str(bad_name)]
    for text in (*registry.errors, *registry.errors.values()):
        text.encode()
    assert any("\\xfe" in path for path in registry.errors)


@pytest.mark.parametrize("seed", range(4))
def test_subagents_found_by_partial_looks_are_those_of_full_ones(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    partial, full = SubAgentRegistry(tmp_path), SubAgentRegistry(tmp_path)
    for turn in range(60):
        name = chance.choice(("one", "two", "three"))
        path = tmp_path / f"{name}.md"
        act = chance.randrange(4)
        if act == 0:
            path.unlink(missing_ok=True)
        elif act == 1:
            path.unlink(missing_ok=True)
            path.symlink_to(tmp_path / f"{chance.choice(('one', 'two'))}.md")
        else:
            said = chance.choice(("one", "two", "Broken name"))
            path.unlink(missing_ok=True)
            path.write_text(f"---\nname: {said}\ndescription: Turn {turn}.\n---\n\nGo.\n")
            os.utime(path, (LATER + turn, LATER + turn))
        assert partial.look_at([str(path)]) == full.reload()
        assert state(partial) == state(full)
