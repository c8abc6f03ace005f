"""`deep-agent-mcp skills`: what agents get, what is wrong with it, and skills from elsewhere."""

from __future__ import annotations

import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deep_agent_mcp.server.cli.main import cli

TEXT = "---\nname: {0}\ndescription: Tells about {0}. Use when asked.\n---\n\nDo it.\n"


@pytest.fixture
def skills(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    for name in [one for one in os.environ if one.startswith("DEEP_AGENT_")]:
        monkeypatch.delenv(name)

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(cli, ["skills", *map(str, arguments)])

    return run


def skill(folder: Path, name: str, **files: str) -> Path:
    place = folder / name
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(TEXT.format(name), encoding="utf-8")
    for path, text in files.items():
        (place / path.replace("__", ".")).write_text(text, encoding="utf-8")
    return place


def test_the_list_shows_what_agents_get_and_what_is_broken(
    skills: Callable[..., Result], tmp_path: Path
) -> None:
    skill(tmp_path, "good-one")
    (skill(tmp_path, "bad-one") / "SKILL.md").write_text("no frontmatter", encoding="utf-8")
    listed = skills("list", "--skills", tmp_path)
    assert listed.exit_code == 1
    assert "good-one" in listed.stdout and "writing-skills  (bundled)" in listed.stdout
    assert "bad-one" in listed.stderr
    data = json.loads(skills("list", "--json").stdout)
    assert "writing-skills" in [one["name"] for one in data["skills"]] and not data["errors"]


def test_skills_that_need_a_shell_are_listed_where_there_is_one(
    skills: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = skills("list")
    assert "data-tables" not in without.stdout
    assert "Not offered without a shell (--execute): data-tables" in without.stderr
    monkeypatch.setenv("DEEP_AGENT_EXECUTE", "bubblewrap")
    monkeypatch.setenv("DEEP_AGENT_ROOT", str(tmp_path))
    assert "data-tables  (bundled)" in skills("list").stdout


def test_the_bundled_skills_pass_the_check(skills: Callable[..., Result]) -> None:
    checked = skills("check", Path(__file__).parents[2] / "skills")
    assert checked.exit_code == 0, checked.output
    assert "can be run: scripts/table.py" in checked.stdout


def test_a_new_skill_is_a_template_that_passes_the_check(
    skills: Callable[..., Result], tmp_path: Path
) -> None:
    assert skills("new", "our-reports", "--to", tmp_path).exit_code == 0
    assert skills("check", tmp_path / "our-reports").exit_code == 0
    again = skills("new", "our-reports", "--to", tmp_path)
    assert again.exit_code == 2 and "is there already" in again.stderr
    assert skills("new", "Our Reports", "--to", tmp_path).exit_code == 2


def packed(folder: Path, archive: Path) -> Path:
    files = [one for one in folder.rglob("*") if one.is_file()]
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as zipped:
            for one in files:
                zipped.write(one, one.relative_to(folder.parent))
    else:
        with tarfile.open(archive, "w:gz") as tar:
            for one in files:
                tar.add(one, str(one.relative_to(folder.parent)))
    return archive


def test_a_replacement_that_fails_leaves_the_old_skill(
    skills: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = skill(tmp_path / "old", "our-one"), skill(tmp_path / "new", "our-one", note__md="A")
    assert skills("add", old, "--to", tmp_path / "mine").exit_code == 0
    rename, moved = Path.rename, list[Path]()

    def failing(path: Path, target: Path) -> Path:
        moved.append(path)
        if len(moved) == 2:
            raise OSError("disk full")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)
    added = skills("add", new, "--to", tmp_path / "mine", "--replace")
    assert added.exit_code == 1 and "disk full" in added.stderr
    assert os.listdir(tmp_path / "mine") == ["our-one"]
    assert os.listdir(tmp_path / "mine" / "our-one") == ["SKILL.md"]


@pytest.mark.parametrize("kind", ["directory", "pack.zip", "pack.tar.gz"])
def test_skills_are_installed_from_a_directory_or_an_archive(
    kind: str, skills: Callable[..., Result], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    skill(source / "skills", "first-one", notes__md="A note.")
    skill(source / "skills", "second-one")
    given = source if kind == "directory" else packed(source, tmp_path / kind)
    added = skills("add", given, "--to", tmp_path / "mine")
    assert added.exit_code == 0, added.output
    assert (tmp_path / "mine" / "first-one" / "notes.md").read_text() == "A note."
    assert sorted(os.listdir(tmp_path / "mine")) == ["first-one", "second-one"]
    again = skills("add", given, "--to", tmp_path / "mine")
    assert again.exit_code == 1 and "--replace" in again.stderr
    assert skills("add", given, "--to", tmp_path / "mine", "--replace").exit_code == 0


def test_a_program_is_not_installed_unless_somebody_says_so(
    skills: Callable[..., Result], tmp_path: Path
) -> None:
    source = skill(tmp_path / "source", "with-program", run__sh="echo hi\n")
    (source / "hidden").write_bytes(b"#!/bin/sh\n")
    refused = skills("add", source, "--to", tmp_path / "mine")
    assert refused.exit_code == 2 and "2 files that can be run" in refused.stderr
    assert "can be run: run.sh" in refused.stdout and not (tmp_path / "mine").exists()
    assert skills("add", source, "--to", tmp_path / "mine", "--yes").exit_code == 0


def zipped(path: Path, *names: str, link: bool = False) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            entry = zipfile.ZipInfo(name)
            if link:
                entry.external_attr = 0o120777 << 16
            archive.writestr(entry, "x")
    return path


def tarred(path: Path, name: str, kind: bytes = tarfile.REGTYPE, to: str = "") -> Path:
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname, entry.size = kind, to, 0
        archive.addfile(entry, io.BytesIO())
    return path


@pytest.mark.parametrize(
    "name",
    ["../out.md", "/etc/out.md", "a/../../out.md", "..\\out.md", "a/b/../../../out.md", ".."],
)
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_writes_nothing_outside_of_its_place(
    name: str, kind: str, skills: Callable[..., Result], tmp_path: Path
) -> None:
    archive = tmp_path / f"bad.{kind}"
    source = zipped(archive, name) if kind == "zip" else tarred(archive, name)
    refused = skills("add", source, "--to", tmp_path / "mine", "--yes")
    assert refused.exit_code == 1 and "leads out of the archive" in refused.stderr
    assert os.listdir(tmp_path) == [archive.name] and not Path("/etc/out.md").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_an_archive_has_no_links_or_devices(
    kind: bytes, skills: Callable[..., Result], tmp_path: Path
) -> None:
    source = tarred(tmp_path / "bad.tar", "a-skill/SKILL.md", kind, "/etc/passwd")
    refused = skills("add", source, "--to", tmp_path / "mine")
    assert refused.exit_code == 1 and "not a regular file" in refused.stderr
    link = zipped(tmp_path / "bad.zip", "a-skill/SKILL.md", link=True)
    assert "is a link" in skills("add", link, "--to", tmp_path / "mine").stderr


def test_an_archive_that_explodes_is_refused_before_it_is_unpacked(
    skills: Callable[..., Result], tmp_path: Path
) -> None:
    source = zipped(tmp_path / "many.zip", *(f"a/{number}" for number in range(33_000)))
    refused = skills("add", source, "--to", tmp_path / "mine")
    assert refused.exit_code == 1 and "more than 32,768 files" in refused.stderr


@pytest.mark.skipif(os.name != "posix", reason="links need rights on Windows")
def test_a_link_out_of_a_skill_is_not_followed(
    skills: Callable[..., Result], tmp_path: Path
) -> None:
    source = skill(tmp_path / "source", "linked-one")
    (source / "secret.md").symlink_to("/etc/passwd")
    refused = skills("add", source, "--to", tmp_path / "mine")
    assert refused.exit_code == 1 and "secret.md" in refused.stderr
    assert not (tmp_path / "mine").exists()


def test_without_one_directory_in_the_settings_it_asks_for_one(
    skills: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = skill(tmp_path / "source", "first-one")
    refused = skills("add", source)
    assert refused.exit_code == 2 and "--to" in refused.stderr
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("DEEP_AGENT_SKILLS", str(tmp_path / "mine"))
    assert skills("add", source).exit_code == 0
    assert (tmp_path / "mine" / "first-one" / "SKILL.md").is_file()
