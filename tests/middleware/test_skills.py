"""Skills in an agent: the pinned listing, the tool, and notices of changes."""

from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.errors import ToolError
from deep_agent_mcp.harness.messages.message import HumanMessage, ToolMessage
from deep_agent_mcp.harness.middleware.skills import SkillsMiddleware
from deep_agent_mcp.harness.skills import SkillRegistry
from tests.loop.models import Turns, call, says
from tests.middleware.hooks import Thread
from tests.skills.folders import save_by_rename, skill_text, write_skill

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("looks_at_files_each_time")]


async def use(middleware: SkillsMiddleware, **args: Any) -> str:
    (tool,) = middleware.tools
    result = await tool.function(tool.validate(args), None)  # type: ignore[arg-type]
    assert isinstance(result, str)
    return result


async def test_names_and_descriptions_are_listed_in_the_prompt(tmp_path: Path):
    write_skill(tmp_path, "b", description="Second.")
    write_skill(tmp_path, "a", description=">\n  First\n  of two.\n")
    thread = Thread(SkillsMiddleware(SkillRegistry([tmp_path])))
    await thread.start()
    section = await thread.section()
    assert section is not None
    assert section.endswith("- a: First of two.\n- b: Second.")


async def test_the_listing_stays_as_it_was_and_changes_are_announced_once(tmp_path: Path):
    kept = write_skill(tmp_path, "kept", body="one")
    gone = write_skill(tmp_path, "gone")
    registry = SkillRegistry([tmp_path])
    thread = Thread(SkillsMiddleware(registry))
    await thread.start()
    before = await thread.section()
    assert await thread.notice() is None

    write_skill(tmp_path, "fresh", description="Brand new.")
    gone.unlink()
    save_by_rename(kept, skill_text("kept", body="two"))
    registry.reload()
    notice = await thread.notice()
    assert notice is not None
    assert notice.startswith("skills: [Notice from the system")
    assert "New skills:\n- fresh: Brand new." in notice
    assert "read them again before you rely on them:\n- kept: " in notice
    assert "No longer there: gone." in notice
    assert await thread.notice() is None
    assert await thread.section() == before


async def test_a_file_that_breaks_and_is_mended_is_announced(tmp_path: Path):
    path = write_skill(tmp_path, "a")
    registry = SkillRegistry([tmp_path])
    thread = Thread(SkillsMiddleware(registry))
    await thread.start()
    save_by_rename(path, "broken")
    registry.reload()
    notice = await thread.notice() or ""
    assert f"A skill file has a problem: {path}:1: the file must begin" in notice
    assert "Changed skills" not in notice
    assert await thread.notice() is None
    save_by_rename(path, skill_text("a"))
    registry.reload()
    assert f"The problem with {path} is fixed." in (await thread.notice() or "")


async def test_a_change_that_is_taken_back_before_the_next_call_is_not_announced(tmp_path: Path):
    path = write_skill(tmp_path, "a", body="one")
    registry = SkillRegistry([tmp_path])
    thread = Thread(SkillsMiddleware(registry))
    await thread.start()
    for body in ("two", "one"):
        save_by_rename(path, skill_text("a", body=body))
        registry.reload()
    assert await thread.notice() is None


async def test_without_skills_there_is_no_section_but_the_tool_stays(tmp_path: Path):
    registry = SkillRegistry([tmp_path])
    middleware = SkillsMiddleware(registry)
    thread = Thread(middleware)
    await thread.start()
    assert await thread.section() is None
    assert [tool.name for tool in middleware.tools] == ["skill"]
    assert await use(middleware) == "There are no skills."
    write_skill(tmp_path, "a", description="New.")
    registry.reload()
    assert "- a: New." in (await thread.notice() or "")
    assert await thread.section() is None


async def test_an_agent_may_be_limited_to_some_skills(tmp_path: Path):
    write_skill(tmp_path, "a")
    write_skill(tmp_path, "b")
    write_skill(tmp_path, "c", "broken")
    registry = SkillRegistry([tmp_path])
    middleware = SkillsMiddleware(registry, names=("a", "later"))
    thread = Thread(middleware)
    await thread.start()
    assert "- b" not in (await thread.section() or "")
    with pytest.raises(ToolError, match=r"no skill 'b'.*Available: a\."):
        await use(middleware, name="b")
    assert "broken" not in await use(middleware)
    write_skill(tmp_path, "d")
    registry.reload()
    assert await thread.notice() is None
    write_skill(tmp_path, "later")
    registry.reload()
    assert "- later: " in (await thread.notice() or "")


async def test_the_tool_returns_body_folder_and_other_files(tmp_path: Path):
    path = write_skill(tmp_path, "a", body="# How\n\nDo this.")
    (path.parent / "references").mkdir()
    (path.parent / "references" / "x.md").write_text("More.")
    middleware = SkillsMiddleware(SkillRegistry([tmp_path]))
    text = await use(middleware, name="a")
    assert f"Folder: {path.parent}\n" in text
    assert "- references/x.md (5 bytes)" in text
    assert text.endswith("\n\n# How\n\nDo this.")
    assert "SKILL.md" not in text
    assert await use(middleware, name="a", file="./references/x.md") == "More."
    assert await use(middleware, name="a", file="references\\x.md") == "More."


async def test_the_tool_lists_skills_and_problems_without_a_name(tmp_path: Path):
    write_skill(tmp_path, "a", description="First.")
    broken = write_skill(tmp_path, "b", "broken")
    text = await use(SkillsMiddleware(SkillRegistry([tmp_path])))
    assert text.startswith("Skills:\n- a: First.\n\nSkill files with problems:\n- ")
    assert f"{broken}:1: " in text


async def test_an_unknown_skill_is_answered_with_the_names_there_are(tmp_path: Path):
    write_skill(tmp_path, "planning")
    with pytest.raises(ToolError, match=r"Did you mean 'planning'\? Available: planning\."):
        await use(SkillsMiddleware(SkillRegistry([tmp_path])), name="plan")


@pytest.mark.parametrize(
    "file",
    ["../b/SKILL.md", "/etc/passwd", "references/../../b/SKILL.md", "out.md", ".hidden", "nope.md"],
)
async def test_only_files_of_the_skill_itself_can_be_read(tmp_path: Path, file: str):
    source = tmp_path / "skills"
    path = write_skill(source, "a")
    write_skill(source, "b")
    (tmp_path / "secret").write_text("secret")
    path.with_name("out.md").symlink_to(tmp_path / "secret")
    path.with_name(".hidden").write_text("secret")
    with pytest.raises(ToolError, match=r"no file .*Available: SKILL\.md\."):
        await use(SkillsMiddleware(SkillRegistry([source])), name="a", file=file)


async def test_a_file_that_became_a_link_outwards_is_not_read(tmp_path: Path):
    path = write_skill(tmp_path / "skills", "a").with_name("x.md")
    path.write_text("fine")
    (tmp_path / "secret").write_text("secret")
    middleware = SkillsMiddleware(SkillRegistry([tmp_path / "skills"]))
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(ToolError, match="leads out"):
        await use(middleware, name="a", file="x.md")
    path.unlink()
    with pytest.raises(ToolError, match="cannot be read"):
        await use(middleware, name="a", file="x.md")


async def test_a_file_that_is_not_text_is_refused_with_its_path(tmp_path: Path):
    path = write_skill(tmp_path, "a").with_name("x.bin")
    path.write_bytes(b"\xff\x00")
    with pytest.raises(ToolError, match="not text"):
        await use(SkillsMiddleware(SkillRegistry([tmp_path])), name="a", file="x.bin")


@pytest.mark.parametrize("text", ["".join(f"line {n}\n" for n in range(5_000)), "x" * 30_000])
async def test_long_files_come_in_pages_that_add_up(tmp_path: Path, text: str):
    write_skill(tmp_path, "a").with_name("x.md").write_text(text)
    middleware = SkillsMiddleware(SkillRegistry([tmp_path]))
    pages: list[str] = []
    offset = 0
    while True:
        answer = await use(middleware, name="a", file="x.md", offset=offset)
        assert len(answer) <= 9_000
        page, found, rest = answer.partition("\n[Characters ")
        pages.append(page)
        if not found:
            break
        assert 'skill(name="a", file="x.md", offset=' in rest
        offset = int(rest.rpartition("offset=")[2].removesuffix(")]"))
    assert "".join(pages) == text
    with pytest.raises(ToolError, match="past the end"):
        await use(middleware, name="a", file="x.md", offset=len(text))


async def test_a_real_agent_loads_a_skill_and_hears_of_a_change_at_its_next_call(tmp_path: Path):
    path = write_skill(tmp_path, "a", body="Secret word: one.")
    registry = SkillRegistry([tmp_path])

    def edits(_: Any):
        save_by_rename(path, skill_text("a", body="Secret word: two."))
        registry.reload()
        return says("", call("c1", "skill", name="a"))

    model = Turns(edits, says("done"), says("again"))
    agent = create_agent(model, middleware=[SkillsMiddleware(registry)])
    await agent.ainvoke("go", thread_id="thr_1")
    transcript = model.requests[1].messages
    assert any(isinstance(one, ToolMessage) and "word: two" in one.text for one in transcript)
    assert [one.source for one in transcript if isinstance(one, HumanMessage) and one.source] == [
        "skills"
    ]
    assert model.requests[0].system == model.requests[1].system
    await agent.ainvoke("more", thread_id="thr_1")
    assert len(model.requests[2].messages) == len(transcript) + 2
