"""What a profile makes of a deep agent and its subagents."""

from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.harness.deep_agent import SYSTEM_PROMPT, create_deep_agent
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.middleware.models.provider_features import PromptCachingMiddleware
from deep_agent_mcp.harness.middleware.subagents import SubAgentMiddleware
from deep_agent_mcp.harness.models.anthropic import AnthropicModel
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.profiles import GeneralPurpose, Profile, ProfileRegistry, profile_for
from deep_agent_mcp.harness.skills import SkillRegistry
from deep_agent_mcp.harness.subagents.registry import SubAgentRegistry
from deep_agent_mcp.harness.tools.tool import tool
from tests.fake_anthropic import FakeAnthropic
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

OPUS = "anthropic:claude-opus-5"


class Named(Turns):
    """Plays turns under the name of another model."""

    def __init__(self, name: str, *turns: Any) -> None:
        super().__init__(*turns)
        self.name = name


@tool
async def weather(city: str) -> str:
    """Say the weather."""
    return city


async def asked(profile: Profile | ProfileRegistry | None, **options: Any) -> ChatRequest:
    """The request of a deep agent with this profile."""
    model = Turns(says("hi"))
    await create_deep_agent(model, [weather], profile=profile, **options).ainvoke("hello")
    return model.requests[0]


def prompt(request: ChatRequest) -> dict[str, str]:
    return {section.name: section.text for section in request.system}


def tools(request: ChatRequest) -> dict[str, str]:
    return {one.name: one.description for one in request.tools}  # type: ignore[union-attr]


def stack(agent: Any) -> list[str]:
    return [one.name for one in agent.definition.middleware]


def write(directory: Path, name: str, *lines: str) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text("\n".join(lines), encoding="utf-8")


# --- the prompt ------------------------------------------------------------------------------


async def test_the_prompt_is_base_profile_and_the_authors_own_words() -> None:
    profile = Profile(base_system_prompt="Base.", system_prompt_suffix="Suffix.")
    request = await asked(profile, system_prompt="Own.")
    assert [*prompt(request).items()][:3] == [
        ("base", "Base."), ("profile", "Suffix."), ("agent", "Own."),
    ]  # fmt: skip


async def test_without_a_profile_the_base_prompt_stands_alone() -> None:
    request = await asked(None)
    assert prompt(request)["base"] == SYSTEM_PROMPT
    assert not {"profile", "agent"} & prompt(request).keys()


async def test_an_empty_base_prompt_leaves_none() -> None:
    assert "base" not in prompt(await asked(Profile(base_system_prompt="")))


async def test_the_profile_is_found_by_the_models_name() -> None:
    model = Named(OPUS, says("hi"))
    await create_deep_agent(model).ainvoke("hello")
    assert prompt(model.requests[0])["profile"] == profile_for(OPUS).system_prompt_suffix


async def test_a_directory_of_ones_own_is_looked_up_by_the_models_name(tmp_path: Path) -> None:
    write(tmp_path, "a.toml", 'models = ["turns"]', 'system_prompt_suffix = "Mine."')
    assert prompt(await asked(ProfileRegistry([tmp_path])))["profile"] == "Mine."


# --- tools -----------------------------------------------------------------------------------


async def test_tools_get_other_descriptions_wherever_they_come_from() -> None:
    profile = Profile(
        tool_description_overrides={"weather": "Ask the sky.", "task": "Ask another.", "no": "x"}
    )
    before, after = tools(await asked(None)), tools(await asked(profile))
    assert after == {**before, "weather": "Ask the sky.", "task": "Ask another."}


async def test_excluded_tools_are_neither_offered_nor_run() -> None:
    model = Turns(says("", call("1", "weather", city="x"), call("2", "ls")), says("done"))
    profile = Profile(excluded_tools=("weather", "*_file"))
    result = await create_deep_agent(model, [weather], profile=profile).ainvoke("go")
    assert not {"weather", "read_file", "write_file", "edit_file"} & tools(model.requests[0]).keys()
    told = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert [one.status for one in told] == ["error", "success"]
    assert "weather is not available to this agent" in told[0].text


@pytest.mark.parametrize(
    ("name", "section"), [("task", "subagents"), ("skill", "skills"), ("write_todos", "todos")]
)
async def test_what_teaches_an_excluded_tool_goes_with_it(
    name: str, section: str, tmp_path: Path
) -> None:
    write(tmp_path / "drawing", "SKILL.md", "---", "name: drawing", "description: D.", "---", "D.")
    skills = SkillRegistry([tmp_path])
    assert section in prompt(await asked(None, skills=skills))
    request = await asked(Profile(excluded_tools=(name,)), skills=skills)
    assert section not in prompt(request)
    assert name not in tools(request)


# --- middleware ------------------------------------------------------------------------------


def test_middleware_is_left_out_replaced_in_its_place_and_added_after_the_callers() -> None:
    class Own(AgentMiddleware):
        pass

    options: dict[str, Any] = {"middleware": [Own()], "interrupt_on": {"ls": True}}
    profile = Profile(
        excluded_middleware=("TodoListMiddleware", "RepeatGuardMiddleware"),
        extra_middleware={
            "PromptCachingMiddleware": {"ttl": "1h"},
            "UnsupportedContentMiddleware": {},
        },
    )
    before = stack(create_deep_agent(Turns(), **options))
    agent = create_deep_agent(Turns(), profile=profile, **options)
    expected = [
        name for name in before if name not in ("TodoListMiddleware", "RepeatGuardMiddleware")
    ]
    expected.insert(expected.index("Own") + 1, "UnsupportedContentMiddleware")
    assert stack(agent) == expected
    caching = agent.definition.middleware[-1]
    assert isinstance(caching, PromptCachingMiddleware)
    assert caching.ttl == "1h"


def test_the_callers_own_middleware_is_not_touched() -> None:
    own = PromptCachingMiddleware(ttl="1h")
    profile = Profile(
        excluded_middleware=("PromptCachingMiddleware",),
        extra_middleware={"PromptCachingMiddleware": {"ttl": "5m"}},
    )
    assert (
        own in create_deep_agent(Turns(), middleware=[own], profile=profile).definition.middleware
    )


def test_extra_middleware_that_cannot_be_made_says_so() -> None:
    profile = Profile(extra_middleware={"MemoryMiddleware": {}})
    with pytest.raises(AgentBuildError, match=r"MemoryMiddleware\(\) cannot be made: .*'files'"):
        create_deep_agent(Turns(), profile=profile)


async def test_a_thread_goes_on_under_a_profile_that_leaves_things_out() -> None:
    first = create_deep_agent(
        Turns(says("", call("1", "write_todos", todos=[{"content": "a"}])), says("done"))
    )
    await first.ainvoke("go", thread_id="t")
    model = Turns(*[says("again")] * 3)
    second = create_deep_agent(
        model,
        checkpointer=first.checkpointer,
        profile=Profile(excluded_middleware=("TodoListMiddleware", "SummarizationMiddleware")),
    )
    assert (await second.ainvoke("more", thread_id="t")).run.answer == "again"
    assert "write_todos" not in tools(model.requests[0])


# --- model settings --------------------------------------------------------------------------


async def test_model_settings_reach_the_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        tmp_path,
        "mine.toml",
        'models = ["anthropic:claude-opus-*"]',
        "[init_kwargs]",
        "max_tokens = 9_000",
        'thinking = { type = "adaptive" }',
    )
    async with FakeAnthropic(["Hello."]) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        agent = create_deep_agent(OPUS, profile=ProfileRegistry([tmp_path]))
        assert (await agent.ainvoke("hello")).run.answer == "Hello."
        await agent.definition.model.aclose()
    assert api.recorded[0].refused is None
    assert api.requests[0]["max_tokens"] == 9_000
    assert api.requests[0]["thinking"] == {"type": "adaptive"}


# --- subagents -------------------------------------------------------------------------------


def subagents_of(agent: Any) -> SubAgentMiddleware:
    return next(one for one in agent.definition.middleware if isinstance(one, SubAgentMiddleware))


def texts(agent: Any) -> dict[str, str]:
    return {one.name: one.text for one in agent.definition.system}


def write_subagent(directory: Path, name: str, *more: str) -> None:
    head = ("---", f"name: {name}", "description: Reads.", *more, "---")
    write(directory, f"{name}.md", *head, "You read.")


def test_a_subagent_with_another_model_gets_that_models_profile(tmp_path: Path) -> None:
    write_subagent(tmp_path / "agents", "same")
    write_subagent(tmp_path / "agents", "small", "model: claude-haiku-5-5")
    write(
        tmp_path / "profiles",
        "mine.toml",
        'models = ["claude-haiku-*"]',
        'base_system_prompt = "Not for subagents."',
        'excluded_tools = ["glob"]',
        "[init_kwargs]",
        "max_tokens = 700",
    )
    registry = ProfileRegistry([tmp_path / "profiles"])
    main = create_deep_agent(
        Named(OPUS), subagents=SubAgentRegistry(tmp_path / "agents"), profile=registry
    )
    same, small = (subagents_of(main).agent(name) for name in ("same", "small"))
    opus, haiku = (registry.for_model(name) for name in (OPUS, "claude-haiku-5-5"))
    assert texts(main)["profile"] == opus.system_prompt_suffix
    assert texts(same) == {"profile": opus.system_prompt_suffix, "agent": "You read."}
    assert texts(small) == {"profile": haiku.system_prompt_suffix, "agent": "You read."}
    assert "ToolExclusionMiddleware" in stack(small)
    assert "ToolExclusionMiddleware" not in stack(same)
    assert isinstance(small.definition.model, AnthropicModel)
    assert same.definition.model is main.definition.model


def test_a_profile_given_as_such_is_for_the_agents_own_model(tmp_path: Path) -> None:
    write_subagent(tmp_path, "small", "model: claude-haiku-5")
    main = create_deep_agent(
        Turns(), subagents=SubAgentRegistry(tmp_path), profile=Profile(system_prompt_suffix="Mine.")
    )
    general, small = (subagents_of(main).agent(name) for name in ("general-purpose", "small"))
    assert texts(general)["profile"] == "Mine."
    assert texts(small)["profile"] == profile_for("claude-haiku-5").system_prompt_suffix


async def test_the_general_purpose_subagent_can_be_described_anew() -> None:
    general = GeneralPurpose(description="Does chores.", system_prompt="Do chores.")
    model = Turns(
        lambda request: (
            says("", call("1", "task", description="x"))
            if request.agent == "main"
            else says("report")
        ),
        says("done"),
    )
    profile = Profile(general_purpose_subagent=general)
    await create_deep_agent(model, profile=profile).ainvoke("go")
    main, inner = model.requests[:2]
    assert prompt(main)["subagents"].endswith("- general-purpose: Does chores.")
    assert prompt(inner)["agent"] == "Do chores."


OFF = Profile(general_purpose_subagent=GeneralPurpose(enabled=False))


async def test_without_it_and_others_there_is_no_way_to_delegate() -> None:
    request = await asked(OFF)
    assert "task" not in tools(request)
    assert "subagents" not in prompt(request)


async def test_without_it_others_can_still_come(tmp_path: Path) -> None:
    registry = SubAgentRegistry(tmp_path)
    model = Turns(says("", call("1", "task", description="x")), says("done"), says("again"))
    agent = create_deep_agent(model, subagents=registry, profile=OFF)
    result = await agent.ainvoke("go", thread_id="t")
    refused = next(one for one in result.state["messages"] if isinstance(one, ToolMessage))
    assert "there is no subagent 'general-purpose'" in refused.text
    assert prompt(model.requests[0])["subagents"].endswith("(none at present)")
    write_subagent(tmp_path, "reader")
    registry.reload()
    await agent.ainvoke("and now?", thread_id="t")
    assert prompt(model.requests[-1])["subagents"].endswith("(none at present)")
    assert model.requests[-1].messages[-1].text.endswith("New:\n- reader: Reads.")


async def test_a_general_purpose_subagent_of_ones_own_stays(tmp_path: Path) -> None:
    write_subagent(tmp_path, "general-purpose")
    request = await asked(OFF, subagents=SubAgentRegistry(tmp_path))
    assert prompt(request)["subagents"].endswith("- general-purpose: Reads.")
