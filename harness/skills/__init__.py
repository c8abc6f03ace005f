"""Skills: folders with a SKILL.md, loaded when they are needed."""
