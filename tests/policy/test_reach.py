"""What a command may do with a path: never more than the file tools may."""

import posixpath
import time
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from deep_agent_mcp.harness.backends.file_tools.tools import ALL_FILE_TOOLS, file_tools
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.policy import Policy, PolicyFiles, Rule, Verdict
from deep_agent_mcp.harness.policy.access_changes import access_changes
from deep_agent_mcp.harness.policy.command_path_access import PathPattern, patterns, reach

TOOLS = {one.name: one for one in file_tools(StateBackend(), ALL_FILE_TOOLS)}
WRITERS = ("write_file", "edit_file", "delete_file")
ORDER = ("hidden", "read", "write")
LOCKED = Policy(
    [
        Rule("deny", path="/secret/**"),
        Rule("allow", path="/docs/**"),
        Rule("allow", "read_file", path="/src/**"),
        Rule("ask", "write_file", path="/src/gen/**"),
    ],
    default="deny",
)


@pytest.mark.parametrize(
    ("path", "access"),
    [
        ("/secret/a", "hidden"),
        ("/SECRET", "hidden"),
        ("/docs", "write"),
        ("/docs/a", "write"),
        ("/Docs/a", "hidden"),
        ("/src/a", "read"),
        ("/src/gen/a", "read"),
        ("/", "hidden"),
    ],
)
def test_a_command_reaches_what_the_file_tools_reach_without_asking(path: str, access: str):
    assert reach(LOCKED, path) == access
    assert reach(LOCKED.narrowed(Policy()), path) == access
    assert reach(Policy().narrowed(LOCKED), path) == access


@pytest.mark.parametrize("name", WRITERS)
def test_one_way_of_writing_that_is_not_allowed_makes_a_path_read_only(name: str):
    assert reach(Policy([Rule("ask", name)]), "/a") == "read"


def test_rules_about_who_calls_hold():
    policy = Policy([Rule("deny", agent="**/reader"), Rule("ask", "write_*", principal="guest")])
    assert reach(policy, "/a", agent=("main",)) == "write"
    assert reach(policy, "/a", agent=("main", "reader")) == "hidden"
    assert reach(policy, "/a") == "hidden"  # it might be the reader
    assert reach(policy, "/a", agent=("main",), principal="guest") == "read"


def test_a_rule_about_what_would_be_written_counts_as_if_it_were():
    policy = Policy([Rule("deny", "write_file", path="/a/**", args={"content": "*password*"})])
    assert reach(policy, "/a/b") == "read"
    assert reach(policy, "/b") == "write"
    hopeful = Policy([Rule("allow", args={"content": "*"})], default="deny")
    assert reach(hopeful, "/a") == "hidden"
    deeper = Policy([Rule("ask", args={"edits.text": "x"}), Rule("deny", args={"path": "/x*"})])
    assert reach(deeper, "/a") == "hidden"
    assert reach(Policy([Rule("deny", args={"path": "/x*"})]), "/a") == "write"


def test_tools_count_for_what_they_say_of_themselves():
    policy = Policy(defaults={"read_only": "allow", "destructive": "ask", "open_world": "deny"})
    assert reach(policy, "/a") == "read"
    assert reach(Policy([Rule("deny", destructive=False)]), "/a") == "hidden"


def test_a_saved_file_holds_at_once(tmp_path: Path):
    path = tmp_path / "p.toml"
    path.write_text("")
    files = PolicyFiles([path])
    assert (reach(files, "/a"), patterns(files)) == ("write", [])
    path.write_text("[[rule]]\naction = 'deny'\npath = '/a/**'\n")
    files.reload()
    assert reach(files, "/a") == "hidden"
    assert reach(files.narrowed(Policy()), "/a") == "hidden"
    assert [one.glob for one in patterns(files.narrowed(LOCKED))] == [
        "/a/**", "/secret/**", "/docs/**", "/src/**", "/src/gen/**",
    ]  # fmt: skip


class Foreign:
    """A policy of a kind that is not known."""

    reads_paths = True

    def judge(self, tool, args, definition=None, *, agent=(), principal=""):
        return Verdict("deny" if "x" in args["path"] else "allow")

    def hides(self, path, definition=None, *, contents=False, agent=(), principal=""):
        return "x" in path

    def narrowed(self, other):
        raise NotImplementedError


def test_a_policy_of_another_kind_is_asked_about_each_path():
    assert reach(Policy().narrowed(Foreign()), "/ax") == "hidden"
    assert reach(Policy().narrowed(Foreign()), "/a") == "write"
    assert patterns(Foreign()) == [PathPattern("/**/*", "/", walk=True)]
    tree = {"/": [("a", True), ("x", True)], "/a": [("x", False), ("b", False)], "/x": []}
    found = list(access_changes(Foreign(), lambda path: tree[path]))
    assert found == [("/", "write"), ("/x", "hidden"), ("/a/x", "hidden")]


@pytest.mark.parametrize(
    ("glob", "prefix", "walk"),
    [
        ("/secret/**", "/secret", False),
        ("/secret", "/secret", False),
        ("/**", "/", False),
        ("/a/b*/c", "/a", True),
        ("/a/{b,c}/**", "/a", True),
        ("**/.env", "/", True),
        ("/a/**/x/**", "/a", True),
        ("/a?", "/", True),
    ],
)
def test_patterns_say_where_to_look(glob: str, prefix: str, walk: bool):
    assert patterns(Policy([Rule("deny", path=glob)])) == [PathPattern(glob, prefix, walk)]


def test_only_directories_where_paths_are_told_apart_are_listed():
    listed: list[str] = []
    tree = {
        "/": [("secret", True), ("SECRET", True), ("src", True), ("other", True)],
        "/src": [("gen", True), ("lib", True)],
        "/src/gen": [("a", True)],
    }

    def children(path: str):
        listed.append(path)
        return tree[path]

    covering = Policy([Rule("deny", path=["/secret/**", "/src/gen/**"])])
    hidden = [(path, "hidden") for path in ("/secret", "/SECRET", "/src/gen")]
    assert list(access_changes(covering, children)) == [("/", "write"), *hidden]
    assert listed == ["/", "/src"]
    alone = Policy([Rule("deny", path="/src/gen")])
    assert list(access_changes(alone, children))[1:] == [hidden[2], ("/src/gen/a", "write")]


def test_a_name_that_some_file_system_takes_for_a_path_is_judged_as_one():
    found = access_changes(Policy([Rule("deny", path="/a/**")]), lambda _: [("a\\b", False)])
    assert list(found) == [("/", "write"), ("/a\\b", "hidden")]


def test_a_hundred_thousand_paths_take_seconds():
    names = [f"file{n}.txt" for n in range(1_000)]

    def children(path: str):
        if path == "/":
            return [(f"d{n}", True) for n in range(100)]
        return [(name, False) for name in names]

    policy = Policy.parse('[[rule]]\naction = "deny"\npath = ["**/.env", "**/*.key", "/a/**"]\n')
    start = time.thread_time()
    assert list(access_changes(policy, children)) == [("/", "write")]
    assert time.thread_time() - start < 10


def test_what_is_only_looked_for_nearby_costs_little_and_hides_nothing():
    tree = {
        "/": [("node_modules", True), (".git", True), ("a", True), (".envrc", False)],
        "/.git": [("hooks", True), ("objects", True)],
        "/a": [("b", True), (".envrc", False)],
        "/a/b": [("c", True), (".envrc", False)],
    }
    listed: list[tuple[str, bool]] = []

    def children(path: str, *, optional: bool = False):
        listed.append((path, optional))
        return tree.get(path, ())

    rules = [Rule("ask", path=["**/.envrc", "**/.git/hooks/**"])]
    policy = Policy([Rule("deny", path="/secret/**")]).narrowed(Policy(rules, search_depth=2))
    found = dict(access_changes(policy, children))
    assert found == dict.fromkeys(
        ("/.envrc", "/a/.envrc", "/a/b/.envrc", "/.git/hooks"), "hidden"
    ) | {"/": "write"}
    assert listed == [("/", False), ("/", True), ("/.git", True), ("/a", True), ("/a/b", True)]


# laws

NAMES = [
    "a",
    "A",
    "b",
    ".env",
    "x.key",
    "a ",
    "\uff41",
    "c:d",
    "~",
    "\uff0e\uff0e",
    "a\\b",
    "{a,b}",
]
paths = st.lists(st.sampled_from(NAMES), max_size=4).map(lambda names: "/" + "/".join(names))
globs = st.sampled_from(
    ["/**", "/", "/a", "/a/**", "/a/*", "/*/b", "/**/b", "**/.env", "**/*.key", "/{a,b/a}/**",
     "/A/b/**", "/?/**", "/[!a]/**", "/a/**/a/**", "/a/{b,x.key}", "/**/*", "/\\{a,b\\}",
     "**/c*/**"]
)  # fmt: skip
actions = st.sampled_from(["allow", "deny", "ask"])
rules = st.builds(
    Rule,
    action=actions,
    tool=st.sampled_from(["*", "read_file", "*_file", "delete_file", ("write_file", "edit_file")]),
    path=st.one_of(st.none(), globs, st.lists(globs, min_size=2, max_size=2)),
    destructive=st.sampled_from([None, None, True, False]),
    agent=st.sampled_from([None, None, "main", "**/r"]),
    args=st.sampled_from([{}, {}, {"content": "x"}, {"limit": "2000"}, {"path": "*b"}]),
)
policies = st.builds(
    Policy,
    rules=st.lists(rules, max_size=5),
    default=actions,
    defaults=st.dictionaries(st.sampled_from(["destructive", "read_only"]), actions, max_size=1),
    search_depth=st.sampled_from([None, None, 9]),
)
agents = st.sampled_from([(), ("main",), ("main", "r")])
others = st.dictionaries(
    st.sampled_from(["content", "old_string", "new_string", "limit", "offset"]),
    st.sampled_from(["x", "y", 1]),
)


@given(policies, policies, paths, agents, others, st.booleans())
def test_reach_never_says_more_than_the_tools_one_by_one(
    first, second, path, agent, more, narrow: bool
):
    policy = first.narrowed(second) if narrow else first

    def allowed(name: str) -> bool:
        args = {"path": path, **more}
        return policy.judge(name, args, TOOLS[name], agent=agent).action == "allow"

    access = reach(policy, path, agent=agent)
    if access != "hidden":
        assert allowed("read_file")
    if access == "write":
        assert all(map(allowed, WRITERS))


@given(policies, paths, agents)
def test_reach_says_no_less_where_rules_look_at_paths_alone(policy, path, agent):
    rules = [rule for rule in policy.rules if not rule.args]
    policy = Policy(rules, policy.default, policy.defaults)

    def allowed(name: str) -> bool:
        return policy.judge(name, {"path": path}, TOOLS[name], agent=agent).action == "allow"

    readable = allowed("read_file")
    writable = readable and all(map(allowed, WRITERS))
    expected = ORDER[readable + writable]
    assert reach(policy, path, agent=agent) == expected


@settings(max_examples=100)
@given(policies, policies, st.lists(paths, max_size=12), agents)
def test_boundaries_say_of_each_existing_path_what_reach_says(first, second, found, agent):
    assume(not any("\uff0e" in path for path in found))  # judged as `..`, so as another place
    policy = first.narrowed(second)
    tree: dict[str, set[str]] = {"/": set()}
    for path in found:
        while path != "/":
            above, name = posixpath.split(path)
            tree.setdefault(above, set()).add(name)
            tree.setdefault(path, set())
            path = above

    def children(path: str, *, optional: bool = False):
        return [(name, bool(tree[posixpath.join(path, name)])) for name in sorted(tree[path])]

    table = dict(access_changes(policy, children, agent=agent))
    for path in tree:
        nearest = path
        while nearest not in table:
            nearest = posixpath.dirname(nearest)
        assert table[nearest] == reach(policy, path, agent=agent), path
