"""Ways past command rules: what must never be allowed, what a denial sees, and what it does not."""

import random
import shutil
import subprocess
import time

import pytest

from deep_agent_mcp.harness.policy import Policy, PolicyError, Rule

ALLOWED = Policy(
    [
        Rule(
            "allow",
            command=[
                "git status", "git log", "git bisect", "git submodule", "git fetch", "git * status",
                "ls", "cat", "echo", "find", "find *", "sort", "sed", "tar -xf", "less", "man",
                "ip", "python manage.py", "python *", "perl tool.pl", "node app.js",
                "uv run pytest", "go", "go build", "make", "make test", "npm", "npm test",
                "curl", "docker", "sqlite3 app.db", "sqlite3 -readonly", "duckdb",
                "sudo git status", "sudo find", "timeout 5 git", "timeout * ls", "timeout * find",
                "env A=1 ls", "nice -n 3 ls", "sh -c 'git status'", "bash run.sh", "watch ls",
                "ssh host ls", "eval ls", "parallel ls", "xargs find", "xargs -n 1 git status",
            ],
        )
    ],
    default="deny",
)  # fmt: skip
NO_RM = Policy([Rule("deny", command=["rm", "git push"])])

UNLISTED = r"""
sqlite3 app.db '.shell ls'
sqlite3 app.db '.sh ls'
sqlite3 app.db 'select 1' '.once out'
sqlite3 app.db '.import x y'
sqlite3 app.db "select writefile('x', 'y')"
sqlite3 app.db -cmd '.shell ls'
sqlite3 app.db "attach 'other.db' as other"
sqlite3 -readonly b.db '.system ls'
duckdb b.db '.shell ls'
duckdb b.db "copy t to 'x'"
duckdb b.db "install httpfs"
git bisect run rm x
git bisect start; git bisect run ./evil
git bisect --no-checkout run rm
git submodule foreach rm x
git submodule --quiet foreach 'rm x'
git fetch --upload-pack=rm .
git fetch --upload-pack rm .
git -c core.pager=rm log
git --exec-path=/evil log
git log --output=x
git log --ext-diff
find -exec rm x +
find . -execdir rm x \;
find . -ok rm x \;
find -delete
find x -fprintf y z
find . -fls x
sudo find . -exec rm x +
sudo find -delete
sudo git -c x=y status
sudo -u root git status
sudo -s
sudo git statusx
timeout 5 git -c core.pager=rm log
timeout 5 git bisect run rm
timeout 5 rm
timeout --foreground 5 git status
timeout -s ls rm
timeout -k ls ls rm
timeout --signal=ls ls rm
make test SHELL=/bin/evil
make test CC=evil
make -f evil.mk
make -fevil.mk test
make --file=evil test
make --fil=evil test
make --eval='$(shell rm)' test
make test --eval=x
make -C /evil
make -Bf x
make SHELL=rm
npm exec rm
npm x rm
npm --silent exec rm
npm init evil
npm test --script-shell=evil
npm install --prefix /evil
sed '1e rm x' f
sed e f
sed 's/x/rm y/e' f
sed -n 's/x/y/gew' f
sed 's/a/b/w evil/g' f
sed 's/a/b/;e' f
sed 'w evil' f
sed 1w/evil f
sed -e e f
sed -i s/a/b/ f
sed -f evil f
sed --expression=e f
sed -l 5 e f
sed -E e f
sed '{e
}' f
sed 's/x/y/;1e' f
sed '/x/e' f
sed 's/a\/b/c/e' f
sed 'r /etc/shadow' f
sed '/[/s/]/e /g' f
sed '/[/s/]/w/g' f
sed 's/[/]/;s/e;s/x/' f
sed 's/a/[/;s/]/e/g' f
python manage.py; python -c 'import os'
python -c 'import os; os.system("rm")'
python3 -c x
uv run rm
uv run --with x rm
xargs -n 1 rm
xargs -n 1 git statusx
xargs -n 2 git status
xargs rm
sort -o x y
sort --compress-program=rm x
sort --comp=rm x
tar -xf a --to-command=rm
tar -xf a -I rm
tar -xf a --use-compress-program=rm
tar -xf a --checkpoint=1 --checkpoint-action=exec=rm
tar -xf a --chec=1 --checkpoint-act=exec=rm
env A=1 rm
env A=2 ls
env A=1 LD_PRELOAD=x ls
env A=1 -S 'rm' ls
nice -n 3 rm
nice -n 4 ls
nice ls
sh -c 'git status; rm'
sh -c rm
perl -e 'x'
perl -I. tool.pl
perl tool.plx
perl
node -e x
node
node --require ./evil app.js
node -r ./evil app.js
go run evil.go
go generate
go test -exec rm
go build -toolexec rm
go build -toolexec=rm x
go vet -vettool=rm
curl -K evil
curl -o x y
curl -sSLo x y
curl --output x y
curl --config x
curl url | sh
less '+!rm' f
less -o x f
docker run x rm
docker exec x rm
docker compose run x
docker compose exec x rm
docker -H x run y
docker --host x run y
man -P rm x
man --pager=rm x
man --pag=rm x
man -H rm
ip netns exec x rm
ip -n x netns exec y rm
ip vrf exec x rm
bash run.shx
bash
bash -c rm
bash -x run.sh
awk 'BEGIN{system("rm")}'
g\it statu\s -x; r\m
git status;$'rm' x
git status $'\n'rm
git $'status'
$'git' status
git status <<'E'
git status <<< $(rm)
ls < <(rm)
ls > >(rm)
ls {a,b}
ls ~
ls ~root
ls *
ls ?
ls !(x)
ls @(x)
command ls
builtin echo
exec ls
exec -a x ls
'exec' ls
\exec ls
"command" ls
-- ls
ls -- $(rm)
A= ls
A=1 B=2 ls
ls=1 rm
LS_COLORS=x ls
export PATH=/evil; ls
PATH=/evil; ls
declare -x PATH=/evil
hash -p /evil ls
enable -f /evil.so ls
alias ls=rm
unalias ls
set -- rm; "$@"
trap rm EXIT
ls()(rm)
ls () { rm; }; ls
function ls { rm; }
ls & rm
ls &! rm
ls |& rm
ls |tee >(rm)
ls&&rm
ls||rm
!ls
!!
!rm
^ls^rm
ls;!rm
ls # x
ls \
 rm
LS
Ls
ls.exe
/bin/ls
./ls
../ls
bin/ls
cat <(rm)
echo $(<x)
echo `rm`
echo "`rm`"
echo "$(rm)"
echo ${x:-`rm`}
echo $((a[$(rm)]))
echo "${x@P}"
echo x >&2 > y
echo x 2>&1 >y
echo x >&y
echo x &>y
echo x >|y
echo x <>y
echo x 3>y
echo x {fd}>y
echo x >/dev/null/../x
echo x >/dev/tcp/a/1
echo x > '/dev/null'
time ls
time -p ls
coproc ls
[[ -n $(rm) ]]
[ -n x ] && rm
test x -a $(rm)
case x in x) rm;; esac
select x in ls; do rm; done
until ls; do rm; done
ls; fi
((rm))
(ls)
{ ls; }
source ls
. ls
printf -v PATH /evil
read PATH
echo x | read PATH
echo rm | bash run.sh x | sh
cat x | sh
cat x | python
cat x | python -
echo x | perl
ls | xargs rm
ls | xargs
ls | xargs -n 1
ls ^& rm
ls $env:PATH
ls `nrm
ls "a
ls 'a
ls $'a
ls "a\
watch ls ';rm'
watch ls '$(rm)'
ssh host ls ';rm'
ssh host ls '`rm`'
parallel ls ::: ';rm'
eval ls ';rm'
xargs find
xargs -n 1 git status
python
python -u
git -c status
docker run ps
timeout 5 find -exec rm x
git config alias.x '!rm'
git * status
""".strip("\n").split("\n")
UNLISTED += [
    "ls\x00rm",
    "ls\x0crm",
    "ls\x85rm",
    "ls \u202erm",
    "ls\ufeff",
    "ls\u3000rm",
    "l\u0455",
    "sed '{e\n}' f",
]


def allowed(line: str) -> bool:
    return ALLOWED.judge("execute", {"command": line}).action == "allow"


def denied(line: str) -> bool:
    return NO_RM.judge("execute", {"command": line}).action == "deny"


def test_no_line_is_allowed_that_could_run_an_unlisted_program():
    assert len(set(UNLISTED)) >= 200
    assert [line for line in UNLISTED if allowed(line)] == []


PLAIN = r"""
sqlite3 app.db
sqlite3 app.db .tables
sqlite3 app.db 'select count(*) from songs'
sqlite3 -readonly app.db '.schema songs'
git status -s
git log -3 --oneline
git bisect good
git submodule update --init
git fetch origin main
find . -name '*.py' -type f
sort -u -k2 in
sed -n 1,5p f
sed 's/a/b/g' f
sed '/x/d;s#a#b#' f
sed -n '1,/end/p;$d' f
sed 's/[a-z]*/x/2' f
tar -xf a.tar -v
less -N f
ip addr
python manage.py -c x
python --version
python -m pytest
perl tool.pl -e x
node app.js -e x
uv run pytest -x
go build ./x
make -j4 test
npm install x
npm test
curl -sSL https://x
docker image ps
sudo git status -s
timeout 5 git status
timeout 5 ls -l
timeout 5 find . -name x
env A=1 ls -S
sh -c 'git status'
bash run.sh -c x
watch ls -l /x
ssh host ls -l
""".strip("\n").split("\n")


def test_plain_lines_of_allowed_programs_pass():
    assert [line for line in PLAIN if not allowed(line)] == []


def refused_by_sed(script: str) -> bool:
    """Whether sed finds a command in a script that writes, reads or runs."""
    words = ["sed", "--sandbox", "-n", script, "/dev/null"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    return "sandbox" in done.stderr


@pytest.mark.skipif(shutil.which("sed") is None, reason="needs sed")
def test_sed_finds_nothing_to_run_in_a_script_that_is_allowed():
    if not refused_by_sed("1e x"):
        pytest.skip("needs the sed of GNU")
    dice = random.Random(7)
    pieces = ["s/", "s,", "s#", "/", ",", "[", "]", ";", "e", "w f", "e x", "g", "p", "1", "$", "d"]
    scripts: set[str] = set()
    while len(scripts) < 60:
        script = "".join(dice.choices(pieces, k=dice.randint(3, 12)))
        if allowed(f"sed '{script}' f"):
            scripts.add(script)
    assert [script for script in scripts if refused_by_sed(script)] == []


@pytest.mark.parametrize(
    "command",
    [
        "sudo", "sudo -n", "sudo -u root", "sudo *", "sudo xargs", "sudo timeout 5", "timeout 5",
        "timeout *", "nice -n 3", "env -i", "env A=1", "sh -c", "busybox sh", "uv run",
        "uv tool run", "npm exec", "git bisect run", "git bisect run *", "ip netns exec", "awk",
        "ssh host", "xargs -n 1", "xargs -I {}", "xargs * ls", "docker run", "watch", "flock /x",
    ],
)  # fmt: skip
def test_an_allow_that_leaves_open_what_runs_is_refused(command: str):
    with pytest.raises(PolicyError, match="would allow everything") as caught:
        Rule("allow", command=command)
    assert f"'{command} NAME'" in str(caught.value)
    Rule("deny", command=command)


@pytest.mark.parametrize(
    "command",
    [
        "sudo ls", "sudo -u root ls", "timeout * ls", "env A=1 ls", "busybox ls", "uv run pytest",
        "npm run *", "git bisect run pytest", "xargs -n 1 grep", "npx tsc", "python", "make",
        "docker run alpine", "awk {print}", "git *", "find",
    ],
)  # fmt: skip
def test_an_allow_that_names_what_runs_is_taken(command: str):
    Rule("allow", command=command)


DENIED = r"""
npx rm x
prlimit --cpu=1 rm x
setarch x86_64 rm x
linux32 rm x
git bisect run rm x
git bisect run sh -c 'rm x'
git submodule foreach 'rm x'
git submodule foreach git push
git -c core.pager='rm x' log
git -c alias.x='!rm x' x
git -c alias.x=!rm x
git rebase --exec 'rm x'
git rebase --exec='rm x'
git rebase --exe='rm x'
git rebase -x 'rm x'
git rebase -x'rm x'
git grep -Orm x
git grep --open-files-in-pager=rm x
git fetch --upload-pack=rm .
git fetch --upload-pack='rm x' .
git clone -c core.sshCommand='rm x' y
git clone -u 'rm x' y
git clone y -u 'rm x'
git clone -urm y
git clone -qu'rm x' y
tar xIf 'rm x' a.tar
git clone --config core.sshCommand='rm x' y
git filter-branch --tree-filter 'rm x'
git filter-branch --msg-filter='rm x'
git log --ext-diff; git  push
git --git-dir=x push
git --git-dir x push
git -Cx push
git --no-pager --literal-pathspecs push
flock /tmp/l rm x
flock /tmp/l -c 'rm x'
stdbuf -o0 rm x
ionice -c2 rm x
ionice -c 2 -n 0 rm x
chrt -f 1 rm x
taskset 1 rm x
taskset -c 0,1 rm x
unshare -r rm x
nsenter -t 1 rm x
script -c 'rm x' /dev/null
script -qc 'rm x'
script --command='rm x'
script --command=rm
watch rm x
watch 'rm x'
parallel rm ::: x
parallel 'rm {}' ::: x
find . -exec rm {} +
find . -exec sh -c 'rm x' \;
find . -execdir rm {} +
find . -ok rm {} \;
find . -okdir rm {} \;
find -exec /bin/rm x +
fd -x rm
fd -xrm
fd --exec=rm
fd --exe=rm
fd -Hx rm
make SHELL=rm
make SHELL=/bin/rm x
make CC='rm x'
make --eval='$(shell rm x)'
make --eval '$(shell rm x)'
env -S 'rm x'
env -S'rm x'
env -Srm
env -iSrm
env --split-string='rm x'
env --split-string=rm
env --split=rm
env -u X rm x
env -C /x rm y
busybox rm x
busybox sh -c 'rm x'
toybox rm x
tar xf a --to-command=rm
tar xf a --to-command='rm x'
tar xf a --to-com='rm x'
tar -xf a -Irm
tar -xf a -I 'rm x'
tar cf a b --checkpoint=1 --checkpoint-action=exec=rm
tar cf a b --checkpoint-action=exec='rm x'
tar cf a --rsh-command=rm b
rsync -e rm a b
rsync -e 'rm x' a b
rsync -erm a b
rsync -aerm a b
rsync --rsh=rm a b
rsync --rsh='rm x' a b
sort --compress-program=rm x
sort --compress-prog=rm x
rg --pre=rm x
rg --pre rm x
split --filter='rm x' y
split --filter=rm y
zip x y -TT 'rm x'
zip x y -T --unzip-command='rm x'
man -Prm x
man -P 'rm x' y
man --pager='rm x' y
tcpdump -z rm
ip netns exec n rm x
ip -n a netns exec n rm x
scp -S rm a b
ssh h rm x
ssh h 'rm x'
ssh -o ProxyCommand='rm x' h
ssh -oProxyCommand='rm x' h
ssh -oProxyCommand=rm h
sed '1e rm x' f
sed 's/.*/rm x/e' f
sed -e '1e rm x' f
sed --expression='1e rm x' f
awk 'BEGIN{system("rm x")}'
awk 'BEGIN { "rm x" | getline }'
perl -e 'system("rm","x")'
perl -e 'system "rm x"'
perl -E 'exec qw(rm x)'
perl -pe 'system(rm)'
perl -e'`rm x`'
python -c 'import os; os.system("rm x")'
python3 -c "import subprocess; subprocess.run(['rm','x'])"
python3.12 -c "import os;os.execvp('rm',['rm','x'])"
python -Ic "import os; os.system('/bin/rm x')"
ruby -e 'system("rm x")'
ruby -e '`rm x`'
node -e 'require("child_process").execSync("rm x")'
node -p 'child_process.execSync(`rm x`)'
node --eval='child_process.execSync("rm x")'
node --eval "x('rm')"
php -r 'system("rm x");'
lua -e 'os.execute("rm x")'
vim -c ':!rm x' -c :q
vim '+!rm x'
vim -es '+:!rm x' +q
ex -c '!rm x'
ed '!rm'
less '+!rm x' f
gdb -ex '!rm x'
gdb -batch -ex 'shell rm x'
sqlite3 -cmd '.shell rm x'
sqlite3 --cmd '.shell rm x' a.db
sqlite3 a.db '.shell rm x'
sqlite3 a.db .sh\\ rm\\ x
sqlite3 -json a.db 'select 1' '.system rm x'
sqlite3 a.db '.once |rm x'
sqlite3 a.db ".import '|rm x' t"
sqlite3 a.db "select edit('x', 'rm')"
duckdb a.db '.shell rm x'
duckdb -c '.shell rm x'
psql -c '\! rm x'
su -c 'rm x'
su root -c 'rm x'
su -c'rm x'
su --command='rm x' root
sudo -u root rm x
sudo -- rm x
sudo A=1 rm x
sudo -s rm x
doas rm x
runuser -u x -- rm y
setpriv --reuid=1 rm x
capsh -- -c 'rm x'
xargs rm
xargs -n1 rm
xargs -I{} rm {}
xargs -a f rm
xargs --arg-file=f rm
xargs sh -c 'rm x'
timeout 1 rm x
timeout -s KILL 1 rm x
time rm x
time -p rm x
nohup rm x &
setsid rm x
setsid -w rm x
nice rm x
nice -n 5 rm x
exec rm x
exec -a y rm x
command rm x
command -p rm x
builtin command rm x
eval rm x
eval 'rm' x
eval "r""m x"
eval $'rm x'
eval "$(echo rm x)"
eval "ev""al 'rm x'"
sh -c rm
sh -c 'rm x'
sh -c "rm x"
sh -c rm\ x
sh -c 'sh -c "rm x"'
sh -c 'eval "rm x"'
sh -ec 'rm x'
bash -lc 'rm x'
bash -c 'exec rm x'
bash <<< 'rm x'
bash <<E
sh -s <<< rm
echo rm x | sh
echo rm x | bash -
echo rm x|sh -s
base64 -d <<< cm0= | sh
sh < f
sh <(echo rm x)
. <(echo rm x)
source /dev/stdin <<< 'rm x'
trap 'rm x' EXIT
trap rm EXIT
alias a=rm; a x
alias a='rm x'
f() { rm x; }; f
function f { rm x; }; f
f() (rm x)
coproc rm x
{ rm x; }
(rm x)
((1)) && rm x
[[ 1 ]] && rm x
if :; then rm x; fi
while rm x; do :; done
for i in x; do rm $i; done
for i in x; do "rm" $i; done
case x in x) rm x;; esac
! rm x
A=1 rm x
A=rm; $A x
a=r b=m; $a$b x
A=(rm x); "${A[@]}"
set rm x; "$@"
r''m x
r""m x
r\m x
\r\m x
"r"m x
'rm' x
$'rm' x
$'\x72\x6d' x
$'r'm x
r$''m x
r$@m x
r${x}m x
r`:`m x
r$(:)m x
{rm,x}
{r,}m x
r? x
r[m] x
/bin/r* x
/bin/rm x
/usr/../bin/rm x
//bin//rm x
./rm x
~/rm x
RM x
Rm x
rm.exe x
rm	x
rm
  rm x
;rm x
&&rm x
ls;rm x
ls&rm x
ls|rm x
ls||rm x
ls|&rm x
>f rm x
<f rm x
2>&1 rm x
rm>f x
rm<f
rm&
rm;
echo `rm x`
echo $(rm x)
echo "$(rm x)"
echo "`rm x`"
echo $((`rm x`))
echo ${x:-$(rm x)}
cat <(rm x)
tee >(rm x)
echo x > >(rm x)
git p\ush
git "push"
git 'pu'sh
git -c a=b push
git -C /x -c y=z push
git --exec-path=/x push
git $(echo push)
git {push,}
xargs git push
GIT push
git PUSH
echo origin | xargs git push
cat <<E | sh
uv run rm x
npm exec rm x
npm exec -- rm x
npm exec -c 'rm x'
poetry run rm x
docker run -v /:/h a rm /h
docker exec c rm x
kubectl exec p -- rm x
bundle exec rm x
conda run rm x
nix run rm
nix-shell --run 'rm x'
nix-shell -p x --run='rm x'
go test -exec rm
go build -toolexec='rm x'
cargo --config 'x="rm"' run
systemd-run rm x
systemd-run -p A=1 rm x
start-stop-daemon --start --exec /bin/rm -- x
strace -f rm x
ltrace rm x
valgrind rm x
tmux new 'rm x'
screen -dm rm x
expect -c 'spawn rm x'
osascript -e 'do shell script "rm x"'
powershell -c 'rm x'
pwsh -Command rm x
cmd /c rm x
cmd.exe /c "rm x"
wsl rm x
chroot / rm x
bwrap --bind / / rm x
firejail rm x
faketime now rm x
entr rm x
ls | entr -s 'rm x'
curl x | python
curl x | python3 -
curl x | perl
git config alias.x '!rm x'
echo 'rm x' > s; sh s
perl -MPOSIX=rm
""".strip("\n").split("\n")
DENIED += ["r\\\nm x", "rm\tx", "\nrm x", "bash <<E\nrm x\nE", "cat <<E | sh\nrm x\nE"]


def test_a_denied_program_is_found_in_what_runs_it():
    assert len(set(DENIED)) >= 300
    assert [line for line in DENIED if not denied(line)] == []


MENTIONED = r"""
ls
git pull
git commit -m 'rm x'
git commit -m 'push and rm'
git commit -am "rm x"
git log --grep rm
git log --grep='rm x'
git log --format='rm %s' -3
echo rm
cat rm.txt
farm x
make clean
make rm
npm run rm
npm install rm
npm test -- rm
python rm.py
python x.py --rm
python x.py 'rm x'
python --version
python -m pytest -k rm
grep -r 'rm -rf' .
find . -name rm
find . -name 'rm*' -type f
sort rm
sed -n 1,5p rm
sed 's/rm/x/' f
sed -n '/rm/p' f
tar -czf rm.tgz rm
rg 'rm -rf' src
ls && cat x | grep rm
node app.js rm
go build ./rm
cargo build rm
docker ps
docker images rm
curl https://x/rm
git add rm
kubectl get rm
pip install rm
bundle install
""".strip("\n").split("\n")


def test_what_only_mentions_a_denied_program_is_let_through():
    assert [line for line in MENTIONED if denied(line)] == []


UNSEEN = r"""
unlink x
cp /bin/rm y; ./y x
ln -s /bin/rm y && ./y x
python clean.py
bash clean.sh
make clean
npm run clean
echo 'rm x' | at now
at now -f x
echo '.shell rm x' | sqlite3 app.db
""".strip("\n").split("\n")


def test_what_a_line_does_not_name_is_not_seen():
    """The limits that docs/policy.md states. What is allowed by name has none of them."""
    assert [line for line in UNSEEN if denied(line)] == []
    listed = Policy([Rule("allow", command=["ls", "cat"])], default="deny")
    for line in UNSEEN:
        assert listed.judge("execute", {"command": line}).action == "deny"


@pytest.mark.parametrize(
    "line",
    [
        "env " + "a=b=c " * 3_000,
        "env " + "'a=b c=d' " * 1_900,
        "env " + '\'a="b=c d=e" f="g h"\' ' * 800,
        "git -" + "c" * 19_900,
        "git -" + ("c" * 250 + " -") * 78,
        "git " + "bisect " * 2_800,
        "npm " + "- x " * 4_900,
        "uv " + "tool " * 3_900,
        "sed " + "s/" * 9_000,
        "sed '" + "s/a/b/;" * 2_700 + "'",
        "sed '" + "/" * 19_900 + "'",
        "perl -e " + "'a b' " * 3_000,
        "sh -c '" + 'env x="a b=c d" ' * 1_200 + "'",
        "sudo -u " * 2_400,
        'echo "$(x)" ' * 1_600,
        'echo "' + "$(" * 9_900,
        "`" * 19_900,
        'echo "`' + "'" * 19_900,
        "let 'a[$(x)]' " * 1_400,
        "let '" + "a[$(" * 4_900 + "'",
        "x='$(y)' " * 2_200,
        "[[ " + "'`x`' " * 3_300,
        "let " + "\\x24( " * 3_300,
        "eval " * 3 + '"$(x)" ' * 2_000,
        'echo "case ' + "$(x) " * 3_900 + '"',
    ],
)
def test_no_line_takes_long(line: str):
    start = time.thread_time()
    allowed(line)
    denied(line)
    assert time.thread_time() - start < 3
