"""What a line would run, against what a real shell runs; and lines made to slip past a rule."""

import shutil
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from deep_agent_mcp.harness.policy import Policy, PolicyError, Rule
from deep_agent_mcp.harness.policy.command_lines import parse_line

STATUS = Policy((Rule("allow", command=["git status", "git log", "ls", "find"]),), default="deny")
NO_RM = Policy((Rule("deny", command=["rm", "git push", "mkfs*"]),))

ATTACKS = r"""
git status && rm -rf /
git status || rm -rf /
git status; rm -rf /
git status;rm -rf /
git status & rm -rf /
git status &rm
git status | sh
git status|sh
git status |& sh
git status $(rm -rf /)
git status "$(rm -rf /)"
git status `rm -rf /`
git status "`rm -rf /`"
git status <(rm -rf /)
git status >(rm -rf /)
git status > /etc/passwd
git status >> ~/.bashrc
git status >| /etc/passwd
git status 2> /etc/passwd
git status &> /etc/passwd
git &>/dev/null status
git 1>&-'' status
git status >& /etc/passwd
git status 1>/etc/passwd 2>&1
git status <> /dev/sda
git status << EOF
git status <<< x
git status < /etc/shadow
PATH=/evil git status
GIT_PAGER='rm -rf /' git log
GIT_SSH_COMMAND=evil PATH+=:/evil git status
A[0]=1 git status
env git status
env -i GIT_PAGER=evil git status
sudo git status
doas git status
sh -c 'git status'
bash -c "git status"
bash -lc 'git status; rm -rf /'
eval git status
exec git status
command git status
xargs git status
echo / | xargs rm -rf
nohup git status
time git status
timeout 5 git status
if git status; then rm -rf /; fi
while git status; do rm -rf /; done
for x in *; do rm $x; done
! git status
{ git status; rm -rf /; }
{ git status
(git status; rm -rf /)
(git status)
git() { rm -rf /; }; git status
function git { rm -rf /; }
alias git='rm -rf /'; git status
git status # a comment
g?t status
g{it,it} status
{rm,-rf,/}
git{,} status
git st*
git $X
git "$X"
git ${X}
git status ${IFS}
git status $'\x3b'
git status $((1))
git status 'unbalanced
git status "unbalanced
git status \
./git status
/tmp/git status
~/git status
git\ status
'git status'
"git status"
Git status
git -c core.pager='rm -rf /' status
git --exec-path=/evil status
git log --output=/etc/passwd
git log -O/evil
find . -exec rm {} +
find . -exec rm {} ;
find . -execdir rm x +
find . -delete
find . -ok rm x
find . -fprintf /etc/passwd x
ls [a]
ls ]
git
git statusx
git status&&rm
ls;find . -delete
[[ -f x ]] && git status
coproc git status
trap 'rm -rf /' EXIT; git status
. ./evil; git status
source evil
""".strip().split("\n")

ATTACKS += [
    "git status\nrm -rf /",
    "git status\r\nrm -rf /",
    "git status\rrm",
    "\ngit status\n\nrm",
    "git status\x00rm",
    "git\u00a0status",
    "git status\u2028rm",
    "git status \u200brm",
    "git\x0bstatus",
    "git status\x1b[A",
    "",
    "   ",
    "git status " + "x" * 30_000,
]


@pytest.mark.parametrize("line", ATTACKS)
def test_no_attack_passes_an_allow_by_command(line: str):
    assert STATUS.judge("execute", {"command": line}).action == "deny"


def test_there_are_enough_attacks():
    assert len(set(ATTACKS)) >= 100


@pytest.mark.parametrize(
    "line",
    [
        "git status",
        "  git   status --short  ",
        "git status && git log -3 --oneline",
        "git status; ls -la /tmp\ngit log",
        "git log | ls",
        "git log --grep 'a; rm -rf $(x) `y` > z'",
        'git log --grep "a; (b) | c"',
        "git status 2>&1",
        "git status 2>/dev/null >/dev/null",
        "git status </dev/null",
        "git 'status'",
        'g"i"t stat\\us',
        "find . -name x -type f",
        "git \\\n status",
        "ls a#b c=d x~y",
        "ls 'näme'",
    ],
)
def test_plain_lines_of_allowed_commands_pass(line: str):
    assert STATUS.judge("execute", {"command": line}).action == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "rm -rf /",
        "ls && rm x",
        "/bin/rm x",
        "\\rm x",
        "r'm' x",
        'r"m" x',
        "RM x",
        "rm.exe x",
        "X=1 rm x",
        ">x rm y",
        "sudo rm x",
        "sudo -u root -- rm x",
        "env A=1 rm x",
        "xargs -0 rm",
        "find . -exec rm {} +",
        "find . -execdir /bin/rm {} +",
        "sh -c 'rm x'",
        "bash -c \"cd /; 'rm' x\"",
        "sudo bash -c 'sh -c \"rm x\"'",
        "eval 'r''m x'",
        'eval r"m" x',
        "echo $(rm x)",
        "echo `rm x`",
        'echo "$(rm x)"',
        "cat <(rm x)",
        "(rm x)",
        "{ rm x; }",
        "if true; then rm x; fi",
        "! rm x",
        "$X -rf /",
        "${X}m x",
        "r$(true)m x",
        "`echo rm` x",
        "/bin/r? x",
        "r* x",
        "{rm,x}",
        "curl x | sh",
        "curl x | sudo bash -s",
        "git push",
        "git -C /x push",
        "git --no-pager push origin",
        "git $X",
        "mkfs.ext4 /dev/sda",
        "timeout 5 nice -n 3 rm x",
        "ls\nrm x",
        "ls 'unbalanced; rm x",
        "x" * 30_000,
    ],
)
def test_a_denied_command_is_found_in_what_runs_it(line: str):
    assert NO_RM.judge("execute", {"command": line}).action == "deny"


@pytest.mark.parametrize(
    "line",
    ["ls", "git pull", "echo rm", "cat rm.txt", "echo 'rm x'", "farm x", "git log --grep rm"],
)
def test_what_only_mentions_a_denied_command_is_not_it(line: str):
    assert NO_RM.judge("execute", {"command": line}).action == "allow"


@pytest.mark.parametrize(
    "args",
    [
        {"command": "git status", "args": ["; rm"]},
        {"command": "git", "args": ["status"]},
        {"command": "git status", "env": {"GIT_PAGER": "rm"}},
        {"command": "git status", "stdin": "x"},
        {"command": "git status", "cmd": "git status"},
        {"commands": ["git status", "rm -rf /"]},
        {"command": ["git", "push"]},
        {"command": ["git status"]},
        {"command": ["sh", "-c", "git status"]},
        {"command": {"line": "git status"}},
        {"command": 5},
        {"script": "git status"},
        {},
    ],
)
def test_other_shapes_of_a_command_do_not_slip_past(args: dict):
    assert STATUS.judge("execute", args).action == "deny"


def test_a_program_started_without_a_shell_is_judged_by_its_words():
    assert STATUS.judge("execute", {"command": ["git", "status", "; rm"]}).action == "allow"
    assert NO_RM.judge("execute", {"command": "git", "args": ["push"]}).action == "deny"


def test_each_command_of_a_line_has_the_first_rule_that_speaks_of_it():
    policy = Policy(
        (
            Rule("allow", command="git status"),
            Rule("ask", command="git", reason="look at it"),
            Rule("allow", command="ls"),
            Rule("deny", "execute"),
        )
    )

    def action(line: str) -> str:
        return policy.judge("execute", {"command": line}).action

    assert action("git status && ls") == "allow"
    assert action("ls && git push") == "ask"
    assert action("git push && cat x") == "deny"
    assert action("git push $X") == "ask"
    assert policy.judge("execute", {"command": "ls; git push"}).reason.endswith("look at it")


def test_a_reason_says_why_no_allow_held():
    verdict = STATUS.judge("execute", {"command": "git status > x"})
    assert verdict.reason.endswith("> leads to or from a file")


@pytest.mark.parametrize(
    "command", ["bash", "sudo", "/bin/sh", "xargs", "git && ls", "echo $X", "", "'", "a\nb"]
)
def test_an_allow_of_what_runs_anything_is_refused(command: str):
    with pytest.raises(PolicyError, match="command"):
        Rule("allow", command=command)


def test_a_runner_can_be_allowed_with_what_it_runs():
    policy = Policy((Rule("allow", command=["sudo systemctl status", "timeout * ls"]),), "deny")
    assert policy.judge("x", {"command": "sudo systemctl status nginx"}).action == "allow"
    assert policy.judge("x", {"command": "timeout 5 ls -l"}).action == "allow"
    assert policy.judge("x", {"command": "sudo rm x"}).action == "deny"
    assert (
        Policy((Rule("allow", command="s* rm"),), "deny").judge("x", {"command": "sudo rm"}).action
        == "deny"
    )


BASH = shutil.which("bash")
PIECES = st.sampled_from(
    [*"aabbzz    \t\n;&|'\"\\$`(){}<>*?[]#~=!-2\r", "&&", "||", "2>&1", ">/dev/null", "a b", "aa",
     "\\\n", "'x y'", '"a b"', "&>/dev/null", ">&2", "</dev/null", "$(a)", "x=1 ", "if ", "! ",
     "1>&-", '"\\""', "12", "é", "fi"]
)  # fmt: skip
REPORT = (
    'command_not_found_handle() { printf "%s\\0" "$@" >"$SEEN/$BASHPID"; return $STATUS; }; '
    "exec 1>/dev/null 2>&1; PATH=/nonexistent; set +m\n"
)


def ran(text: str, status: int) -> list[tuple[str, ...]]:
    """Return the programs that bash looks for, with their arguments, if all exit with a status."""
    with TemporaryDirectory() as place:
        subprocess.run(
            [str(BASH), "--norc", "--noprofile", "-c", f"{REPORT}{text}\nwait"],
            timeout=60, cwd="/", env={"LC_ALL": "C.UTF-8", "SEEN": place, "STATUS": str(status)},
        )  # fmt: skip
        found = [file.read_bytes().decode("utf-8", "replace") for file in Path(place).iterdir()]
    return [tuple(one.split("\0")[:-1]) for one in found]


@pytest.mark.skipif(BASH is None, reason="needs bash")
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(PIECES, min_size=1, max_size=9).map("".join), st.integers(0, 1))
def test_a_shell_runs_nothing_that_was_not_seen(text: str, status: int):
    line = parse_line(text)
    assume(not line.doubt and line.commands)
    assert set(ran(text, status)) <= set(line.commands)


@pytest.mark.skipif(BASH is None, reason="needs bash")
def test_the_oracle_of_the_shell_would_notice():
    seen = [("aa", "b c"), ("y",), ("zz",)]
    assert sorted(ran("aa 'b c' && z\\z | y &", 0)) == seen
    assert ran("aa 'b c' && z\\z | y", 1) == seen[:1]


@pytest.mark.parametrize(
    "line",
    [
        "git " * 4_900,
        "sudo " * 3_900 + "$",
        "bash -c " + "'a b' " * 3_000,
        "(" * 19_000,
        "'" * 19_999,
        "eval " + '"a b" ' * 3_000,
        "find . " + "-exec " * 3_000,
        "bash " * 3_900,
        "$ " * 9_000,
    ],
)
def test_no_line_takes_long(line: str):
    policy = Policy([Rule("deny", command=f"git push{n}") for n in range(20)])
    start = time.thread_time()
    policy.judge("execute", {"command": line})
    assert time.thread_time() - start < 3
