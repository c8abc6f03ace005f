"""Sealed records: nothing is lost, nothing is left out, and no other bytes open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness._internal.records import changed
from deep_agent_mcp.harness.checkpoint.base import (
    Checkpoint,
    FileChange,
    Interrupt,
    Record,
    Run,
    RunEvent,
    StoredWrite,
)
from deep_agent_mcp.harness.checkpoint.keyring import Cipher, Keyring
from deep_agent_mcp.harness.checkpoint.maintenance import CONTENT
from deep_agent_mcp.harness.checkpoint.record_encryption import FIELDS, RecordCipher, is_sealed
from deep_agent_mcp.harness.errors import CheckpointError

KEYS = [Keyring.generate() for _ in range(2)]
SEALER = RecordCipher(Cipher(Keyring.parse(KEYS[0])))

text, names = st.text(max_size=20), st.lists(st.text(max_size=5), max_size=3).map(tuple)
longer = text | text.map(lambda some: some * 50)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | longer,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(text, json_values, max_size=3)
maybe = st.none() | longer
data = st.binary(max_size=100) | st.binary(min_size=1, max_size=4).map(lambda some: some * 2000)
interrupts = st.builds(
    Interrupt,
    *(text, text, text, text, text, st.just("question"), names, longer, objects, objects),
    answer=st.none(),
)
records: st.SearchStrategy[Record] = st.one_of(
    st.builds(StoredWrite, text, data, st.booleans()),
    st.builds(
        Checkpoint,
        *(text, text, text, maybe, st.integers(), st.just("loop"), text, st.just("end")),
        summary=longer,
    ),
    st.builds(
        Run,
        *(text, text, st.just("drive"), text),
        goal=longer,
        answer=maybe,
        reason=maybe,
        idempotency_key=maybe,
        used=text,
    ),
    interrupts,
    st.builds(changed, interrupts, answer=json_values, answered=st.just(True)),
    st.builds(FileChange, text, text, text, st.none() | data, maybe),
    st.builds(RunEvent, text, text, names, objects),
)


def fields(record: Record) -> Iterator[tuple[str, Any]]:
    """Return the content of a record that is there."""
    for name in CONTENT[type(record)]:
        value = getattr(record, name)
        if value is not None:
            yield name, value


def test_what_a_rewrite_may_change_is_sealed():
    assert {kind: {*forms} for kind, forms in FIELDS.items()} == {
        kind: {*content} for kind, content in CONTENT.items()
    }
    assert {*FIELDS} == {*get_args(Record)}


@given(records)
def test_every_record_opens_to_what_was_sealed(record: Record):
    sealed = SEALER.seal(record)
    assert type(sealed) is type(record)
    assert SEALER.open(sealed) == record
    assert SEALER.seal(record) == sealed
    assert is_sealed(sealed)
    for name, value in fields(record):
        assert type(getattr(sealed, name)) in (type(value), str)
        assert getattr(sealed, name) != value
    content = dict.fromkeys(CONTENT[type(record)])
    assert changed(sealed, **content) == changed(record, **content)


@given(records)
def test_every_record_is_sealed_anew_with_another_key(record: Record):
    other = RecordCipher(Cipher(Keyring.parse(f"{KEYS[1]},{KEYS[0]}")))
    resealed = other.reseal(SEALER.seal(record))
    assert resealed == other.seal(record) == other.seal_plain(SEALER.seal(record))
    assert other.unseal(resealed) == record
    with pytest.raises(CheckpointError, match="the journal key is wrong"):
        SEALER.open(resealed)


def flipped(value: Any) -> Iterator[Any]:
    """Return a sealed value with each of its bytes changed once, cut, and made longer."""
    match value:
        case bytes():
            for place in range(len(value)):
                yield value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :]
            yield from (value[:-1], value + b"\0", b"")
        case str():
            for place, one in enumerate(value):
                yield value[:place] + ("B" if one == "A" else "A") + value[place + 1 :]
            yield from (value[:-1], value + "A", value + "=", value + "\n", value[:20], "")
        case dict():
            for key, sealed in value.items():  # pyright: ignore[reportUnknownVariableType]
                yield from ({key: one} for one in flipped(sealed))
            yield from ({**value, "more": 1}, {}, [], None, "sealed")
        case tuple():
            yield from ((one,) for one in flipped(value[0]))
            yield from ((*value, "more"), ())
        case _:
            raise AssertionError(value)


STORED: list[Record] = [
    StoredWrite("messages", b"[]"),
    Checkpoint("t", "", "ckpt_1", None, 0, "loop", "model", "tools", summary="wrote a file"),
    Run("r", "t", "drive", "main", "done", "tidy", None, "42", "limit", "key", used="{}"),
    Interrupt(*("i", "t", "", "s", "r", "question", (), "Sure?", {"a": 1}, {}, 0, "yes", True)),
    FileChange("t", "r", "/f", b"before", "00ff"),
    RunEvent("r", "tasks", ("main",), {"is": "done"}),
]


@pytest.mark.parametrize("record", STORED, ids=lambda one: type(one).__name__)
def test_no_byte_of_a_sealed_value_can_be_changed(record: Record):
    sealed = SEALER.seal(record)
    for name, value in fields(sealed):
        for other in flipped(value):
            with pytest.raises(CheckpointError):
                SEALER.open(changed(sealed, **{name: other}))


@pytest.mark.parametrize("record", STORED, ids=lambda one: type(one).__name__)
def test_a_value_opens_in_no_other_field_and_no_other_record(record: Record):
    sealed = SEALER.seal(record)
    texts = [name for name, value in fields(sealed) if isinstance(value, str)]
    for one in texts:
        for other in texts:
            if one != other:
                with pytest.raises(CheckpointError, match="cannot be opened"):
                    SEALER.open(changed(sealed, **{one: getattr(sealed, other)}))
    elsewhere: dict[type[Record], dict[str, Any]] = {
        StoredWrite: {"channel": "files"},
        Checkpoint: {"id": "ckpt_2"},
        Run: {"id": "r2"},
        Interrupt: {"id": "i2"},
        FileChange: {"run_id": "r2"},
        RunEvent: {"run_id": "r2"},
    }
    with pytest.raises(CheckpointError, match="cannot be opened"):
        SEALER.open(changed(sealed, **elsewhere[type(record)]))


def test_a_write_does_not_begin_to_overwrite():
    sealed = SEALER.seal(StoredWrite("messages", b"[]"))
    with pytest.raises(CheckpointError, match="a value of channel 'messages' cannot be opened"):
        SEALER.open(changed(sealed, overwrite=True))


def test_what_is_stored_once_or_looked_for_is_sealed_alike_everywhere():
    one, other = (
        SEALER.seal(FileChange("t", run, "/f", b"before", "00ff")) for run in ("r1", "r2")
    )
    assert (one.before, one.path) != (other.before, other.path)
    assert one.before == other.before
    runs = [SEALER.seal(Run(run, "t", "drive", "main", idempotency_key="k")) for run in ("1", "2")]
    assert runs[0].idempotency_key == runs[1].idempotency_key
    assert [runs[0].idempotency_key] == SEALER.keys_of_runs("k")


def test_an_answer_cannot_be_taken_for_given():
    asked = Interrupt(*("i", "t", "", "s", "r", "question", (), "Sure?", {}, {}))
    sealed = SEALER.seal(asked)
    assert sealed.answer is None
    for answer in (None, "yes", ["yes"]):
        with pytest.raises(CheckpointError, match="the answer of interrupt i is not sealed"):
            SEALER.open(changed(sealed, answer=answer, answered=True))
    nothing = changed(asked, answer=None, answered=True)
    assert "null" not in json.dumps(SEALER.seal(nothing).answer)
    assert SEALER.open(SEALER.seal(nothing)) == nothing


def test_a_runs_key_is_found_however_other_values_are_stored(monkeypatch: pytest.MonkeyPatch):
    long = "key " * 100
    stored = SEALER.keys_of_runs(long)
    monkeypatch.setattr("deep_agent_mcp.harness.checkpoint.codec._DICTIONARY", b"another")
    monkeypatch.setattr("deep_agent_mcp.harness.checkpoint.codec._PLAIN", b"x")
    assert SEALER.keys_of_runs(long) == stored


def test_what_this_version_sealed_opens_with_every_later_one():
    sealer = RecordCipher(Cipher(Keyring([bytes(range(32))])))
    key = "sealed:ztAoG0ZKdVnckoRolQp02JTdUtTKqeY="
    assert sealer.keys_of_runs("key") == [key]
    goal = "sealed:ztAoG3zwBfBbEFfK6jVvl8UbBab++lxXW73lrFk="
    used = "sealed:ztAoG+oZW6uiyueTE+nj8sHs0QRnaR1i7g=="
    run = Run("r", "t", "drive", "main", goal=goal, used=used, idempotency_key=key)
    opened = sealer.open(run)
    assert (opened.goal, opened.used, opened.idempotency_key) == ("tidy", "", "key")
    value = bytes.fromhex(
        "027365616c656400ced0281b946c9a2ca6b961ec61df5a5b035db6832cc5cbc47dd29f96a58d9167ebb42dfd"
    )
    assert sealer.open(StoredWrite("messages", value)) == StoredWrite("messages", b"text " * 20)
