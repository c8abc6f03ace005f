"""Words that a shell reads once more: as arithmetic, as a variable with an index, as a command.

What bash runs is asked of bash itself: all lines go to one shell, in which `rm` is a function that
notes which line called it.
"""

import shutil
import subprocess
from functools import cache
from shlex import quote

import pytest

from deep_agent_mcp.harness.policy import Policy, Rule

NO_RM = Policy([Rule("deny", command=["rm", "git push"])])

CALLS = ["$(rm x)", "`rm x`", "$(r${u}m x)", "$(r\\m x)", "$($(echo rm) x)", "${u:-$(rm x)}"]
PAYLOADS = [*(f"a[{call}]" for call in CALLS), "a[b[$(rm x)]]", "a[$(command r$u'm' x)]"]

READERS = """
test -v CODE
[ -v CODE ]
[[ -v CODE ]]
test -n x -a -v CODE
test ! -v CODE
[[ CODE -eq 1 ]]
[[ 1 -lt CODE ]]
[[ -n x && -v CODE ]]
[[ -z x || 1 -ge CODE ]]
[[ ( -v CODE ) ]]
if [[ -v CODE ]]; then :; fi
if test -v CODE; then :; fi
while [ -v CODE ]; do :; done
! test -v CODE
builtin test -v CODE
command test -v CODE
eval test -v "'CODE'"
let CODE
let 1+CODE
builtin let CODE
declare -i n=CODE
declare -i n; n=CODE
typeset -i n; n+=CODE
f() { local -i n=CODE; }; f
readonly -i n=CODE
export -i n=CODE
declare CODE=1
unset CODE
printf -v CODE x
printf -vCODE x
read CODE <<< x
read -r CODE <<< x
read -a b CODE <<< x
sleep 0 & wait -n -p CODE
(( CODE ))
(( 1 + CODE ))
echo $(( CODE ))
echo $(( 1 + CODE ))
echo $[ CODE ]
for (( i = CODE; 0; )); do :; done
x=abc; echo ${x:CODE}
b=(1); b[CODE]=1
b=(1); echo "${b[CODE]}"
x=CODE; test -v "$x"
x=CODE; unset "$x"
x=CODE; let "$x"
x=CODE; [[ $x -eq 1 ]]
x=CODE; [[ x -eq 1 ]]
x=CODE; (( x ))
x=CODE; echo $((x))
x=CODE; printf -v "$x" y
x=CODE; read "$x" <<< y
x=CODE; declare -i n="$x"
x=CODE; echo "${x:x}"
read -r x <<< CODE; test -v "$x"
set -- CODE; test -v "$1"
printf -v x %s CODE; [[ $x -eq 1 ]]
printf -v x %s CODE; let x
export x=CODE; let x
for x in CODE; do [[ $x -eq 1 ]]; done
f() { unset "$1"; }; f CODE
eval 'x=$1; test -v "$x"' CODE
""".strip().split("\n")

TEXTS = """
x=CODE; echo "${x@P}"
x=CODE; y="${x@P}"
PS4=CODE; set -x; :
export PS4=CODE; set -x; :
declare PS4=CODE; set -x; :
printf -v PS4 %s CODE; set -x; :
read -r PS4 <<< CODE; set -x; :
compgen -W CODE
complete -W CODE x; compgen -W CODE
declare -a 'b=(RAW)'
typeset -a 'b=(RAW)'
readonly -a 'b=(RAW)'
declare -A b; declare 'b=(RAW)'
""".strip().split("\n")

COMMANDS = """
compgen -C CODE
compgen -CCODE
builtin compgen -C CODE
jobs -x bash -c CODE
mapfile -c 1 -C CODE b <<< y
mapfile -c 1 -CCODE b <<< y
readarray -c 1 -C CODE b <<< y
trap CODE EXIT; exit
trap CODE DEBUG; :
trap -- CODE ERR; false
eval CODE
builtin eval CODE
shopt -s expand_aliases; alias a=CODE; eval a
coproc eval CODE; wait
bash -c CODE
exec bash -c CODE
BASH_ENV=<(echo CODE) bash -c :
f() { eval "$1"; }; f CODE
. <(echo CODE)
source /dev/stdin <<< CODE
env PROMPT_COMMAND=CODE bash --norc -i
export PROMPT_COMMAND=CODE; bash --norc -i
""".strip().split("\n")

NOTED = "rm() { echo $CASE >&9; }; export -f rm; export CASE\n"


def lines() -> list[str]:
    """Return lines that may run `rm`, each by what reads a word once more."""
    found = [one.replace("CODE", quote(text)) for one in READERS for text in PAYLOADS]
    found += [one.replace("CODE", '"a[\\$(r${u}m x)]"') for one in READERS]
    found += [one.replace("CODE", quote(text)) for one in TEXTS if "CODE" in one for text in CALLS]
    found += [one.replace("RAW", text) for one in TEXTS if "RAW" in one for text in CALLS]
    found += [f"test -v $'a[{call}]'" for call in (r"\x24(r\x6d x)", r"\044(r\155 x)")]
    found += [f"x=$'a[{call}]'; let x" for call in (r"\x24(rm x)", r"\u0060rm x\u0060")]
    found += ["x='a[$(r'; y='m x)]'; test -v \"$x$y\"", "x='a[$'; y='(rm x)]'; unset \"$x$y\""]
    texts = ("rm x", "r\\m x", "r${u}m x")
    return found + [one.replace("CODE", quote(text)) for one in COMMANDS for text in texts]


@cache
def run_by_bash() -> list[str]:
    """Return those of the lines with which bash calls `rm`."""
    tried = lines()
    script = NOTED + "".join(
        f"( CASE={number}; eval {quote(line)} ) </dev/null >/dev/null 2>&1\n"
        for number, line in enumerate(tried)
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", 'exec 9>&1; eval "$(cat)"'],
        input=script,
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "/usr/bin:/bin"},
    )
    return [tried[number] for number in sorted({int(one) for one in done.stdout.split()})]


def denied(line: str) -> bool:
    return NO_RM.judge("execute", {"command": line}).action == "deny"


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_what_bash_runs_when_it_reads_a_word_again_is_denied() -> None:
    ran = run_by_bash()
    assert len(ran) >= 500
    assert [line for line in ran if not denied(line)] == []


def test_what_other_shells_may_read_again_is_denied() -> None:
    tried = [line for line in lines() if "$'" not in line and "rm" in line]
    assert len(tried) >= 300
    assert [line for line in tried if not denied(line)] == []


PLAIN = r"""
test -f x
test -f x -o -d y
test -v x
test -v 'a[1]'
test 3 -lt 4
test -n '$(rm x)'
unset x y
unset 'a[$i]'
read -r line
printf '%s\n' '$(rm x)'
printf '%d items\n' 3
let i+=1
let 'i = i + 1'
declare -a list
declare -p
export -p
wait -n
mapfile -t lines
compgen -A function
complete -p
getopts 'ab:' opt
bind -p
enable -n test
source venv/bin/activate
grep '$(rm x)' f
""".strip("\n").split("\n")

HARMLESS = r"""
[ "$a" -eq 1 ]
[ -f x ] && echo y
[[ $a == b && -n $c ]]
[[ $a -gt 3 ]] || echo few
test "$a" -eq 1
test -n "$(git status --porcelain)"
unset "$x"
read -p 'Costs $5? ' a
printf -v x '%05d' 7
printf '\033[31m%s\033[0m\n' "$x"
declare -i n=3
local x="$1"
export DEBUG=1 LANG=C.UTF-8
export PATH="$HOME/bin:$PATH"
grep -E 'x$' f; export PATH="$HOME/bin:$PATH"
grep '$(x)' f; test -f "$x"
x="$(dirname "$0")/.."; cd "$x"
echo "$(date)-$x" "`date`-$x"
i=$((i + 1))
echo "$((a * 2))"
trap - EXIT
. ./env.sh
""".strip("\n").split("\n")


def test_words_without_code_stay_plain() -> None:
    assert [line for line in PLAIN + HARMLESS if denied(line)] == []


def test_what_is_allowed_by_name_reads_no_code() -> None:
    programs = "test [ [[ let unset read printf declare typeset readonly export wait getopts"
    allowing = Policy([Rule("allow", command=programs.split())], default="deny")

    def allowed(line: str) -> bool:
        return allowing.judge("execute", {"command": line}).action == "allow"

    assert [line for line in lines() if allowed(line)] == []
    named = [line for line in PLAIN if line.split()[0] in programs.split()]
    plain = [line for line in named if "$" not in line and "[" not in line]
    assert len(plain) >= 10
    assert [line for line in plain if not allowed(line)] == []
