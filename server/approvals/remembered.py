"""Remembered decisions: rules that a person made from an approval, for later calls.

A rule allows calls of one tool by one agent for which the policy would ask. It never allows calls
that the policy denies, or wants decided each time. It applies to one thread or to all threads of
its owner, until it is revoked. Rules are records of the journal, in a place for each owner that no
thread can have. They are signed with the server's key, so that write access to the journal, for
example by an import, is not enough to create a rule.
"""

from __future__ import annotations

import base64
import hmac
import json
import logging
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Literal, TypeAlias, cast

from pydantic import JsonValue, TypeAdapter, ValidationError

from ...harness._internal.records import record
from ...harness.checkpoint.base import Batch, Checkpointer, Interrupt
from ...harness.errors import HarnessError
from ...harness.messages.message import ToolCall, new_id
from ...harness.policy import PolicyError, Rule
from ...harness.policy.composite import CallPlace
from ...harness.policy.rules import RUNNERS
from ...harness.subagents.background.engine import parent_thread
from ...harness.tools.tool import Tool
from ..auth.caller import RULES_PREFIX, current_caller, current_client, owner_of
from ..settings.launch_rules import escaped
from .decisions import by_rule, canonical

__all__ = ["Match", "Remembered", "RememberedRule", "proposed", "require_own"]

MatchKind: TypeAlias = Literal["exact", "path", "below", "command", "any"]
MOST_RULES = 1_000
PROPOSAL_SECONDS = 600.0
"""How long a person may take before a proposed rule is stored."""

logger = logging.getLogger(__name__)


@record
class Match:
    """Which arguments a rule is about.

    Attributes:
        kind: `exact` for the same arguments, `path` for any with this path, `below` for any path in
            this directory, `command` for command lines with this start, `any` for all.
        value: The arguments as canonical JSON, the path, the directory, or the command.
    """

    kind: MatchKind
    value: str = ""


@record
class RememberedRule:
    """A decision that lasts.

    Attributes:
        id: Unguessable.
        owner: The owner of its threads, as in their ids; empty for the local user.
        tool: The tool's name.
        agent: Names of the agents from the main one to the one whose calls it allows, joined by
            `/`.
        match: The matching arguments.
        thread_id: The thread it is limited to, and ends with; empty for all.
        created_at: Unix time.
        by: The principal who decided; empty for the local user.
        client: The program they used.
        run_id: The run of the answered question.
        question_id: The answered question.
    """

    id: str
    owner: str
    tool: str
    agent: str
    match: Match
    thread_id: str
    created_at: float
    by: str
    client: str
    run_id: str
    question_id: str

    def covers(self, call: ToolCall, tool: Tool | None, place: CallPlace) -> bool:
        """Whether it allows a call."""
        names = [*place.agent_path[::2]]
        if call.name != self.tool or "/".join(names) != self.agent or not self._holds_on(place):
            return False
        match self.match.kind:
            case "exact":
                return canonical(call.args) == self.match.value
            case "any":
                return True
            case "path" | "below":
                glob = escaped(self.match.value)
                rule = Rule("allow", self.tool, path=f"{glob}/**" if self._is_below else glob)
            case "command":
                rule = Rule("allow", self.tool, command=_literal_command(self.match.value))
        return rule.matches(call.name, call.args, tool, agent=names)

    @property
    def _is_below(self) -> bool:
        return self.match.kind == "below"

    def _holds_on(self, place: CallPlace) -> bool:
        thread: str | None = place.thread_id
        while self.thread_id and thread is not None and thread != self.thread_id:
            thread = parent_thread(thread)  # of a background task
        return owner_of(place.run_id) == self.owner and thread is not None

    def says(self) -> str:
        """Return the rule in words."""
        what = {
            "exact": "with exactly these arguments",
            "path": f"on {self.match.value}",
            "below": f"on everything in {self.match.value or '/'}",
            "command": f"for commands that begin with {self.match.value!r}",
            "any": "with any arguments",
        }[self.match.kind]
        where = "on this thread" if self.thread_id else "on all your threads"
        return f"Let {self.agent} call {self.tool} {what}, {where}, without asking."


_RULE: TypeAdapter[RememberedRule] = TypeAdapter(RememberedRule)


class Remembered:
    """The rules of all owners.

    Args:
        journal: Where they are.
        key: Signs them; all servers of the journal have the same.
    """

    def __init__(self, journal: Checkpointer, key: bytes) -> None:
        self._journal = journal
        self._key = key

    async def of(self, owner: str) -> list[RememberedRule]:
        """Return an owner's valid rules, oldest first.

        Raises:
            HarnessError: The journal cannot be read.
        """
        found: list[RememberedRule] = []
        for one in await self._journal.interrupts(_place(owner)):
            rule = self._read(one)
            if rule is not None and rule.owner == owner and not one.answered:
                found.append(rule)
        return found

    async def add(self, rule: RememberedRule) -> None:
        """Store a rule, which applies from now on.

        Raises:
            HarnessError: There are too many, or the journal cannot be written; nothing was stored.
        """
        known = await self.of(rule.owner)
        if len(known) >= MOST_RULES:
            await self._end_some(known)
        data = cast("dict[str, JsonValue]", _RULE.dump_python(rule, mode="json"))
        place = _place(rule.owner)
        stored = Interrupt(
            id=rule.id,
            thread_id=place,
            ns="rules",
            step_id="",
            run_id=place,
            kind="decision",
            path=tuple(rule.agent.split("/")),
            message=rule.says(),
            payload={"rule": data, "signature": self._signature(data)},
            answer_schema={},
        )
        await self._journal.commit(Batch(place, interrupts=[stored]))

    async def _end_some(self, rules: Sequence[RememberedRule]) -> None:
        """Revoke rules about threads that are gone; lists do not show them.

        Raises:
            HarnessError: There are none.
        """
        ended = [one for one in rules if not await self.holds(one)]
        if not ended:
            raise HarnessError(
                f"There are {MOST_RULES} rules, the most allowed; nothing was stored."
                " Revoke some first."
            )
        revoked: dict[str, JsonValue] = {"revoked_by": "", "revoked_at": time.time()}
        answers = {one.id: revoked for one in ended}
        await self._journal.commit(Batch(_place(ended[0].owner), answers=answers))

    async def revoke(self, owner: str, rule_id: str, by: str) -> RememberedRule:
        """End a rule, and return it.

        Raises:
            HarnessError: There is no rule with this id, or the journal cannot be written.
        """
        rule = next((one for one in await self.of(owner) if one.id == rule_id), None)
        if rule is None:
            raise HarnessError(
                f"There is no rule {rule_id!r}; nothing was done. List the rules for their ids."
            )
        revoked: dict[str, JsonValue] = {"revoked_by": by, "revoked_at": time.time()}
        await self._journal.commit(Batch(_place(owner), answers={rule_id: revoked}))
        return rule

    async def cover(self, call: ToolCall, tool: Tool, place: CallPlace) -> bool:
        """Whether a rule allows a call; recorded in the thread if one does.

        Rules are read for each call that would need a decision, so revoking works at once.
        """
        try:
            rules = await self.of(owner_of(place.run_id))
            for rule in rules:
                if _safely(rule, call, tool, place) and await self.holds(rule):
                    note = by_rule(call, place, rule.id, rule.by, rule.client)
                    await self._journal.commit(Batch(place.thread_id, interrupts=[note]))
                    return True
        except HarnessError as error:
            logger.warning("remembered decisions were not used, so a person is asked: %s", error)
        return False

    async def holds(self, rule: RememberedRule) -> bool:
        """Whether a rule's thread is still there; another thread may have got the same id since.

        Raises:
            HarnessError: The journal cannot be read.
        """
        if not rule.thread_id:
            return True
        run = await self._journal.run(rule.run_id)
        return run is not None and run.thread_id == rule.thread_id

    def _read(self, stored: Interrupt) -> RememberedRule | None:
        data, signature = stored.payload.get("rule"), stored.payload.get("signature")
        if not isinstance(data, dict) or not isinstance(signature, str):
            return None
        if not hmac.compare_digest(
            signature.encode("utf-8", "replace"), self._signature(data).encode()
        ):
            logger.warning("a remembered decision was left out: it is not signed by this server")
            return None
        try:
            rule = _RULE.validate_python(data)
        except ValidationError:
            return None  # of another version
        return rule if rule.id == stored.id else None

    def seal(self, rule: RememberedRule) -> str:
        """Return a rule as a text that `unseal` knows again, for a client to bring back."""
        data = cast("dict[str, JsonValue]", _RULE.dump_python(rule, mode="json"))
        sealed = {"rule": data, "signature": self._signature(data, b"proposal")}
        return base64.urlsafe_b64encode(json.dumps(sealed).encode()).decode()

    def unseal(self, text: str) -> RememberedRule:
        """Return a rule that `seal` made not long ago.

        Raises:
            HarnessError: It is not from this server, or too old.
        """
        try:
            sealed = json.loads(base64.urlsafe_b64decode(text))
            data, signature = sealed["rule"], sealed["signature"]
            known = hmac.compare_digest(signature, self._signature(data, b"proposal"))
            rule = _RULE.validate_python(data)
        except (ValueError, TypeError, KeyError) as error:
            raise HarnessError(
                "That is not a proposal of this server; nothing was stored."
            ) from error
        if not known or time.time() > rule.created_at + PROPOSAL_SECONDS:
            raise HarnessError(
                "This proposal is no longer valid; nothing was stored. Ask for it again."
            )
        return rule

    def _signature(self, data: Mapping[str, JsonValue], what: bytes = b"rule") -> str:
        text = json.dumps(data, sort_keys=True).encode()
        return hmac.new(self._key, b"remembered %b\0%b" % (what, text), sha256).hexdigest()


def _place(owner: str) -> str:
    """Return the id under which an owner's rules are stored, in place of a thread and a run."""
    return f"{RULES_PREFIX}{owner}"


def _literal_command(words: str) -> str:
    """Return the pattern for command lines that begin with exactly these words.

    A call may quote a wildcard, as in `git '*'`. In a pattern, it would stand for any word.

    Raises:
        PolicyError: A quotation does not end within the words.
    """
    try:
        return shlex.join(map(escaped, shlex.split(words)))
    except ValueError as error:
        raise PolicyError(f"command {words!r}: {error}") from error


def _safely(rule: RememberedRule, call: ToolCall, tool: Tool, place: CallPlace) -> bool:
    try:
        return rule.covers(call, tool, place)
    except PolicyError:
        return False


def require_own(run_id: str) -> None:
    """Refuse to make a decision last for another user, who alone could see and revoke it.

    Raises:
        HarnessError: The run is not the caller's, though an admin may answer its questions.
    """
    if owner_of(run_id) != current_caller.get().owner:
        raise HarnessError(
            f"Run {run_id} is another user's, and only they can make a decision about it last. "
            "Nothing was stored. Approve this call alone."
        )


def proposed(question: Interrupt, tool: Tool | None) -> Sequence[RememberedRule]:
    """Return the rules that the caller's approval of a question may become, narrowest first.

    Each of them covers the call in question.
    """
    name = str(question.payload.get("tool"))
    args = cast("dict[str, JsonValue]", question.payload.get("args") or {})
    call = ToolCall(question.path[-1], name, args)
    place = _Asked(question.thread_id, question.run_id, question.path)
    matches = [Match("exact", canonical(args))]
    path, command = args.get("path"), args.get("command")
    if (tool is None or tool.open_world) and name not in RUNNERS:
        path = command = None  # other arguments, such as a host, would not be restricted
    if isinstance(command, str):
        words = command.split()
        matches += [Match("command", " ".join(words[:n])) for n in (2, 1) if len(words) > n]
    elif isinstance(path, str) and path.startswith("/"):
        directory = path.rpartition("/")[0]
        matches.append(Match("path", path))
        if directory:
            matches.append(Match("below", directory))
    narrow = RememberedRule(
        "",
        owner_of(question.run_id),
        name,
        "/".join(question.path[::2]),
        matches[0],
        "",
        time.time(),
        current_caller.get().principal,
        current_client.get(),
        question.run_id,
        question.id,
    )
    rules = [
        replace(narrow, id=new_id("rule"), match=match, thread_id=thread)
        for match in matches
        for thread in (question.thread_id, "")
    ]
    if tool is not None and not tool.open_world and not isinstance(command, str):
        rules.append(
            replace(narrow, id=new_id("rule"), match=Match("any"), thread_id=question.thread_id)
        )
    return [one for one in rules if tool is None or _safely(one, call, tool, place)]


@record
class _Asked:
    """The place of a call in question."""

    thread_id: str
    run_id: str
    agent_path: Sequence[str]
