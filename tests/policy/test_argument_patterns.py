"""Expressions over arguments match as `re` does, and no argument makes them take long."""

from __future__ import annotations

import random
import re
import time
import warnings
from pathlib import Path

import pytest

from deep_agent_mcp.harness._internal.patterns import settled
from deep_agent_mcp.harness.backends.search import glob_matcher
from deep_agent_mcp.harness.policy import Policy, PolicyError, PolicyFiles, Rule
from deep_agent_mcp.harness.policy.patterns import argument_test, name_pattern, steps_pattern

ATOMS = (
    *"abé.-/{]\u017f", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", "[ab]", "[^a]", r"[\w-]", r"[\d_]",
    r"[\s\S]", r"[^\d\D]", "[]a]", "[[x]", r"[^\s]", r"[^\W]", r"[\D]", r"\.", r"\-", r"\_", r"\ ",
    r"\n", r"\x41", r"\u00e9", r"\U000000e9", "^", "$", r"\A", r"\Z", "x{2}", "a{,2}", "a{x",
    "(?:ab|b)", "(a|)", "(?P<n>a)", "(?i:a)", r"\t", r"\/", r"\#", r"\0", r"[\x00-\x20]", r"[a\]]",
    r"[\b]", "&&", "[a&&b]", "[é-ü]", r"\v", r"\\",
)  # fmt: skip
REPEATS = ("", "", "", "*", "+", "?", "*?", "+?", "??", "{1,3}")
FLAGS = ("", "", "(?i)", "(?m)", "(?s)", "(?a)", "(?im)")
CHARS = 'abxAéü1٣_ -.\n\t\x0b\x1c\x85\xa0\u2028\u017f{}[]#/&\\"\x00²Ⅷ漢\u0301\ud800'


@pytest.mark.exhaustive(cases=1)
@pytest.mark.parametrize("seed", range(6))
def test_an_expression_matches_what_it_matches_for_re(seed: int) -> None:
    chance = random.Random(seed)
    compared = 0
    while compared < 1_200:
        parts = [chance.choice(ATOMS) + chance.choice(REPEATS) for _ in range(chance.randint(1, 5))]
        text = chance.choice(FLAGS) + "".join(parts)
        try:
            with warnings.catch_warnings(action="ignore"):
                pattern = re.compile(text, chance.choice((0, re.DOTALL)))
            whole, part = (argument_test(pattern, whole=one) for one in (True, False))
        except (re.error, PolicyError):
            continue
        compared += 1
        for _ in range(4):
            said = "".join(chance.choice(CHARS) for _ in range(chance.randint(0, 6)))
            asked = said.replace("\ud800", "�")  # half of a pair is what no expression is about
            assert whole(said) == bool(pattern.fullmatch(asked)), (text, said)
            assert part(said) == bool(pattern.search(asked)), (text, said)


def test_the_end_is_before_a_last_line_break_too() -> None:
    found = argument_test(re.compile("a$"), whole=False)
    assert [found(said) for said in ("a", "a\n", "a\n\n", "a\nb")] == [True, True, False, False]


REFUSED = (
    "(?=a)b", "(?!a)b", "(?<=a)b", "(?<!a)b", r"(a)\1", "(?P<n>a)(?P=n)", "(?>a+)b", "a++", "a*+",
    "(a)?(?(1)b|c)", "a{1001}", r"[\W_]", r"[^\W\d]", r"[\Sa]", "(?x) a b", "a$b", "(?m:^a$)",
    r"\N{EM DASH}", "(?#why)a", "(((a{100}){100}){100})",
)  # fmt: skip


@pytest.mark.parametrize("expression", REFUSED)
def test_what_can_take_for_ever_is_refused_with_what_to_write(
    tmp_path: Path, expression: str
) -> None:
    with pytest.raises(PolicyError, match="Write a simpler expression, or several rules"):
        Rule("deny", args={"sql": re.compile(expression)})
    path = tmp_path / "rules.toml"
    path.write_text(
        f"[[rule]]\naction = 'ask'\n\nargs = {{ sql = {{ regex = '''{expression}''' }} }}\n"
    )
    with pytest.raises(PolicyError, match=r"rules\.toml:4: args\.sql: the regular expression"):
        PolicyFiles([path])


def test_an_expression_of_bytes_is_refused() -> None:
    with pytest.raises(PolicyError, match="it is of bytes; write text"):
        Rule("deny", args={"sql": re.compile(b"a")})  # type: ignore[dict-item]


HOSTILE = {
    r"(a+)+$": "a" * 200_000 + "b",
    r"(a|a)*$": "a" * 200_000 + "b",
    r"(.*)(.*)(.*)(.*)(.*)[^a]$": "a" * 200_000,
    r"^(\w+\s?)*$": "a " * 100_000 + "!",
    r"(?i)(x+x+)+y": "x" * 200_000,
    r"(\d+)*;": "1" * 200_000,
}


@pytest.mark.parametrize("action", ["allow", "deny", "ask"])
@pytest.mark.parametrize("expression", HOSTILE)
def test_no_argument_takes_long(expression: str, action: str) -> None:
    rules = {"action": action, "args": {"sql": {"regex": expression}}}
    policy = Policy.from_rules([rules], "mine")
    began = time.process_time()
    verdict = policy.judge("query", {"sql": HOSTILE[expression]}, None)
    assert time.process_time() - began < 1
    assert verdict.action in ("allow", "deny", "ask")


DEEP = "/a" * 100


@pytest.mark.parametrize("many", [3, 8, 40])
@pytest.mark.parametrize("step", ["a/**", "*/**", "**", "?/**/a*"])
def test_no_path_takes_a_glob_long(step: str, many: int) -> None:
    pattern = "/**" + f"/{step}" * many + "/b"
    began = time.process_time()
    assert not steps_pattern(pattern).match(f"{DEEP}/")
    assert not glob_matcher(pattern, "/")(DEEP)
    assert steps_pattern(pattern).match(f"{DEEP}/b/")
    assert glob_matcher(pattern, "/")(f"{DEEP}/b")
    assert not name_pattern("*a" * many + "*b").match("a" * 20_000)
    assert time.process_time() - began < 1


@pytest.mark.parametrize("seed", range(4))
def test_globs_fit_the_same_paths_however_they_are_compared(seed: int) -> None:
    from wcmatch import glob

    flags = glob.GLOBSTAR | glob.BRACE | glob.DOTGLOB | glob.FORCEUNIX | glob.CASE
    chance = random.Random(seed)
    steps = ("**", "**", "a", "b", "*", "a*", "?", "[ab]", "*b", ".a", "{a,b}")
    names = ("a", "b", "ab", "ba", ".a", "c", "..")
    for _ in range(600):
        pattern = "/".join(chance.choice(steps) for _ in range(chance.randint(1, 7)))
        pattern = chance.choice(("", "/")) + pattern + chance.choice(("", "/"))
        path = "/".join(chance.choice(names) for _ in range(chance.randint(0, 8)))
        path = chance.choice(("", "/")) + path + chance.choice(("", "/"))
        for one in glob.translate(pattern, flags=flags)[0]:
            assert bool(re.match(one, path)) == bool(re.match(settled(one), path)), (pattern, path)
