"""Redacted changes: the old contents of changed files, stored without what rules find in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..._internal.records import changed, record
from ...checkpoint.base import REDACTED, Batch, FileChange
from ...redaction.rules import Keys, Redactor, Rule
from ...tools.runtime import JournalWriter

__all__ = ["RedactedChanges", "clean_change", "journal_between_runs"]


def clean_change(change: FileChange, redactor: Redactor | None) -> FileChange:
    """Return the old state of a file with redacted content.

    Redacted content must not be restored, so the file counts as changed by somebody else.
    """
    if redactor is None or change.before is None:
        return change
    text = change.before.decode("utf-8", "surrogateescape")
    cleaned = redactor(text)
    if cleaned == text:
        return change
    before = cleaned.encode("utf-8", "surrogateescape")
    return replace(change, before=before, after_digest=REDACTED)


@record
class RedactedChanges:
    """A journal that redacts the old contents of files that are changed between runs."""

    journal: JournalWriter
    redactor: Redactor

    async def commit(self, batch: Batch) -> None:
        """See `JournalWriter`."""
        changes = [clean_change(one, self.redactor) for one in batch.file_changes]
        await self.journal.commit(changed(batch, file_changes=changes))


def journal_between_runs(journal: JournalWriter, rules: Sequence[Rule]) -> JournalWriter:
    """Return the journal for changes of files outside of runs, redacted by an agent's rules.

    Values are removed whatever the strategy: old contents with them are never restored.
    """
    ours = [replace(one, strategy="redact") for one in rules if "tools" in one.places]
    if not ours:
        return journal
    return RedactedChanges(journal, Redactor(ours, Keys(), lenient=True))
