"""Subagents that work in the background.

Start with `launcher`: it starts, steers and supervises tasks. A task is a separate run (`tasks`) on
its own thread, which an engine executes (`engine`, `local_tasks`) when it is its turn
(`task_runner`). `notifications` builds the news and results for its caller.
"""
