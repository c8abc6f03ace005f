"""Subagents that work in the background.

`launcher` is the way in: it starts, steers and looks after tasks. A task is a run of its own
(`tasks`) on a thread of its own (`threads`), which an engine carries (`engine`, `local_runs`) when
it is its turn (`task_runner`). `notifications` holds what its caller learns and receives.
"""
