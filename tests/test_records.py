"""Records: what they have in common with frozen dataclasses, and copies with changes."""

import copy
import inspect
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness._internal.records import changed, record


@record
class Point:
    """A place."""

    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list[str])
    note: str | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Plain:
    """The same as the standard decorator makes it."""

    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list[str])
    note: str | None = field(default=None, compare=False, repr=False)


@record
class Named:
    name: str
    colour: str = "red"


@dataclass(frozen=True, slots=True)
class Marked(Named):
    mark: int = 1


@dataclass(frozen=True)
class Open:
    """Has a `__dict__`, as classes with cached properties do."""

    x: int
    y: int = 0


@dataclass(frozen=True, slots=True)
class Guarded:
    x: int

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("below zero")


@record
class Checked:
    x: int
    doubled: int = 0

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("below zero")
        object.__setattr__(self, "doubled", 2 * self.x)


@record
class Own:
    """Says itself what it shows, equals and hashes to."""

    name: str
    secret: str = ""

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.name.lower() == other.name.lower()

    def __hash__(self) -> int:
        return hash(self.name.lower())


@record
class Counted:
    count: float


@record
class Unhashed:
    name: str
    tags: list[str] = field(default_factory=list[str], hash=False)


@record
class Empty:
    """Nothing."""


@record
class OddNames:
    """Fields named like what the generated code uses."""

    kind: int
    new: int = 2
    twin: int = 3
    missing: int = 4
    standard: int = 5
    set_class: int = 6
    record: int = 7
    copy: int = 8


# --- making --------------------------------------------------------------------------------


def test_arguments_go_to_their_fields_by_place_and_by_name():
    for made in (Point(1, 2, ["a"], "n"), Point(note="n", tags=["a"], y=2, x=1)):
        assert (made.x, made.y, made.tags, made.note) == (1, 2, ["a"], "n")
        assert type(made) is Point


def test_defaults_are_shared_and_factories_called_for_each():
    one, other = Point(1), Point(1)
    assert (one.y, one.tags, one.note) == (0, [], None)
    assert one.tags is not other.tags
    assert Empty() == Empty()


def test_a_false_value_is_not_a_missing_one():
    given = Point(0, 0, [], "")
    assert (given.x, given.y, given.tags, given.note) == (0, 0, [], "")
    own: list[str] = []
    assert Point(1, tags=own).tags is own


@pytest.mark.parametrize(
    "make",
    [
        lambda kind: kind(),
        lambda kind: kind(y=1),
        lambda kind: kind(1, 2, [], None, 5),
        lambda kind: kind(1, x=1),
        lambda kind: kind(1, z=1),
    ],
    ids=["nothing", "one is missing", "too many", "one twice", "an unknown one"],
)
def test_wrong_arguments_are_refused_as_the_standard_does(make: Callable[[Any], object]):
    for kind in (Point, Plain):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            make(kind)


def test_the_signature_is_the_standard_one():
    assert str(inspect.signature(Point)) == str(inspect.signature(Plain))
    assert Point.__init__.__qualname__ == "Point.__init__"
    assert inspect.get_annotations(Point.__init__, eval_str=True)["y"] is int


def test_fields_may_have_the_names_of_anything():
    made = OddNames(1)
    values = (made.kind, made.new, made.twin, made.missing, made.standard, made.set_class)
    assert values == (1, 2, 3, 4, 5, 6)
    assert (made.record, made.copy) == (7, 8)
    assert changed(made, kind=9, record=0) == OddNames(9, record=0)


def test_what_a_record_checks_and_fills_in_itself_is_done_when_it_is_made():
    assert Checked(3).doubled == 6
    assert changed(Checked(3), x=-1).x == -1
    with pytest.raises(ValueError, match="below zero"):
        Checked(-1)


def test_declaring_one_compiles_a_single_function():
    code = (
        "import sys\n"
        "from deep_agent_mcp.harness._internal.records import record\n"
        "class Point:\n"
        "    x: int\n"
        "    y: int = 0\n"
        "compiled = []\n"
        "sys.addaudithook(lambda name, about: name == 'compile' and compiled.append(about[1]))\n"
        "record(Point)\n"
        "print(compiled)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("['<__init__ of Point>']", "")


# --- what frozen dataclasses promise ---------------------------------------------------------


@pytest.mark.parametrize("made", [Point(1), changed(Point(1), x=2), Marked("a"), Named("a")])
def test_no_field_can_be_set_removed_or_added(made: Any):
    name = fields(made)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(made, name, 5)
    with pytest.raises(FrozenInstanceError):
        delattr(made, name)
    with pytest.raises((FrozenInstanceError, TypeError, AttributeError)):
        made.other = 1
    assert not hasattr(made, "__dict__")


@given(st.integers(), st.integers(), st.lists(st.text()))
def test_a_record_equals_and_shows_itself_as_the_standard_does(x: int, y: int, tags: list[str]):
    made, plain = Point(x, y, tags, "n"), Plain(x, y, tags, "n")
    assert made == Point(x, y, list(tags), "another note")
    assert made != Point(x + 1, y, tags)
    assert made != plain and made != (x, y, tags)
    assert repr(made) == repr(plain).replace("Plain", "Point")
    assert asdict(made) == asdict(plain)
    assert [one.name for one in fields(made)] == [one.name for one in fields(plain)]


def test_equal_records_have_one_hash_and_those_with_lists_have_none():
    assert hash(Named("a")) == hash(Named("a", "red")) == hash(changed(Named("b"), name="a"))
    assert len({Named("a"), Named("a"), Named("b")}) == 2
    with pytest.raises(TypeError):
        hash(Point(1))


def test_fields_outside_of_the_hash_are_compared_all_the_same():
    assert hash(Unhashed("a", ["x"])) == hash(Unhashed("a"))
    assert Unhashed("a", ["x"]) != Unhashed("a")


def test_what_a_record_defines_itself_stays():
    made = Own("a", "hidden")
    assert repr(made) == "<a>"
    assert made == Own("A") and hash(made) == hash(Own("A"))


def test_a_value_equals_itself_even_if_it_is_not_a_number():
    made = Named(float("nan"))  # type: ignore[arg-type]
    assert made == changed(made, colour="red") and Counted(math.nan) == Counted(math.nan)


def test_a_record_that_holds_itself_can_be_shown():
    tags: list[Any] = []
    made = Point(1, tags=tags)
    tags.append(made)
    assert repr(made) == "Point(x=1, y=0, tags=[...])"


def test_records_match_patterns_by_place():
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)


@pytest.mark.parametrize(
    "made", [Point(1, 2, ["a"], "n"), Marked("a", mark=3), Empty(), Checked(2), Own("a")]
)
@pytest.mark.parametrize(
    "through",
    [
        copy.copy,
        copy.deepcopy,
        lambda one: pickle.loads(pickle.dumps(one)),
        replace,
        changed,
    ],
    ids=["copy", "deepcopy", "pickle", "replace", "changed"],
)
def test_copies_are_equal_of_the_same_class_and_frozen(made: Any, through: Callable[[Any], Any]):
    copied = through(made)
    assert copied == made and copied is not made
    assert type(copied) is type(made)
    assert repr(copied) == repr(made)
    for one in fields(made):
        with pytest.raises(FrozenInstanceError):
            setattr(copied, one.name, 1)


def test_a_subclass_has_the_fields_of_its_base_and_its_own():
    made = Marked("a", mark=3)
    assert (made.name, made.colour, made.mark) == ("a", "red", 3)
    assert isinstance(made, Named) and type(made) is Marked
    assert made != Named("a")
    with pytest.raises(TypeError, match=r"__init__\(\)"):
        Marked()  # type: ignore[call-arg]


def test_a_subclass_without_slots_may_have_more_than_fields():
    class Loose(Named):
        pass

    made = Loose("a")
    assert (made.name, made.colour, type(made)) == ("a", "red", Loose)
    assert changed(made, name="b") == Loose("b")
    assert type(changed(made, name="b")) is Loose


# --- changing ------------------------------------------------------------------------------


def test_what_is_not_changed_is_the_same_object_and_the_original_stays():
    tags = ["a"]
    made = Point(1, 2, tags, "n")
    other = changed(made, y=5, note=None)
    assert (other.x, other.y, other.note) == (1, 5, None)
    assert other.tags is tags
    assert made == Point(1, 2, ["a"]) and made.note == "n"


@pytest.mark.parametrize("made", [Plain(1), Marked("a"), Open(1), Point(1)])
def test_any_frozen_dataclass_can_be_changed(made: Any):
    name = fields(made)[0].name
    other = changed(made, **{name: 5})
    assert other == replace(made, **{name: 5})
    assert type(other) is type(made)


@pytest.mark.parametrize("made", [Point(1), Plain(1), Marked("a"), Open(1), Empty()])
@pytest.mark.parametrize("name", ["z", "__class__", "__dict__"])
def test_an_unknown_field_is_refused_and_nothing_changes(made: Any, name: str):
    before = repr(made)
    with pytest.raises(TypeError):
        changed(made, **{name: 5})
    assert repr(made) == before and type(made).__name__ in before


def test_a_changed_copy_is_not_checked_again():
    assert changed(Guarded(1), x=-1).x == -1
    with pytest.raises(ValueError, match="below zero"):
        Guarded(-1)
