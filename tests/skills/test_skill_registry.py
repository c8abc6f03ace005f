"""The skill registry: rules, precedence, and life with files that break."""

import hashlib
import os
import threading
from pathlib import Path

import pytest

from deep_agent_mcp.harness.definitions.sources import FileStat, Found
from deep_agent_mcp.harness.skills import SkillRegistry, UnknownSkill
from tests.skills.folders import save_by_rename, skill_text, write_skill


def test_a_skill_is_read_with_all_its_fields_and_files(tmp_path: Path):
    path = write_skill(
        tmp_path,
        "pdf-forms",
        "---\nname: pdf-forms\ndescription: >\n  Fills forms.\n  Use for PDFs.\nlicense: MIT\n"
        "compatibility: needs network\nallowed-tools: Read Bash(git:*)\n"
        "metadata:\n  version: 1.5\n  author: me\n  deep: {a: 1}\nextra: [1]\n---\n\nDo this.\n",
    )
    (path.parent / "references").mkdir()
    (path.parent / "references" / "a.md").write_bytes(b"abc")
    (path.parent / ".git").mkdir()
    (path.parent / ".git" / "HEAD").write_text("x")
    skill = SkillRegistry([(tmp_path, "project")]).get("pdf-forms")
    assert skill.description == "Fills forms. Use for PDFs."
    assert skill.body == "Do this."
    assert (skill.license, skill.compatibility) == ("MIT", "needs network")
    assert skill.allowed_tools == ("Read", "Bash(git:*)")
    assert skill.metadata == {"version": "1.5", "author": "me", "deep": '{"a": 1}'}
    assert skill.frontmatter["extra"] == [1]
    assert (skill.source, skill.path) == ("project", path)
    assert [file.path for file in skill.files] == ["SKILL.md", "references/a.md"]
    assert skill.files[1][1:] == (3, hashlib.sha256(b"abc").hexdigest())


@pytest.mark.parametrize("name", ["a", "a1", "x" * 64, "a-b-c", "1-2"])
def test_names_within_the_rule_load(tmp_path: Path, name: str):
    write_skill(tmp_path, name)
    registry = SkillRegistry([tmp_path])
    assert list(registry.skills) == [name]
    assert not registry.errors


BAD = {
    "upper case": ("Pdf", skill_text("Pdf"), "a-z, 0-9"),
    "leading hyphen": ("-a", skill_text("-a"), "a-z, 0-9"),
    "trailing hyphen": ("a-", skill_text("a-"), "a-z, 0-9"),
    "double hyphen": ("a--b", skill_text("a--b"), "a-z, 0-9"),
    "underscore": ("a_b", skill_text("a_b"), "a-z, 0-9"),
    "other letters": ("süß", skill_text("süß"), "a-z, 0-9"),
    "name too long": ("x" * 65, skill_text("x" * 65), "1 to 64 characters; it has 65"),
    "name not the folder's": ("abc", skill_text("abd"), "must equal the folder's name 'abc'"),
    "name missing": ("a", "---\ndescription: d\n---\n", "'name' is missing"),
    "name a number": ("1", skill_text("1"), "must be text, not 1"),
    "description missing": ("a", "---\nname: a\n---\n", "'description' is missing"),
    "description blank": ("a", skill_text("a", "'  '"), "1 to 1024 characters; it has 0"),
    "description too long": ("a", skill_text("a", "d" * 1025), "it has 1025"),
    "description a list": ("a", skill_text("a", "[d]"), "must be text"),
    "compatibility too long": (
        "a",
        f"---\nname: a\ndescription: d\ncompatibility: {'c' * 501}\n---\n",
        "1 to 500",
    ),
    "metadata a list": ("a", "---\nname: a\ndescription: d\nmetadata: [x]\n---\n", "a mapping"),
    "no frontmatter": ("a", "# A\n", "must begin with frontmatter"),
}


@pytest.mark.parametrize(("name", "text", "rule"), BAD.values(), ids=BAD)
def test_a_broken_rule_is_an_error_that_names_file_and_rule(
    tmp_path: Path, name: str, text: str, rule: str
):
    path = write_skill(tmp_path, name, text)
    registry = SkillRegistry([tmp_path])
    assert not registry.skills
    error = registry.errors[str(path)]
    assert error.startswith(str(path))
    assert rule in error


def test_description_at_the_limit_loads(tmp_path: Path):
    write_skill(tmp_path, "a", description="d" * 1024)
    assert len(SkillRegistry([tmp_path]).get("a").description) == 1024


def test_a_later_source_wins_and_its_removal_uncovers_the_earlier(tmp_path: Path):
    write_skill(tmp_path / "one", "a", body="first")
    second = write_skill(tmp_path / "two", "a", body="second")
    write_skill(tmp_path / "one", "b")
    registry = SkillRegistry([tmp_path / "one", tmp_path / "two"])
    assert registry.get("a").body == "second"
    assert list(registry.skills) == ["a", "b"]
    second.unlink()
    assert registry.reload()
    assert registry.get("a").body == "first"


def test_a_skill_that_breaks_later_does_not_uncover_the_earlier(tmp_path: Path):
    write_skill(tmp_path / "one", "a", body="first")
    second = write_skill(tmp_path / "two", "a", body="second")
    registry = SkillRegistry([tmp_path / "one", tmp_path / "two"])
    second.write_text("broken")
    registry.reload()
    assert registry.get("a").body == "second"


def test_a_broken_file_keeps_its_last_good_version_until_it_is_mended(tmp_path: Path):
    path = write_skill(tmp_path, "a", body="good")
    registry = SkillRegistry([tmp_path])
    assert registry.version == 1
    path.write_text("---\nname: a\n")
    assert registry.reload()
    assert registry.get("a").body == "good"
    assert "last good version stays in use" in registry.errors[str(path)]
    assert registry.version == 2
    assert not registry.reload()
    save_by_rename(path, skill_text("a", body="better"))
    assert registry.reload()
    assert registry.get("a").body == "better"
    assert not registry.errors
    assert registry.version == 3


def test_the_version_stays_when_nothing_changed(tmp_path: Path):
    path = write_skill(tmp_path, "a")
    registry = SkillRegistry([tmp_path])
    os.utime(path)
    assert not registry.reload()
    assert registry.version == 1


def test_a_changed_file_beside_the_instructions_counts_as_a_change(tmp_path: Path):
    path = write_skill(tmp_path, "a")
    registry = SkillRegistry([tmp_path])
    path.with_name("x.md").write_text("1")
    assert registry.reload()
    path.with_name("x.md").rename(path.with_name("y.md"))
    assert registry.reload()
    assert [file.path for file in registry.get("a").files] == ["SKILL.md", "y.md"]


def test_settled_files_are_not_read_again_but_an_edit_that_keeps_the_size_is(tmp_path: Path):
    path = write_skill(tmp_path, "a", body="one")
    os.utime(path, (1_000_000_000, 1_000_000_000))
    registry = SkillRegistry([tmp_path])
    before = registry.get("a")
    registry.reload()
    write_skill(tmp_path, "b")
    registry.reload()
    assert registry.get("a") is before
    path.write_text(skill_text("a", body="two"))
    assert registry.reload()
    assert registry.get("a").body == "two"


class CoarseClock(SkillRegistry):
    """Skills on a file system that counts time in steps of two seconds, as FAT does."""

    def _signature(self, found: Found) -> tuple[FileStat, ...]:
        step = 2_000_000_000
        return tuple(
            file._replace(mtime_ns=file.mtime_ns // step * step, ctime_ns=0)
            for file in super()._signature(found)
        )


def test_same_size_edits_in_quick_succession_are_all_seen(tmp_path: Path):
    path = write_skill(tmp_path, "a", body="0")
    registry = CoarseClock([tmp_path])
    for number in "123456789":
        path.write_text(skill_text("a", body=number))
        registry.reload()
        assert registry.get("a").body == number


def test_links_out_of_the_source_are_not_followed(tmp_path: Path):
    source, outside = tmp_path / "source", tmp_path / "outside"
    write_skill(outside, "evil")
    (outside / "secret.md").write_text("secret")
    path = write_skill(source, "a")
    path.with_name("link.md").symlink_to(outside / "secret.md")
    path.with_name("dir").symlink_to(outside)
    (source / "evil").symlink_to(outside / "evil")
    (source / "b").mkdir()
    (source / "b" / "SKILL.md").symlink_to(outside / "evil" / "SKILL.md")
    (source / "shared.md").write_text("shared")
    path.with_name("inside.md").symlink_to(source / "shared.md")
    registry = SkillRegistry([source])
    assert list(registry.skills) == ["a"]
    assert [file.path for file in registry.get("a").files] == ["SKILL.md", "inside.md"]
    assert "not followed" in registry.errors[str(source / "evil")]
    assert "may not lead out" in registry.errors[str(source / "b" / "SKILL.md")]


def test_too_many_files_or_bytes_are_refused(tmp_path: Path):
    many = write_skill(tmp_path, "many")
    for number in range(512):
        many.with_name(f"{number}.txt").touch()
    large = write_skill(tmp_path, "large")
    with large.with_name("data.bin").open("wb") as file:
        file.truncate(16 * 1024 * 1024)
    errors = SkillRegistry([tmp_path]).errors
    assert "more than 512 files" in errors[str(many)]
    assert "at most 16,777,216" in errors[str(large)]


def test_odd_sources_are_empty_or_explained(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "source" / "no-skill-here").mkdir(parents=True)
    itself = write_skill(tmp_path, "itself")
    registry = SkillRegistry(
        [tmp_path / "missing", tmp_path / "file", tmp_path / "source", itself.parent]
    )
    assert not registry.skills
    assert set(registry.errors) == {str(tmp_path / "file"), str(itself)}
    assert "its parent directory" in " ".join(registry.errors[str(itself)].split())


def test_an_unknown_name_is_answered_with_the_nearest(tmp_path: Path):
    write_skill(tmp_path, "reviewing-changes")
    write_skill(tmp_path, "planning")
    registry = SkillRegistry([tmp_path])
    with pytest.raises(UnknownSkill, match="Did you mean 'reviewing-changes'") as caught:
        registry.get("review-changes")
    assert "planning, reviewing-changes" in str(caught.value)
    with pytest.raises(UnknownSkill, match="no skills at all"):
        SkillRegistry([]).get("x")


def test_readers_on_other_threads_never_see_half_a_reload(tmp_path: Path):
    first, second = write_skill(tmp_path, "a", body="0"), write_skill(tmp_path, "b", body="0")
    registry = SkillRegistry([tmp_path])
    done = threading.Event()
    torn: list[object] = []

    def read() -> None:
        while not done.is_set():
            snapshot = registry.snapshot
            if set(snapshot.items) != {"a", "b"} or set(snapshot.digests) != {"a", "b"}:
                torn.append(snapshot)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(8):
        save_by_rename(first, skill_text("a", body=str(number)))
        save_by_rename(second, skill_text("b", body=str(number)))
        registry.reload()
    done.set()
    reader.join()
    assert not torn
    assert registry.get("b").body == "7"


def test_a_skill_that_needs_a_shell_is_withheld_without_one(tmp_path: Path):
    text = skill_text("counting").replace("\n---\n\n", "\nmetadata:\n  needs: shell\n---\n\n", 1)
    write_skill(tmp_path, "counting", text)
    write_skill(tmp_path, "noting", skill_text("noting"))
    registry = SkillRegistry([tmp_path], has_shell=False)
    assert (list(registry.skills), registry.withheld) == (["noting"], ["counting"])
    assert not registry.errors
    with pytest.raises(UnknownSkill, match="'counting' needs a tool that runs commands"):
        registry.get("counting")
    assert registry.use([tmp_path], has_shell=True)
    assert (list(registry.skills), registry.withheld) == (["counting", "noting"], ())
