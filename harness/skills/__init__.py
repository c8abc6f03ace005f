"""Skills: folders with a SKILL.md, loaded when they are needed."""

from harness.skills.definitions import SKILL_FILE, Skill, SkillFile, load_skill
from harness.skills.registry import SkillRegistry, UnknownSkill

__all__ = ["SKILL_FILE", "Skill", "SkillFile", "SkillRegistry", "UnknownSkill", "load_skill"]
