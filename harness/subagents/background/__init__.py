"""Subagents that work in the background.

`launcher` is the way in: it starts, steers and looks after tasks. A task is a run of its own
(`tasks`) on a thread of its own (`threads`), which an engine carries (`engine`, `local_runs`) when
it is its turn (`lines`, `carrier`). What its caller is told and given is in `news` and `results`.
"""
