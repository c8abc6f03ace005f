"""Transcripts that were edited are remembered, the ones used last, and never shown stale."""

from collections.abc import Sequence

from deep_agent_mcp.harness.messages.message import HumanMessage, Message
from deep_agent_mcp.harness.middleware.context.context_edits import EditedMessages, EditedPrefixes

ONE, TWO, THREE = (HumanMessage(text) for text in ("one", "two", "three"))


class Marks:
    """Edits messages, and counts how many it edited."""

    def __init__(self) -> None:
        self.edited = 0

    def all(self, messages: Sequence[Message]) -> Sequence[Message]:
        self.edited += len(messages)
        return [HumanMessage(f"{one.text}!") for one in messages]

    def each(self, message: Message) -> Message:
        self.edited += 1
        return HumanMessage(f"{message.text}!") if message is not TWO else message


def texts(messages: Sequence[Message]) -> list[str]:
    return [one.text for one in messages]


def test_a_beginning_is_edited_once_until_it_its_end_or_its_terms_change():
    prefixes, marks = EditedPrefixes(), Marks()
    first = prefixes.get("t", 1, [ONE, TWO, THREE], 2, marks.all)
    assert texts(first) == ["one!", "two!"]
    assert prefixes.get("t", 1, [ONE, TWO], 2, marks.all) is first
    assert marks.edited == 2
    assert texts(prefixes.get("t", 1, [ONE, TWO, THREE], 3, marks.all))[2] == "three!"
    prefixes.get("t", 2, [ONE, TWO, THREE], 3, marks.all)
    assert texts(prefixes.get("t", 2, [ONE, THREE, THREE], 3, marks.all))[1] == "three!"
    assert marks.edited == 2 + 3 + 3 + 3


def test_the_beginnings_that_were_used_last_are_kept():
    prefixes, marks = EditedPrefixes(size=2), Marks()
    for key in ("a", "b", "a", "c"):  # b was used longest ago
        prefixes.get(key, 1, [ONE], 1, marks.all)
    assert marks.edited == 3
    for key in ("a", "c"):
        prefixes.get(key, 1, [ONE], 1, marks.all)
    assert marks.edited == 3
    prefixes.get("b", 1, [ONE], 1, marks.all)
    assert marks.edited == 4


def test_of_a_longer_transcript_only_what_is_new_is_edited():
    views, marks = EditedMessages(), Marks()
    assert texts(views.get("t", 1, [ONE, TWO], marks.each)) == ["one!", "two"]
    assert texts(views.get("t", 1, [ONE, TWO, THREE], marks.each)) == ["one!", "two", "three!"]
    assert marks.edited == 3
    assert texts(views.get("t", 1, [THREE, TWO], marks.each)) == ["three!", "two"]
    views.get("t", 2, [THREE, TWO], marks.each)
    assert marks.edited == 7


def test_a_transcript_that_nothing_changes_is_shown_itself():
    views, marks = EditedMessages(), Marks()
    messages = [TWO]
    assert views.get("t", 1, messages, marks.each) is messages
    longer = [TWO, TWO]
    assert views.get("t", 1, longer, marks.each) is longer


def test_the_transcripts_that_were_used_last_are_kept():
    views, marks = EditedMessages(size=2), Marks()
    for key in ("a", "b", "a", "c"):
        views.get(key, 1, [ONE], marks.each)
    assert marks.edited == 3
    for key in ("a", "c"):
        views.get(key, 1, [ONE], marks.each)
    assert marks.edited == 3
    views.get("b", 1, [ONE], marks.each)
    assert marks.edited == 4
