"""Profiles as files: what they may say, and what their user reads when one is wrong."""

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
from anthropic.types import model as anthropic_models

from deep_agent_mcp.harness.definitions.confined_files import ConfinedFiles
from deep_agent_mcp.harness.definitions.frontmatter import DefinitionError
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.models.anthropic import AnthropicModel
from deep_agent_mcp.harness.models.names import canonical_name
from deep_agent_mcp.harness.models.vendors import ALIASES, VENDORS
from deep_agent_mcp.harness.profiles import (
    BUILTIN,
    GeneralPurpose,
    Profile,
    ProfileRegistry,
    load_profile,
    profile_for,
)
from tests.doc_pages import DocPage

WHOLE = '''\
models = ["anthropic:claude-opus-*", "other"]
base_system_prompt = "Work."
system_prompt_suffix = """
Be careful.
And quick."""
excluded_tools = ["delete_*", "glob"]
excluded_middleware = ["TodoListMiddleware"]

[tool_description_overrides]
task = "Ask another."

[extra_middleware.SummarizationMiddleware]
trigger = { fraction = 0.5 }

[extra_middleware.UnsupportedContentMiddleware]

[init_kwargs]
max_tokens = 9_000
thinking = { type = "adaptive" }

[general_purpose_subagent]
enabled = false
description = "Does things."
system_prompt = "Do it."
'''


def write(directory: Path, name: str, text: str) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_page_lists_every_key() -> None:
    page = DocPage("reference/profiles.md").text("Keys")
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.M)
    assert [key for key, _ in rows] == ["models", *(one.name for one in fields(Profile))]
    about_subagent = dict(rows)["general_purpose_subagent"]
    named = {*re.findall(r"`(\w+)`", about_subagent)}
    assert named == {one.name for one in fields(GeneralPurpose)}


def test_a_file_can_say_all_of_it(tmp_path: Path) -> None:
    loaded = load_profile(write(tmp_path, "mine", WHOLE), ConfinedFiles())
    assert loaded.name == "mine"
    assert loaded.models == ("anthropic:claude-opus-*", "other")
    assert loaded.profile == Profile(
        base_system_prompt="Work.",
        system_prompt_suffix="Be careful.\nAnd quick.",
        tool_description_overrides={"task": "Ask another."},
        excluded_tools=("delete_*", "glob"),
        excluded_middleware=("TodoListMiddleware",),
        extra_middleware={
            "SummarizationMiddleware": {"trigger": {"fraction": 0.5}},
            "UnsupportedContentMiddleware": {},
        },
        init_kwargs={"max_tokens": 9000, "thinking": {"type": "adaptive"}},
        general_purpose_subagent=GeneralPurpose(
            enabled=False, description="Does things.", system_prompt="Do it."
        ),
    )


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("", 1, "does not say which models it is for"),
        ('models = ["a"]\n\nsufix = """\nx\n"""\n', 3, "unknown key 'sufix'; allowed are models, "),
        (
            'models = ["a"]\n[general_purpose_subagent]\nenabled = true\n\nprompt = "x"\n',
            5,
            "unknown key 'prompt'; allowed are enabled, description, system_prompt.",
        ),
        ('# mine\nmodels = ["a"]\n[promt]\nbase = 1\n', 3, "unknown key 'promt'"),
        ('a.b = 1\nmodels = ["a"]\n', 1, "unknown key 'a'"),
        ('models = "a"\n', 1, "models must be a list of one or more names; got 'a'"),
        ("models = []\n", 1, "models must be a list of one or more names"),
        ('models = ["a:"]\n', 1, "'a:' is not a model; write 'provider' or 'provider:model'"),
        ('models = ["a b"]\n', 1, "'a b' is not a model"),
        (
            'models = ["a"]\n[tool_description_overrides]\ntask = """\nls = 1\n"""\nls = 3\n',
            6,
            "tool_description_overrides.ls must be text that is not empty; got 3.",
        ),
        (
            'models = ["a"]\nexcluded_tools = [\n  "b",\n  3,\n]\n',
            2,
            "excluded_tools must be a list of text",
        ),
        (
            'models = ["a"]\nexcluded_middleware = ["HumanInTheLoopMiddleware"]\n',
            2,
            "excluded_middleware names 'HumanInTheLoopMiddleware'; accepted are Budget",
        ),
        (
            'models = ["a"]\n[extra_middleware]\nTodoListMiddleware = {}\nMine = {}\n',
            4,
            "extra_middleware names 'Mine'; accepted are ",
        ),
        (
            'models = ["a"]\n[extra_middleware.SummarizationMiddleware]\nmodel = "haiku"\n',
            2,
            "SummarizationMiddleware(model='haiku') cannot be made: unknown model 'haiku'",
        ),
        (
            'models = ["a"]\n\n[extra_middleware.PromptCachingMiddleware]\nttl = "2h"\n',
            3,
            "PromptCachingMiddleware(ttl='2h') cannot be made: ttl must be '5m' or '1h'",
        ),
        (
            'models = ["a"]\n[init_kwargs]\nmax_tokens = 5\napi_key = "sk-1"\n',
            4,
            "keys do not belong into profiles",
        ),
        ('models = ["a"]\n[extra_middleware]\nTodoListMiddleware = 1\n', 3, "must be a table"),
        ('models = ["a"]\ngeneral_purpose_subagent.enabled = "no"\n', 2, "must be true or false"),
        ('models = ["a"]\nx = \n', 2, "not valid TOML: Invalid value."),
        ('models = ["a"]\nx = """\n', 3, "not valid TOML"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(
    tmp_path: Path, text: str, line: int, problem: str
) -> None:
    path = write(tmp_path, "mine", text)
    with pytest.raises(DefinitionError) as caught:
        ProfileRegistry([tmp_path])
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: ")
    assert problem in message
    assert "sk-1" not in message


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(DefinitionError, match=r"folder\.toml: profiles cannot be read here"):
        ProfileRegistry([tmp_path])
    (tmp_path / "folder.toml").rmdir()
    (tmp_path / "latin.toml").write_bytes(b'models = ["a"]\n# \xe9\n')
    with pytest.raises(DefinitionError, match=r"latin\.toml:2: not UTF-8 text"):
        ProfileRegistry([tmp_path])


def test_a_directory_need_not_exist_and_other_files_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("x")
    (tmp_path / ".hidden.toml").write_text("x")
    registry = ProfileRegistry([tmp_path, tmp_path / "none"], builtin=False)
    assert registry.profiles == {}
    assert registry.for_model("anthropic:claude-opus-5") == Profile()


def suffix(registry: ProfileRegistry, model: str) -> list[str]:
    return registry.for_model(model).system_prompt_suffix.split("\n\n")


def test_the_specific_comes_over_the_general(tmp_path: Path) -> None:
    keys = {
        "a": "p:model-5",
        "b": "p:model-*",
        "c": "p:mo*",
        "d": "p",
        "e": "q",
        "f": "p:model-5-*",
        "g": "pp",
        "h": "p:model-[0-9]",
    }
    for name, key in keys.items():
        write(
            tmp_path,
            name,
            f'models = ["{key}"]\nsystem_prompt_suffix = "{key}"\n'
            f'base_system_prompt = "{name}"\n[init_kwargs]\nmax_tokens = 1\n{name} = 1\n',
        )
    registry = ProfileRegistry([tmp_path], builtin=False)
    assert suffix(registry, "p:model-5") == [
        "p", "p:mo*", "p:model-*", "p:model-[0-9]", "p:model-5",
    ]  # fmt: skip
    found = registry.for_model("p:model-5")
    assert found.base_system_prompt == "a"
    assert found.init_kwargs == {"max_tokens": 1, "a": 1, "b": 1, "c": 1, "d": 1, "h": 1}
    assert suffix(registry, "p:model-5-1")[-1] == "p:model-5-*"
    assert suffix(registry, "p:other") == ["p"]
    assert registry.for_model("r:model-5") == Profile()


def test_a_bare_claude_id_is_anthropics_in_files_and_in_names(tmp_path: Path) -> None:
    write(tmp_path, "mine", 'models = ["claude-opus-5"]\nsystem_prompt_suffix = "Yes."\n')
    registry = ProfileRegistry([tmp_path], builtin=False)
    for name in ("claude-opus-5", "anthropic:claude-opus-5"):
        assert suffix(registry, name) == ["Yes."]
    assert registry.for_model("claude-opus-5-5") == Profile()


@pytest.mark.parametrize("spelling", [*ALIASES, "Google_GenAI", "MistralAI"])
def test_any_spelling_of_a_vendor_is_understood_in_files_and_in_names(
    spelling: str, tmp_path: Path
) -> None:
    usual = canonical_name(spelling)
    assert usual in VENDORS
    for key in (spelling, f"{spelling}:m*"):
        write(tmp_path, "mine", f'models = ["{key}"]\nexcluded_tools = ["a"]')
        profiles = ProfileRegistry([tmp_path], builtin=False)
        for name in (f"{spelling}:m1", f"{usual}:m1"):
            assert profiles.for_model(name).excluded_tools == ("a",), (key, name)
        assert profiles.for_model("anthropic:m1") == Profile()


def test_later_directories_win_and_a_file_of_the_same_name_replaces(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    narrow = 'models = ["p:model"]\nbase_system_prompt = "{}"\nsystem_prompt_suffix = "{}"\n'
    write(first, "narrow", narrow.format("first", "narrow, first"))
    wide = 'models = ["p"]\nbase_system_prompt = "second"\nsystem_prompt_suffix = "wide"\n'
    write(second, "wide", wide)
    both = ProfileRegistry([first, second])
    assert both.for_model("p:model").base_system_prompt == "second"
    assert suffix(both, "p:model") == ["narrow, first", "wide"]
    write(second, "narrow", narrow.format("newer", "narrow, newer"))
    both = ProfileRegistry([first, second])
    assert suffix(both, "p:model") == ["wide", "narrow, newer"]


def test_an_empty_file_of_its_name_removes_a_built_in_profile(tmp_path: Path) -> None:
    write(tmp_path, "anthropic", 'models = ["anthropic"]\n')
    before, after = ProfileRegistry(), ProfileRegistry([tmp_path])
    assert before.for_model("anthropic:claude-sonnet-5-5") != Profile()
    assert after.for_model("anthropic:claude-sonnet-5-5") == Profile()


@pytest.mark.parametrize("model", get_args(anthropic_models.Model.__args__[0]))
def test_every_known_claude_model_has_a_lean_profile(model: str) -> None:
    profile = profile_for(f"anthropic:{model}")
    assert 50 < len(profile.system_prompt_suffix) < 400
    AnthropicModel(model, **profile.init_kwargs)


def test_a_family_has_a_word_of_its_own() -> None:
    said = {
        profile_for(f"claude-{name}-5").system_prompt_suffix for name in ("opus", "sonnet", "haiku")
    }
    assert len(said) == 3
    assert len(list(BUILTIN.glob("*.toml"))) == len(ProfileRegistry().profiles)


def test_profiles_in_code_are_checked_too() -> None:
    with pytest.raises(AgentBuildError, match="excluded_middleware names 'Filesystem"):
        Profile(excluded_middleware=("FilesystemMiddleware",))
    with pytest.raises(AgentBuildError, match="extra_middleware names 'SubAgent"):
        Profile(extra_middleware={"SubAgentMiddleware": {}})


def test_exclusions_add_up_and_single_facts_of_the_subagent_are_replaced() -> None:
    general = Profile(
        excluded_tools=("a", "b"),
        excluded_middleware=("TodoListMiddleware",),
        general_purpose_subagent=GeneralPurpose(enabled=False, description="general"),
    )
    specific = Profile(
        excluded_tools=("b", "c"),
        base_system_prompt="",
        general_purpose_subagent=GeneralPurpose(enabled=True),
    )
    both = general.refined(specific)
    assert both.excluded_tools == ("a", "b", "c")
    assert both.excluded_middleware == ("TodoListMiddleware",)
    assert both.base_system_prompt == ""
    assert both.general_purpose_subagent == GeneralPurpose(True, "general")
