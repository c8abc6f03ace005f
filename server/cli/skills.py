"""`deep-agent-mcp skills …`: lists, checks, creates and installs skills."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import get_terminal_size
from tempfile import TemporaryDirectory
from textwrap import indent
from typing import TYPE_CHECKING

import click

from ..terminal import clean
from .shared import Failed, Refused, json_option

if TYPE_CHECKING:
    from ...harness.skills import Skill
    from ..settings.settings import Settings

__all__ = ["skills"]

_CONFIG = click.option("--config", metavar="FILE", help="The configuration file of the server.")
_TO = click.option(
    "--to",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="A directory of skills.  [the one that the settings name]",
)


@click.group()
def skills() -> None:
    """List, check, create and install skills.

    A skill is a folder of instructions for agents.
    """


@skills.command("list")
@_CONFIG
@click.option(
    "--skills",
    "directories",
    multiple=True,
    metavar="DIR",
    help="A directory of skills, as for `serve`. Repeatable.",
)
@json_option
def list_skills(config: str | None, directories: tuple[str, ...], as_json: bool) -> None:
    """List the skills of agents, and errors in skills that cannot be used."""
    from ..agents.workplaces import skills_of

    found = skills_of(_settings(config, directories))
    if as_json:
        rows = [
            {"name": one.name, "description": one.description, "path": str(one.path)}
            for one in found.skills.values()
        ]
        data = {"skills": rows, "withheld": [*found.withheld], "errors": dict(found.errors)}
        click.echo(json.dumps(data, indent=2))
    else:
        for one in found.skills.values():
            click.echo(f"{one.name}  ({one.source})")
            _indented(one.description)
        if found.withheld:
            names = ", ".join(found.withheld)
            click.echo(f"Not offered without a shell (--execute): {names}", err=True)
        for problem in found.errors.values():
            click.echo(f"error: {clean(problem)}", err=True)
    if found.errors:
        sys.exit(1)


@skills.command()
@click.argument(
    "paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path)
)
def check(paths: tuple[Path, ...]) -> None:
    """Check skills against the format.

    Each argument is a folder, a directory of folders, or an archive. The exit code is 1 if one of
    them breaks a rule.
    """
    from ..install.skill_import import SkillImportError, executables, skills_in, unpacked

    failed = False
    for path in paths:
        with TemporaryDirectory() as place:
            try:
                for skill in skills_in(unpacked(path, Path(place))):
                    _describe(skill, executables(skill))
            except SkillImportError as error:
                click.echo(f"error: {clean(str(error))}", err=True)
                failed = True
    if failed:
        sys.exit(1)


def _describe(skill: Skill, programs: Sequence[str]) -> None:
    from ...harness._internal import count_of

    size = sum(one.size for one in skill.files)
    click.echo(f"{skill.name}: {count_of(len(skill.files), 'file')}, {count_of(size, 'byte')}")
    _indented(skill.description)
    if skill.compatibility:
        _indented(skill.compatibility)
    for name in programs:
        _indented(f"can be run: {name}")


def _indented(text: str) -> None:
    """Print a skill's text below its name; on a terminal, lines are wrapped to the window."""
    if sys.stdout.isatty():
        text = click.wrap_text(clean(text), max(20, get_terminal_size().columns - 4))
    click.echo(indent(text, "    "))


@skills.command()
@click.argument("name")
@_TO
@_CONFIG
def new(name: str, to: Path | None, config: str | None) -> None:
    """Create a skill from a template for you to fill in."""
    from ...harness.definitions.frontmatter import DefinitionError, Frontmatter
    from ...harness.skills import SKILL_FILE, check_name
    from ..agents.workplaces import bundled_skills

    place = (to or _only_directory(config)) / name
    try:
        check_name(Frontmatter.parse(f"---\nname: {name}\n---\n", place / SKILL_FILE))
    except DefinitionError as error:
        raise Refused(f"{error} Nothing was created.") from error
    if place.exists():
        raise Refused(f"{place} is there already. Nothing was changed.")
    template = bundled_skills() / "writing-skills" / "assets" / "template.md"
    text = template.read_text(encoding="utf-8")
    title = name.replace("-", " ").capitalize()
    text = text.replace("doing-the-thing", name).replace("Doing the thing", title)
    place.mkdir(parents=True)
    (place / SKILL_FILE).write_text(text, encoding="utf-8")
    click.echo(f"created {place / SKILL_FILE}. Fill it in, then run: ", nl=False)
    click.echo(f"deep-agent-mcp skills check {place}")


@skills.command()
@click.argument("source", type=click.Path(path_type=Path))
@_TO
@_CONFIG
@click.option("--replace", is_flag=True, help="Replace skills of the same name.")
@click.option("--yes", is_flag=True, help="Do not ask, even if the skill contains programs.")
def add(source: Path, to: Path | None, config: str | None, replace: bool, yes: bool) -> None:
    """Install skills from a directory or an archive.

    A skill instructs agents, and may contain programs that they run. Read what you install: this
    command shows each skill's description and programs, and asks before it copies them.
    """
    from ..install.skill_import import SkillImportError, executables, skills_in, take_in, unpacked

    target = to or _only_directory(config)
    try:
        with TemporaryDirectory() as place:
            offered = skills_in(unpacked(source, Path(place)))
            for skill in offered:
                programs = executables(skill)
                _describe(skill, programs)
                if programs and not yes:
                    _confirm(skill, len(programs))
            for skill in offered:
                click.echo(f"installed {take_in(skill, target, replace=replace)}")
    except SkillImportError as error:
        raise Failed(f"{error} Nothing more was installed.") from error


def _confirm(skill: Skill, count: int) -> None:
    from ...harness._internal import count_of

    if not sys.stdin.isatty():
        raise Refused(
            f"{skill.name} has {count_of(count, 'file')} that can be run, and nobody can be asked. "
            "Nothing was installed. Read them, then call this with --yes."
        )
    if not click.confirm(f"Install {skill.name} with {count_of(count, 'file')} that can be run?"):
        raise Refused("nothing was installed.")


def _settings(config: str | None, directories: tuple[str, ...] = ()) -> Settings:
    from ..settings.settings import SettingsError
    from ..settings.sources import load_settings

    try:
        return load_settings({"skills": directories}, os.environ, config=config)
    except SettingsError as error:
        raise Refused(str(error)) from error


def _only_directory(config: str | None) -> Path:
    found = _settings(config).skills
    if len(found) != 1:
        many = "name no directory" if not found else f"name {len(found)} directories"
        raise Refused(f"the settings {many} of skills. Nothing was done. Name one with --to.")
    return found[0]
