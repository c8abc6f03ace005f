"""Which of several profiles has the last word."""

from pathlib import Path

from deep_agent_mcp.harness.profiles import ProfileRegistry


def test_a_profile_is_as_specific_as_the_closest_of_its_names(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        'models = ["test", "test:large-2"]\nbase_system_prompt = "exact"\n'
    )
    (tmp_path / "b.toml").write_text('models = ["test:large-*"]\nbase_system_prompt = "glob"\n')
    profiles = ProfileRegistry([tmp_path], builtin=False)
    assert profiles.for_model("test:large-2").base_system_prompt == "exact"
    assert profiles.for_model("test:large-3").base_system_prompt == "glob"
    assert profiles.for_model("test:small").base_system_prompt == "exact"
