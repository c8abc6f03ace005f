"""Keys as people write them down, and as nobody sees them."""

from __future__ import annotations

import copy
import traceback
from base64 import urlsafe_b64encode

import pytest

from deep_agent_mcp.harness.checkpoint.keyring import Cipher, Damaged, Keyring, UnknownKey


def test_a_new_key_is_one_word_that_is_read_back():
    keys = {Keyring.generate() for _ in range(50)}
    assert len(keys) == 50
    assert all(len(key) == 43 and len(Keyring.parse(key).ids) == 1 for key in keys)


def test_several_keys_are_separated_by_commas_or_lines_and_keep_their_order():
    one, two, three = (Keyring.generate() for _ in range(3))
    ids = [Keyring.parse(key).ids[0] for key in (one, two, three)]
    for text in (
        f"{one},{two},{three}",
        f"{one}\n{two}\r\n{three}\n",
        f"  {one}=,\n{two}=  {three},",
    ):
        assert list(Keyring.parse(text).ids) == ids


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there is no key"),
        (" ,\n", "there is no key"),
        ("hunter2", "key 1 of 1 is not 32 bytes as base64url"),
        ("{key},hunter2", "key 2 of 2 is not 32 bytes"),
        ("{key}A", "it has 44"),
        ("{key},{key}", "a key is there twice"),
        ("é" * 43, "key 1 of 1"),
    ],
)
def test_what_is_no_key_is_refused_without_showing_it(text: str, words: str):
    key = Keyring.generate()
    with pytest.raises(ValueError, match=words) as refused:
        Keyring.parse(text.format(key=key))
    told = "".join(traceback.format_exception(refused.value))
    assert key not in told and "hunter2" not in told and "\\xc3" not in told


def test_a_key_of_the_wrong_size_is_refused():
    with pytest.raises(ValueError, match="key 2 of 2 has 31 bytes, not 32"):
        Keyring([bytes(32), bytes(31)])


def test_no_text_shows_a_key():
    raw = bytes(range(32))
    keys = Keyring([raw])
    for shown in (repr(keys), str(keys), f"{keys}", repr([keys]), repr(Cipher(keys))):
        for secret in (raw.hex(), urlsafe_b64encode(raw).decode()[:20], repr(raw)[2:20]):
            assert secret not in shown
        assert raw.hex()[:8] not in shown
    assert keys.ids[0] in repr(keys)
    assert repr(copy.copy(keys)) == repr(keys)


def test_the_id_and_the_cipher_do_not_depend_on_where_they_are_made():
    """What is stored must open with every later version."""
    keys = Keyring([bytes(range(32))])
    assert keys.ids == ("ced0281b",)
    assert (
        Cipher(keys).seal(b"content", [b"run.goal", b"run_1"]).hex()
        == "ced0281b78f2e2ba86672d4975868db7b514f3e444036756263aac"
    )


def test_what_is_cut_short_or_of_another_key_says_so():
    keys = Keyring([bytes(range(32))])
    cipher = Cipher(keys)
    sealed = cipher.seal(b"", [b"a"])
    assert cipher.open(sealed, [b"a"]) == b""
    for size in range(len(sealed)):
        with pytest.raises(Damaged):
            cipher.open(sealed[:size], [b"a"])
    for context in ([b"b"], [], [b"a", b""], [b"", b"a"]):
        with pytest.raises(Damaged):
            cipher.open(sealed, context)
    with pytest.raises(UnknownKey, match=keys.ids[0]):
        Cipher(Keyring([bytes(32)])).open(sealed, [b"a"])
