"""Tool calls: a step of them, the phases each passes, and subagents below them."""
