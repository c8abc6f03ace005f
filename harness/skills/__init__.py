"""Skills: folders with a SKILL.md, loaded when they are needed."""

from .definitions import SKILL_FILE, Skill, SkillFile, load_skill
from .registry import SkillRegistry, UnknownSkill

__all__ = ["SKILL_FILE", "Skill", "SkillFile", "SkillRegistry", "UnknownSkill", "load_skill"]
