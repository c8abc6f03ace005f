"""A transcript is a list that never changes, however it is shared."""

import copy
import pickle
import threading
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, rule

from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    RemoveMessage,
    ToolCall,
    ToolMessage,
)
from deep_agent_mcp.harness.messages.transcript import Transcript, add_messages, paired
from deep_agent_mcp.harness.state.channels import AgentState, Overwrite, channels_of

ids = st.sampled_from("abcdefgh")
bounds = st.none() | st.integers(-12, 12)


def message(id_, text="x"):
    return HumanMessage(text, id=id_)


def numbered(count):
    return [message(str(number)) for number in range(count)]


@given(st.integers(0, 8), bounds, bounds, st.sampled_from([None, 1, 2, -1, -3]))
def test_it_reads_like_the_list_of_its_messages(length, start, stop, step):
    every = numbered(9)
    transcript = Transcript(every[:length])
    transcript.appended(every[length:])  # grown elsewhere: what is shared is longer now
    expected = every[:length]
    assert [*transcript] == expected
    assert [*reversed(transcript)] == expected[::-1]
    assert transcript[start:stop:step] == expected[start:stop:step]
    assert len(transcript) == length
    assert transcript == expected
    assert transcript != every
    assert repr(transcript) == repr(expected)
    assert add(transcript, [every[8]]) == [*expected, every[8]]
    assert add([every[8]], transcript) == [every[8], *expected]
    for place in range(-length, length):
        assert transcript[place] is expected[place]
    for place in (length, -length - 1):
        with pytest.raises(IndexError):
            transcript[place]


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
)
def test_a_copy_is_the_same_and_goes_its_own_way(copied):
    transcript = Transcript(numbered(3))
    other = copied(transcript)
    mine, theirs = transcript.appended([message("mine")]), other.appended([message("theirs")])
    assert [one.id for one in mine] == ["0", "1", "2", "mine"]
    assert [one.id for one in theirs] == ["0", "1", "2", "theirs"]
    assert transcript == other == numbered(3)


def test_it_cannot_be_changed():
    transcript = Transcript(numbered(2))
    for change in (
        "append",
        "extend",
        "insert",
        "pop",
        "sort",
        "clear",
        "__setitem__",
        "__delitem__",
    ):
        assert not hasattr(transcript, change)
    with pytest.raises(TypeError):
        hash(transcript)


def test_who_reads_it_does_not_see_what_is_added_meanwhile():
    transcript = Transcript(numbered(2))
    forth, back = iter(transcript), reversed(transcript)
    transcript.appended(numbered(5)[2:])
    assert [one.id for one in forth] == ["0", "1"]
    assert [one.id for one in back] == ["1", "0"]


def test_appending_to_a_long_one_copies_nothing():
    transcript = Transcript(numbered(1_000))
    grown = transcript.appended([message("new")])
    assert grown._shared is transcript._shared  # pyright: ignore[reportPrivateUsage]


class Interrupted(list):
    """Messages that let another thread run while they are read for the first time."""

    def __init__(self, messages, elsewhere):
        super().__init__(messages)
        self.elsewhere = elsewhere

    def __iter__(self):
        if not self.elsewhere.ident:
            self.elsewhere.start()
            self.elsewhere.join(0.2)  # it ends only if it was not kept waiting
        return super().__iter__()


def test_threads_that_append_to_one_get_each_their_own():
    transcript, theirs = Transcript(numbered(3)), []
    new = [message("theirs")]
    thread = threading.Thread(target=lambda: theirs.append(transcript.appended(new)))
    mine = transcript.appended(Interrupted([message("mine")], thread))
    thread.join(60)
    assert [one.id for one in mine] == ["0", "1", "2", "mine"]
    assert [one.id for one in theirs[0]] == ["0", "1", "2", "theirs"]
    assert (mine.place("mine"), mine.place("theirs")) == (3, None)
    assert (theirs[0].place("mine"), theirs[0].place("theirs")) == (None, 3)
    assert transcript == numbered(3)


def test_it_is_stored_and_shown_as_a_list():
    channel = channels_of(AgentState, "the agent")["messages"]
    every = numbered(3)
    stored = channel.encode(Overwrite(Transcript(every)))
    assert channel.decode(stored, overwrite=True).value == every
    assert channel.coerce(Overwrite(Transcript(every))).value == every
    assert channel.coerce(Transcript(every)) == every
    assert [one["id"] for one in channel.to_json(Transcript(every))] == ["0", "1", "2"]


class Branches(RuleBasedStateMachine):
    """Any transcript can be written to at any time; a plain list beside it does the same."""

    known = Bundle("known")

    @rule(target=known)
    def begun(self):
        return Transcript(), []

    @rule(target=known, source=known, added=st.lists(ids, max_size=3))
    def added(self, source, added):
        transcript, plain = source
        plain = [*plain]
        for id_ in added:
            new = message(id_, f"{len(plain)}")
            places = [place for place, one in enumerate(plain) if one.id == id_]
            plain = self._put(plain, places, new)
            transcript = add_messages(transcript, [new])
        self._same(transcript, plain)
        return transcript, plain

    @rule(target=known, source=known, removed=ids)
    def removed(self, source, removed):
        transcript, plain = source
        if removed not in [one.id for one in plain]:
            with pytest.raises(ValueError, match="it is not in the thread"):
                add_messages(transcript, [RemoveMessage(removed)])
            return source
        plain = [one for one in plain if one.id != removed]
        transcript = add_messages(transcript, [RemoveMessage(removed)])
        self._same(transcript, plain)
        return transcript, plain

    @rule(source=known)
    def still(self, source):
        self._same(*source)

    def _put(self, plain, places, new):
        if not places:
            return [*plain, new]
        return [new if place == places[0] else one for place, one in enumerate(plain)]

    def _same(self, transcript, plain):
        assert [*transcript] == plain
        for place, one in enumerate(plain):
            assert transcript.place(one.id) == place
        assert transcript.place("none") is None
        for id_ in set("abcdefgh") - {one.id for one in plain}:
            assert transcript.place(id_) is None


TestBranches = Branches.TestCase


def answer(*ids):
    return AIMessage(tuple(ToolCall(one, "look", {}) for one in ids), id=f"ai-{'-'.join(ids)}")


def result(id_):
    return ToolMessage(id_, "seen", id=f"result-{id_}")


class Counted(Transcript):
    """Counts the messages that are looked at."""

    __slots__ = ()
    looked = 0

    def since(self, start):
        for one in super().since(start):
            Counted.looked += 1
            yield one


def test_a_valid_conversation_is_not_looked_at_again_when_it_grows():
    seen = Counted([message("goal")])
    for number in range(100):
        grown = add_messages(seen, [answer(f"c{number}"), result(f"c{number}")])
        grown.__class__ = Counted
        seen = grown
        assert paired(seen) is seen
    assert Counted.looked <= 2 * 100 + 1


def test_what_is_known_of_a_conversation_says_nothing_of_others_that_share_its_messages():
    short = Transcript([message("goal"), answer("a")])
    whole = add_messages(short, [result("a")])
    assert paired(whole) is whole
    assert [one.type for one in paired(short)] == ["human", "ai", "tool"]
    open_again = add_messages(whole, [answer("b")])
    assert [one.type for one in paired(open_again)] == ["human", "ai", "tool", "ai", "tool"]
    other = add_messages(short, [message("next")])
    assert [one.type for one in paired(other)] == ["human", "ai", "tool", "human"]
