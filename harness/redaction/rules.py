"""Redaction rules: what to look for, where, and how to replace it.

All rules of an agent see the original text, so a replacement by one rule never hides a match from
another. Overlapping matches are replaced as one, by the rule with the longest match. No part of
such a group is kept, not even with `mask`.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Literal, TypeAlias

import anyio

from .._internal.records import record
from ..errors import HarnessError, MiddlewareError
from . import Detector, NumberText, folded
from .detectors import BuiltIn
from .values import Vault

__all__ = ["Keys", "Match", "PIIDetectionError", "Place", "Redactor", "Rule", "Strategy"]

Strategy: TypeAlias = Literal["block", "redact", "mask", "hash", "tokenize"]
"""How matches are replaced: `block` refuses the text; `redact` inserts the kind of value; `mask`
keeps the end; `hash` gives equal values equal replacements; `tokenize` is reversible on the
server."""

Place: TypeAlias = Literal["input", "output", "tools"]
"""Where a text comes from: the caller, a model, or a tool."""

_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")


class PIIDetectionError(HarnessError):
    """Error: a text contains something that a rule with the strategy `block` forbids.

    Attributes:
        pii_type: Kind of value that was found. The error never contains the value itself.
    """

    def __init__(self, pii_type: str) -> None:
        super().__init__(
            f"a text holds what may not pass ({pii_type}); it was not stored or sent anywhere. "
            "Leave it out, or choose another strategy than block."
        )
        self.pii_type = pii_type


@record
class Rule:
    """Redaction rule: a kind of value, and how it is replaced.

    Attributes:
        pii_type: Name of the kind, used in replacements.
        detector: Finds the values.
        strategy: How they are replaced.
        places: Which texts are checked.
        mask: Returns the replacement of a match for the strategy `mask`.
        salt: Salt for `hash`; by default the thread's own.
        vault: Stores the values for `tokenize`.
        reveal_to: Names of tools whose arguments get the original values instead of tokens.
    """

    pii_type: str
    detector: Detector
    strategy: Strategy
    places: frozenset[Place]
    mask: Callable[[str], str]
    salt: bytes | None = None
    vault: Vault | None = None
    reveal_to: frozenset[str] = frozenset()

    @property
    def needs_key(self) -> bool:
        """Whether the rule's replacements depend on the thread."""
        return self.strategy == "tokenize" or (self.strategy == "hash" and self.salt is None)

    @property
    def label(self) -> str:
        """Replacement for a match that is removed completely."""
        return f"[REDACTED_{self.pii_type.upper()}]"


class Keys:
    """The secret that a thread's hashes and tokens are derived from, and its unsaved tokens.

    Attributes:
        made: Values of tokens that are not stored yet, by token.
    """

    def __init__(self, salt: str | None = None) -> None:
        self._salt = salt
        self._storing = anyio.Lock()
        self.made: dict[Vault, dict[str, str]] = {}

    @property
    def salt(self) -> str:
        """The secret as hex digits; generated on first use."""
        if self._salt is None:
            self._salt = secrets.token_hex(16)
        return self._salt

    def recall(self, salt: object) -> None:
        """Use the thread's stored secret, unless a secret is already set."""
        if self._salt is None and isinstance(salt, str):
            self._salt = salt

    @property
    def scope(self) -> str:
        """Key for the thread's values in the vault; it does not reveal the secret."""
        return sha256(b"scope " + self.salt.encode()).hexdigest()[:32]

    def hash(self, rule: Rule, value: str) -> str:
        """Return the replacement for a value; equal values get the same one."""
        return f"<{rule.pii_type}_hash:{self._digest(rule, value, rule.salt)[:8]}>"

    def token(self, rule: Rule, value: str) -> str:
        """Return the token of a value, and remember it for the vault."""
        # Letters only, so that no detector mistakes a token for a number.
        letters = self._digest(rule, value, None)[:16].translate(_LETTERS)
        token = f"<{rule.pii_type}_ref:{letters}>"
        if rule.vault is not None:
            self.made.setdefault(rule.vault, {})[token] = value
        return token

    def _digest(self, rule: Rule, value: str, salt: bytes | None) -> str:
        key = salt if salt is not None else self.salt.encode()
        message = f"{rule.pii_type}\0{value}".encode("utf-8", "surrogatepass")
        return hmac.new(key, message, sha256).hexdigest()

    async def store(self) -> None:
        """Store the values of new tokens. Call it before you store a text with these tokens.

        Raises:
            HarnessError: They could not be stored; the next call tries again.
        """
        if not self.made:  # also contains values that another call is storing
            return
        async with self._storing:
            for vault, values in list(self.made.items()):
                stored = dict(values)
                await vault.keep(self.scope, stored)
                for token in stored:
                    del values[token]
                if not values:
                    del self.made[vault]


@record
class Match:
    """A part of a text that is replaced as one.

    Attributes:
        start: Start of the part.
        end: End of the part, exclusive.
        rule: The rule that decides on the replacement.
        clear: Whether no other match overlaps it, so that `mask` may keep a part.
        blocked: Kind of value in it that a rule blocks; None if there is none.
    """

    start: int
    end: int
    rule: Rule
    clear: bool
    blocked: str | None


class Redactor:
    """Redactor: applies rules to texts.

    Args:
        rules: The rules. If overlapping matches have the same length, the earlier rule decides.
        keys: Secret for hashes and tokens.
        lenient: Replace blocked values instead of raising; for texts that are already stored.
    """

    def __init__(self, rules: Sequence[Rule], keys: Keys, *, lenient: bool = False) -> None:
        self._rules = rules
        self._placed = [*enumerate(rules)]
        self._for_numbers = [
            (place, rule)
            for place, rule in self._placed
            if getattr(rule.detector, "reads_numbers", True)
        ]
        self._keys = keys
        self._lenient = lenient

    def __call__(self, text: str) -> str:
        """Return the redacted text.

        Raises:
            PIIDetectionError: A rule blocks it.
            MiddlewareError: A detector failed; the text must not be used.
        """
        matches = self.find(text)
        if not matches:
            return text
        parts: list[str] = []
        done = 0
        for match in matches:
            parts += (text[done : match.start], self.replacement(text, match))
            done = match.end
        return "".join((*parts, text[done:]))

    def find(self, text: str) -> list[Match]:
        """Return the parts to replace, in order and without overlaps."""
        rules = self._for_numbers if isinstance(text, NumberText) else self._placed
        if not rules:
            return []
        plain = folded(text)
        found = [
            (start, -end, place)
            for place, rule in rules
            for start, end in _spans(rule, plain if _is_built_in(rule) else text)
        ]
        found.sort()
        matches: list[Match] = []
        together: list[tuple[int, int, int]] = []
        end = 0
        for one in found:
            if together and one[0] >= end:
                matches.append(self._match(together, end))
                together = []
            together.append(one)
            end = max(end, -one[1])
        if together:
            matches.append(self._match(together, end))
        return matches

    def replacement(self, text: str, match: Match) -> str:
        """Return the replacement for a match.

        Raises:
            PIIDetectionError: A rule blocks it.
        """
        if match.blocked is not None and not self._lenient:
            raise PIIDetectionError(match.blocked)
        rule, value = match.rule, text[match.start : match.end]
        if rule.strategy == "hash":
            return self._keys.hash(rule, value)
        if rule.strategy == "tokenize":
            return self._keys.token(rule, value)
        if rule.strategy == "mask" and match.clear:
            return rule.mask(value)
        return rule.label

    def open_from(self, text: str) -> int:
        """Return the position from which more text could change the matches."""
        plain = folded(text)
        return min(
            (
                rule.detector.open_from(plain if _is_built_in(rule) else text)
                for rule in self._rules
            ),
            default=len(text),
        )

    def _match(self, together: Sequence[tuple[int, int, int]], end: int) -> Match:
        start = together[0][0]
        first, last, place = min(together, key=lambda one: (one[1] + one[0], one[2], one[0]))
        rules = {one[2] for one in together}
        blocking = [self._rules[one] for one in sorted(rules)]
        blocked = next((one.pii_type for one in blocking if one.strategy == "block"), None)
        clear = len(rules) == 1 and (first, -last) == (start, end)
        return Match(start, end, self._rules[place], clear, blocked)


def _is_built_in(rule: Rule) -> bool:
    return isinstance(rule.detector, BuiltIn)


def _spans(rule: Rule, text: str) -> Iterable[tuple[int, int]]:
    try:
        return list(rule.detector.find(text))
    except HarnessError:
        raise
    except Exception as error:  # noqa: BLE001 - a detector may be anybody's code
        raise MiddlewareError(
            f"the detector of {rule.pii_type} raised {type(error).__name__}; the text was neither "
            "stored nor shown. Correct the detector"
        ) from None  # its message may contain the text
