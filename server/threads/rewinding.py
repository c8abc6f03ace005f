"""Rewinding of threads to an earlier state, files on disk included, and reading of their files.

Both work outside runs. Files are read under the same rules as with `read_file`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from ...harness._internal.records import changed, record
from ...harness.agent import Agent
from ...harness.backends.base import Backend, FileError, Restorable
from ...harness.backends.transfer import runtime_between_calls
from ...harness.checkpoint.base import Batch, Checkpointer
from ...harness.errors import UnknownCheckpoint
from ...harness.loop.run.redacted_changes import journal_between_runs
from ...harness.middleware.stack import Placed
from ...harness.policy import CallAuthorization, Verdict, strictest
from ...harness.policy.command_path_access import FILE_WRITERS, path_verdict
from ...harness.policy.composite import Caller
from ...harness.redaction.rules import Rule
from ...harness.state.channels import State
from ...harness.tools.tool import ToolRuntime
from ..auth.caller import current_caller
from ..results import unknown
from ..settings.definition import definition_of
from ..settings.settings import Settings

__all__ = [
    "Rewound",
    "guarded_files",
    "no_checkpoint",
    "reading_policy",
    "reading_runtime",
    "redaction_of",
    "rewind",
]


_NAMED = 5
"""The most files that an error names."""


@record
class Rewound:
    """Result of a rewind.

    Attributes:
        checkpoint_id: The thread's newest checkpoint now.
        files: Paths that were put back, on disk or in the thread.
        left: Paths on disk that undone steps had changed, and that were not put back.
    """

    checkpoint_id: str
    files: list[str]
    left: list[str]

    def about_files(self) -> str:
        """Return a text about the files that were put back or not."""
        put_back = f"Files put back: {', '.join(self.files) or 'none had changed'}."
        left = f"Files on disk left as they are: {', '.join(self.left)}."
        if not self.left:
            return put_back
        return f"{put_back}\n{left}" if self.files else left


async def no_checkpoint(
    journal: Checkpointer, thread_id: str, checkpoint_id: str, advice: str
) -> UnknownCheckpoint:
    """Return the error for an unknown checkpoint, with similar ids."""
    known = [one.id for one in await journal.history(thread_id, limit=50)]
    owner = f"Thread {thread_id!r} has"
    return UnknownCheckpoint(unknown("checkpoint", checkpoint_id, known, advice, owner=owner))


async def rewind(
    agent: Agent,
    backend: Backend,
    thread_id: str,
    checkpoint_id: str,
    *,
    run_id: str,
    force: bool,
    advice: str,
    rules: Sequence[Rule] | None = None,
) -> Rewound:
    """Fork the journal to a checkpoint and put files back; the caller must hold the thread.

    Args:
        agent: The agent of the thread.
        backend: The backend of its files.
        thread_id: The thread.
        checkpoint_id: The checkpoint to go back to.
        run_id: Id under which the changes of files are recorded.
        force: Put files back even if somebody else changed them since, and skip files that the
            policy guards, that cannot be put back, or whose directory is unknown.
        advice: How to find checkpoints, for the error.
        rules: The redaction rules for the contents of files that are recorded; by default those of
            the agent.

    Raises:
        UnknownCheckpoint: There is no such checkpoint; nothing was done.
        FileError: A file cannot be put back: the policy guards it, somebody changed it, or its
            directory is unknown. Nothing was done.
    """
    journal = agent.checkpointer
    target = await journal.load(thread_id, checkpoint_id=checkpoint_id)
    if target is None:
        raise await no_checkpoint(journal, thread_id, checkpoint_id, advice)
    before = await _files(agent, thread_id)
    changes = await journal.file_changes(thread_id, target.checkpoint.seq)
    guarded = guarded_files(agent, {one.path for one in changes})
    if guarded and not force:
        raise _refused(guarded)
    able = backend if isinstance(backend, Restorable) else None
    mine = [
        one
        for one in changes
        if able is not None and one.path not in guarded and able.can_restore(one.path)
    ]
    left = sorted({one.path for one in changes} - {one.path for one in mine})
    if left and not force:
        raise _no_root(left)
    restored: list[str] = []
    rules = agent.definition.states.rules if rules is None else rules
    if able is not None:
        left += await able.require_restorable(mine, force=force)
        restored = await able.restore(
            mine,
            thread_id=thread_id,
            run_id=run_id,
            checkpointer=journal_between_runs(journal, rules),
            force=force,
        )
    fork = await agent.fork(thread_id, checkpoint_id)
    after = await _files(agent, thread_id)
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    return Rewound(fork.id, [*restored, *changed], sorted(left))


def redaction_of(settings: Settings) -> Sequence[Rule]:
    """Return the redaction rules of an agent file, without building its agent."""
    described = definition_of(settings)
    given = () if described is None else described.parts.middleware
    made = [one.middleware if isinstance(one, Placed) else one for one in given]
    return [rule for one in made for rule in one.redaction]


def guarded_files(agent: Agent, paths: Collection[str]) -> Mapping[str, Verdict]:
    """Return the files among these that agents may not write, with the reason."""
    policy, tools = agent.definition.pipeline.policy, agent.definition.tools
    if not policy.reads_paths:
        return {}
    who = Caller(agent=(agent.name,), principal=current_caller.get().principal)
    found = {
        path: strictest(
            path_verdict(policy, name, path, tools.get(name), **who) for name in FILE_WRITERS
        )
        for path in sorted(paths)
    }
    return {path: verdict for path, verdict in found.items() if verdict.action != "allow"}


def _refused(guarded: Mapping[str, Verdict]) -> FileError:
    path, verdict = next(iter(guarded.items()))
    return FileError(
        "permission_denied",
        path,
        f"files on disk that the policy guards were changed since: {_names([*guarded])} "
        f"({verdict.reason}). Nothing was done. To leave them as they are and put back the rest, "
        "repeat with force. To put them back as well, a person can run `deep-agent-mcp threads "
        "rewind`.",
    )


def _names(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more


def _no_root(paths: Sequence[str]) -> FileError:
    return FileError(
        "changed",
        paths[0],
        f"files on disk were changed since: {_names(paths)}, but their directory is not known. "
        "Nothing was done. To put them back, pass the server's --root DIR; to leave them as they "
        "are, repeat with force.",
    )


async def _files(agent: Agent, thread_id: str) -> Mapping[str, Any]:
    """Return the files that live in the thread itself."""
    state = await agent.get_state(thread_id)
    return cast("Mapping[str, Any]", state.values.get("files") or {})


def reading_policy(agent: Agent, principal: str) -> CallAuthorization | None:
    """Return the policy's decisions about paths for `read_file`, if it has rules for paths."""
    definition = agent.definition
    reader = definition.tools.get("read_file")
    policy = definition.pipeline.policy
    if reader is None or not policy.reads_paths:
        return None
    return CallAuthorization(policy, reader.name, {}, reader, reader, (agent.name,), principal)


def reading_runtime(thread_id: str, state: State, policy: CallAuthorization | None) -> ToolRuntime:
    """Return the runtime with which a backend opens a thread's files for reading."""
    return changed(runtime_between_calls(thread_id, state, _NoJournal()), policy=policy)


class _NoJournal:
    async def commit(self, batch: Batch) -> None:
        raise RuntimeError("no call is running, so nothing can be stored")
