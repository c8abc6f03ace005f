"""Attempts to get out of a sandbox, or to bring down what is around it. All of them fail.

Each runs in a real sandbox over a real directory with rules; the host's side is looked at from
outside.
"""

import ctypes
import os
import re
import socket
import textwrap
import time
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest

from deep_agent_mcp.harness.backends.composite import CompositeBackend
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.mounts import mounted_directories, with_workspace
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.policy import CallAuthorization, Policy, Rule
from deep_agent_mcp.harness.shell.bubblewrap import BubblewrapExecutionPolicy
from deep_agent_mcp.harness.shell.mount_table import layout_of, same_files
from deep_agent_mcp.harness.shell.policies import Layout
from deep_agent_mcp.harness.shell.sandbox import sandbox_of
from deep_agent_mcp.harness.shell.session import CommandResult, ShellError, open_session
from deep_agent_mcp.harness.tools.tool import tool
from tests.ports_and_waits import growing
from tests.shell.support import need_bubblewrap

pytestmark = pytest.mark.anyio

SECRET = "the-secret-of-the-host"
POLICY = Policy(
    [
        Rule("deny", path="/workspace/private/**"),
        Rule("deny", path="**/*.key"),
        Rule("deny", tool="write_file", path="/workspace/fixed/**"),
    ]
)


@tool
def execute(command: str) -> str:
    """Stand for the tool that a call is of."""
    return command


@dataclass
class Host:
    """What is around the sandbox.

    Attributes:
        root: The directory that is `/workspace`.
        outside: A directory beside it, with a secret.
        mark: A word that is on the command line of what the sandbox starts, and nowhere else.
    """

    root: Path
    outside: Path
    mark: str

    def layout(self, policy: Policy = POLICY) -> Layout:
        backend = with_workspace(DirectoryBackend(self.root), confined=True)
        directories = mounted_directories(backend, confined=True)
        bound = CallAuthorization(policy, "execute", {}, execute, execute, ("main",), "")
        return layout_of(directories, bound)

    async def run(
        self, command: str, *, seconds: float = 60, policy: Policy = POLICY, **options: int
    ) -> CommandResult:
        bounds = {"total_processes": 64, "total_memory_bytes": 256 << 20, "tmp_bytes": 16 << 20}
        execution = BubblewrapExecutionPolicy(**(bounds | options))  # type: ignore[arg-type]
        layout = await anyio.to_thread.run_sync(self.layout, policy)
        session = await open_session(execution.launch_in(layout, None, {}), execution)
        try:
            return await session.run(command, seconds)
        finally:
            await session.close()

    def left(self) -> list[str]:
        """Return the command lines of processes that the sandbox left behind."""
        found: list[str] = []
        for one in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = one.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue
            if self.mark in line:
                found.append(line)
        return found


@cache
def apart() -> bool:
    """Whether a sandbox has processes of its own and cannot write settings of the kernel.

    Without that the attempts would end what is on this machine.
    """
    look = "readlink /proc/self/ns/pid; grep -c ' /proc/sys ro' /proc/self/mountinfo"

    async def found() -> list[str]:
        execution = BubblewrapExecutionPolicy()
        session = await open_session(execution.launch_in(Layout("/tmp"), None, {}), execution)
        try:
            return text(await session.run(look, 60)).split()
        finally:
            await session.close()

    own, fixed = anyio.run(found)
    return own != os.readlink("/proc/self/ns/pid") and (os.getuid() != 0 or fixed == "1")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Host]:
    need_bubblewrap()
    assert apart()
    root, outside = tmp_path / "project", tmp_path / "home"
    for directory in (root / "private", root / "fixed", root / "src", outside):
        directory.mkdir(parents=True)
    (outside / "secret").write_text(SECRET)
    (root / "private/secret").write_text(SECRET)
    (root / "src/api.key").write_text(SECRET)
    (root / "fixed/text").write_text("fixed")
    (root / "out").symlink_to(outside)
    (root / "etc").symlink_to("/etc")
    (root / "inner").symlink_to("private/secret")
    monkeypatch.setenv("HOST_SECRET", SECRET)
    yield Host(root, outside, f"mark-{uuid4().hex}")
    assert (outside / "secret").read_text() == SECRET
    assert (root / "private/secret").read_text() == SECRET
    assert (root / "src/api.key").read_text() == SECRET
    assert (root / "fixed/text").read_text() == "fixed"
    assert sorted(one.name for one in (root / "fixed").iterdir()) == ["text"]


def text(result: CommandResult) -> str:
    return result.output.head.decode("utf-8", "replace")


# --- reading what is outside -----------------------------------------------------------------

READING = {
    "the password file": "cat /etc/shadow /etc/gshadow",
    "the user's home": "cat {outside}/secret; cat ~/secret; ls -R {outside} /root /home",
    "upwards": "cat ../home/secret ../../home/secret /workspace/../home/secret",
    "a link to a directory outside": "cat out/secret; ls out/",
    "a link to the system": "cat etc/shadow",
    "a new link": "ln -s {outside}/secret l; cat l; ln -s / r; cat r{outside}/secret",
    "a hard link": "ln {outside}/secret l; cat l",
    "a link to a hidden file": "cat inner; cp -L inner copy; cat copy",
    "a hidden directory": "cat private/secret; ls -A private; cp -r private p; cat p/secret",
    "a file of a hidden kind": "cat src/api.key; tar c src | grep -a secret; cat <src/api.key",
    "a hidden file by another name": "mv src s; cat s/api.key; mv src/api.key a; cat a",
    "a hidden file by its number": "find / -xdev -inum $(stat -c %i src/api.key) -exec cat {{}} +",
    "under the mounts": "umount private; umount -l src/api.key; cat private/secret src/api.key",
    "the root of the first process": "cat /proc/1/root{outside}/secret; cd /proc/1/root && ls home",
    "the directory of the first process": "cat /proc/1/cwd/../home/secret; ls /proc/1/fd/",
    "the root of the parent": "cat /proc/$PPID/root{outside}/secret",
    "environments of others": "cat /proc/*/environ | tr '\\0' '\\n'",
    "memory of others": "for p in /proc/[0-9]*; do head -c 100 $p/mem; cat $p/maps; done",
    "descriptors of others": "for f in /proc/1/fd/[3-7]; do timeout 0.1 cat $f </dev/null; done",
    "the old root": "cat /oldroot{outside}/secret /newroot{outside}/secret /.old{outside}/secret",
    "the mount table": "grep -o 'home/[^ ]*' /proc/self/mountinfo | xargs cat",
    "device nodes": "mknod d b 259 0; mknod /tmp/d b 8 0; mknod d c 1 1; head -c 9 d /tmp/d",
    "memory of the machine": "cat /dev/mem /dev/kmem /proc/kcore /dev/kmsg | head -c 9",
    "disks": "ls /dev/sd* /dev/vd* /dev/nvme* /dev/loop* && head -c 9 /dev/vda",
    "another root": "chroot /proc/1/root cat {outside}/secret; pivot_root . .",
    "another namespace": "nsenter -t 1 -a cat {outside}/secret; nsenter -m/proc/1/ns/mnt true",
}


@pytest.mark.parametrize("attempt", READING)
async def test_nothing_outside_can_be_read(host: Host, attempt: str) -> None:
    result = await host.run(READING[attempt].format(outside=host.outside))
    assert result.ending == "done"
    # What programs complain about may name the path, but not what is there.
    assert SECRET not in text(result)
    assert not re.search(r"^root:[^x]", text(result), re.MULTILINE)


async def test_private_keys_of_the_system_are_not_there(host: Host) -> None:
    result = await host.run("ls -d /etc/ssl/private /etc/pki/tls/private 2>/dev/null; ls /etc/ssl")
    assert "private" not in text(result)
    assert ("certs" in text(result)) == Path("/etc/ssl/certs").exists()


async def test_the_journal_and_other_state_are_not_there(host: Host) -> None:
    state = host.outside / "state"
    state.mkdir(mode=0o700)
    (state / "journal.sqlite3").write_text(SECRET)
    elsewhere = "-path /usr -o -path /proc -o -path /sys"  # large, and not of this machine's users
    search = rf"find / \( {elsewhere} \) -prune -o -name journal.sqlite3 -print 2>/dev/null"
    result = await host.run(f"cat {state}/*; {search}; echo end")
    assert text(result).endswith("end\n")
    assert SECRET not in text(result)
    assert "\n/" not in text(result)


# --- writing ---------------------------------------------------------------------------------

WRITING = {
    "a file that is fixed": "for f in text new; do echo x >fixed/$f; done; rm -rf fixed",
    "a fixed directory's name": "mv fixed f; mv fixed/text .; rmdir fixed; mv -T src fixed",
    "the system": "touch /usr/bin/x /etc/x /bin/x /lib/x; echo x >>/etc/passwd",
    "the root": "touch /x; mkdir /y; touch /dev/x /proc/x",
    "a mount made writable": "for p in fixed /usr; do mount -o remount,rw $p; touch $p/x; done",
    "a new mount": "mount -t tmpfs none /usr; mount --bind src fixed; touch fixed/x",
    "a user namespace": "unshare -Urm sh -c 'umount fixed; touch fixed/x'; unshare -Ur touch /x",
    "a user namespace by hand": "python3 -c 'import os; os.unshare(1 << 28)'; touch fixed/x",
    "kernel settings": "echo x >/proc/sys/kernel/core_pattern; sysctl -w kernel.hostname=x",
    "the kernel's requests": "echo b >/proc/sysrq-trigger; echo 1 >/proc/self/oom_score_adj; true",
    "outside by a link": "echo x >out/secret; echo x >out/new; rm out/secret; cp src/api.key out/",
    "outside by its path": "echo x >{outside}/secret; mkdir -p {outside}; touch {outside}/new",
    "a control group": "mkdir /sys/fs/cgroup/x; echo 0 >/sys/fs/cgroup/cgroup.procs; ls /sys/fs",
    "rights": "cp /bin/sh s; chmod u+s s; chmod 777 fixed fixed/text; chattr -i fixed",
}


@pytest.mark.parametrize("attempt", WRITING)
async def test_nothing_guarded_can_be_written(host: Host, attempt: str) -> None:
    pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    names = sorted(os.listdir("/"))
    modes = [(host.root / one).stat().st_mode for one in ("fixed", "fixed/text")]
    result = await host.run(WRITING[attempt].format(outside=host.outside))
    assert result.ending == "done"
    found = Path("/proc/sys/kernel/core_pattern").read_text()
    if found != pattern:
        Path("/proc/sys/kernel/core_pattern").write_text(pattern)
    assert found == pattern
    assert sorted(os.listdir("/")) == names
    assert [(host.root / one).stat().st_mode for one in ("fixed", "fixed/text")] == modes
    assert sorted(one.name for one in host.outside.iterdir()) == ["secret"]
    assert not Path("/usr/x").exists()
    # What is not guarded can be written, so the attempts failed for no other reason.
    assert (await host.run("touch src/fine")).exit_code == 0
    assert (host.root / "src/fine").exists() or "src fixed" in WRITING[attempt]


async def test_a_program_gains_no_rights(host: Host) -> None:
    result = await host.run(
        "grep -E 'Cap(Eff|Prm|Bnd)|NoNewPrivs' /proc/self/status; "
        "su -c id </dev/null 2>&1 | head -1"
    )
    lines = text(result)
    for name in ("CapEff", "CapPrm", "CapBnd"):
        assert f"{name}:\t0000000000000000" in lines
    assert "NoNewPrivs:\t1" in lines


KEYS = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
call = {"x86_64": 250, "aarch64": 219}[__import__("os").uname().machine]
key = libc.syscall(call, 10, -3, b"user", sys.argv[1].encode(), 0)
text = ctypes.create_string_buffer(100)
print("found" if key > 0 else "none", libc.syscall(call, 11, key, text, 100), text.value)
if key > 0: libc.syscall(call, 9, key, -3)
"""


async def test_keys_of_the_host_cannot_be_used(host: Host) -> None:
    numbers = {"x86_64": (248, 250), "aarch64": (217, 219)}.get(os.uname().machine)
    if numbers is None:
        pytest.skip("the numbers of the system calls are not known for this machine")
    add, control = numbers
    libc = ctypes.CDLL(None, use_errno=True)
    name, secret = host.mark.encode(), SECRET.encode()
    key = libc.syscall(add, b"user", name, secret, len(secret), -3)
    if key < 0:
        pytest.skip(f"no key can be made here: {os.strerror(ctypes.get_errno())}")
    (host.root / "keys.py").write_text(KEYS)
    assert text(await host.run(f"python3 keys.py {host.mark}")).startswith("none -1")
    assert libc.syscall(control, 10, -3, b"user", name, 0) == key  # nor was it taken away
    libc.syscall(control, 9, key, -3)


LENDING = {
    "chmod": "os.chmod('s', mode)",
    "fchmod": "os.fchmod(os.open('s', os.O_RDONLY), mode)",
    "fchmodat": "os.chmod('s', mode, dir_fd=os.open('.', os.O_RDONLY))",
    "a new file": "os.close(os.open(new(), os.O_CREAT | os.O_WRONLY, mode))",
    "a new file with creat": "assert ctypes.CDLL(None).creat(new().encode(), mode) >= 0",
    "a file without a name": "os.close(os.open('.', os.O_TMPFILE | os.O_RDWR, mode))",
    "a pipe": "os.mkfifo(new(), mode)",
}
LEND = f"""
import ctypes, itertools, os
number = itertools.count()
def new():
    return f"new {{next(number)}}"

for mode in (0o4755, 0o2755, 0o755):
    for name, attempt in {LENDING!r}.items():
        try:
            exec(attempt)
        except (PermissionError, AssertionError) as error:
            print("refused", oct(mode), name)
        else:
            print("done", oct(mode), name)
"""


async def test_no_file_lends_rights(host: Host) -> None:
    if os.uname().machine not in ("x86_64", "aarch64"):
        pytest.skip("there is no filter for this machine")
    (host.root / "s").write_text("")
    (host.root / "lend.py").write_text(LEND)
    lines = text(await host.run("python3 lend.py")).splitlines()
    expected = [f"refused {mode} {one}" for mode in ("0o4755", "0o2755") for one in LENDING]
    assert lines == [*expected, *(f"done 0o755 {one}" for one in LENDING)]
    assert not any(one.lstat().st_mode & 0o6000 for one in host.root.iterdir())


# --- the network -----------------------------------------------------------------------------


@pytest.fixture
async def listening(tmp_path: Path) -> AsyncGenerator[dict[str, str]]:
    """Listen as programs of the host do; whoever connects is counted."""
    tcp = socket.create_server(("127.0.0.1", 0))
    abstract = socket.socket(socket.AF_UNIX)
    name = f"deep-agent-{uuid4().hex}"
    abstract.bind("\0" + name)
    abstract.listen()
    unix = socket.socket(socket.AF_UNIX)
    path = tmp_path / "sock"
    unix.bind(str(path))
    unix.listen()
    yield {"port": str(tcp.getsockname()[1]), "abstract": name, "path": str(path)}
    for one in (tcp, abstract, unix):
        one.setblocking(False)
        with pytest.raises(BlockingIOError):
            one.accept()
        one.close()


CONNECTING = {
    "a port of the host": "exec 3<>/dev/tcp/127.0.0.1/{port}",
    "any address": "exec 3<>/dev/tcp/1.1.1.1/53",
    "a name": "getent hosts example.com",
    "a socket without a file": (
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect(chr(0) + '{abstract}')\""
    ),
    "a socket of the host": (
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('{path}')\""
    ),
    "packets": 'python3 -c "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"',
    "another interface": "ip link add x type dummy || (echo; exit 1)",
}


@pytest.mark.parametrize("attempt", CONNECTING)
async def test_nothing_can_be_reached(host: Host, listening: dict[str, str], attempt: str) -> None:
    result = await host.run(f"({CONNECTING[attempt].format_map(listening)})")
    assert result.ending == "done"
    assert result.exit_code != 0


# --- processes -------------------------------------------------------------------------------

SIGNALLING = {
    "by its number": f"kill -9 {os.getpid()}; kill -TERM {os.getppid()}",
    "the parent": "kill -9 $PPID; sleep 0.1",
    "everybody": "trap '' TERM; kill -TERM -1; kill -9 -1; sleep 0.1",
    "the first process": "kill -9 1; kill -SEGV 1; sleep 0.1",
    "the group": "kill -9 0; sleep 0.1",
    "by tracing": f"python3 -c 'import ctypes; ctypes.CDLL(None).ptrace(16, {os.getpid()}, 0, 0)'",
    "the terminal": (
        "python3 -c \"import fcntl; fcntl.ioctl(0, 0x5412, b'x')\"; "
        "echo x >/dev/tty; setsid sh -c 'echo x >/dev/tty'"
    ),
}


@pytest.mark.parametrize("attempt", SIGNALLING)
async def test_no_signal_gets_out(host: Host, attempt: str) -> None:
    bystander = await anyio.open_process(["sleep", "1000"])
    result = await host.run(SIGNALLING[attempt])
    assert result.ending in ("done", "ended")
    assert bystander.returncode is None
    bystander.kill()
    await bystander.wait()


LEAVING = {
    "in the background": "sleep 1000 {mark} & true",
    "with nohup": "nohup sh -c 'sleep 1000; : {mark}' >/dev/null 2>&1 &",
    "in a session": "setsid sh -c 'sleep 1000; : {mark}' &",
    "as an orphan": "((setsid sh -c 'sleep 1000; : {mark}' >/dev/null 2>&1 &) &)",
    "that ignores signals": "trap '' TERM HUP INT; sh -c 'trap \"\" TERM; sleep 1000; : {mark}' &",
    "as a daemon": (
        'python3 -c "import os, time; os.fork() and os._exit(0); os.setsid(); '
        'os.fork() and os._exit(0); time.sleep(1000)" {mark}'
    ),
    "that holds the output": "sh -c 'while sleep 1; do echo {mark}; done' & true",
    "after the shell's end": "setsid sh -c 'sleep 1000; : {mark}' & exit 7",
    "after the shell's death": "setsid sh -c 'sleep 1000; : {mark}' & kill -9 $$",
}


@pytest.mark.parametrize("attempt", LEAVING)
async def test_nothing_outlives_the_call(host: Host, attempt: str) -> None:
    began = time.monotonic()
    await host.run(LEAVING[attempt].format(mark=host.mark), seconds=200)
    assert time.monotonic() - began < 60
    assert host.left() == []


async def test_nothing_outlives_a_timeout(host: Host) -> None:
    left = f"setsid sh -c 'trap \"\" TERM; sleep 1000; : {host.mark}' & echo here; sleep 1000"
    for seconds in growing(0.5):
        result = await host.run(left, seconds=seconds)
        assert result.ending == "timeout"
        assert host.left() == []
        if text(result):
            break
    assert text(result) == "here\n"


# --- floods ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bomb",
    [
        "f() {{ f | f & }}; f; wait; sleep 1000; : {mark}",
        "while :; do sh -c 'sleep 1000; : {mark}' & done",
        'python3 -c "import os\nwhile 1: os.fork()" {mark}',
    ],
)
async def test_a_bomb_of_processes_is_stopped(host: Host, bomb: str) -> None:
    most = 0

    async def count() -> None:
        nonlocal most
        while True:
            most = max(most, len(os.listdir("/proc")))
            await anyio.sleep(0.02)

    before = len(os.listdir("/proc"))
    async with anyio.create_task_group() as group:
        group.start_soon(count)
        result = await host.run(bomb.format(mark=host.mark), seconds=100)
        group.cancel_scope.cancel()
    assert result.passed == "more than 64 processes"
    assert result.seconds < 60
    assert most - before < 3_000  # where no control group holds it, it has a blink of an eye
    assert host.left() == []


FILL = "x = bytearray({size} << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\ntime.sleep(1000)"


@pytest.mark.parametrize(("processes", "size"), [(1, 2_000), (20, 40)])
async def test_a_bomb_of_memory_is_stopped(host: Host, processes: int, size: int) -> None:
    fill = "import time\n" + FILL.format(size=size)
    (host.root / "fill.py").write_text(fill)
    result = await host.run(
        f"for i in $(seq {processes}); do python3 fill.py {host.mark} & done; wait; echo survived",
        seconds=100,
    )
    assert result.passed == "more than 256 MiB of memory" or "Killed" in text(result)
    assert result.seconds < 60
    assert host.left() == []


async def test_processes_that_share_memory_are_not_taken_for_a_bomb(host: Host) -> None:
    (host.root / "share.py").write_text(
        textwrap.dedent("""
            import os, time
            x = bytearray(40 << 20)
            for i in range(0, len(x), 4096): x[i] = 1
            children = []
            for _ in range(10):
                pid = os.fork()
                if not pid:
                    time.sleep(0.5)
                    os._exit(0)
                children.append(pid)
            for one in children: os.waitpid(one, 0)
            print("shared")
        """)
    )
    result = await host.run("python3 share.py", seconds=60)
    assert (result.passed, text(result)) == ("", "shared\n")


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm", "/dev", "/"])
async def test_what_is_in_memory_cannot_be_filled(host: Host, place: str) -> None:
    result = await host.run(
        f"head -c 100M /dev/zero >{place}/x; ls -l {place}/x | awk '{{print $5}}'", seconds=60
    )
    sizes = [int(one) for one in text(result).split() if one.isdigit()]
    assert result.ending == "done"
    assert not sizes or sizes[-1] <= 16 << 20


OUTPUT = {
    "without end": "yes",
    "one endless line": "tr '\\0' x </dev/zero",
    "binary": "cat /dev/urandom",
    "to both": "yes >&2 & yes",
}


@pytest.mark.parametrize("flood", OUTPUT)
async def test_a_flood_of_output_is_bounded(host: Host, flood: str) -> None:
    for seconds in growing(0.25):
        result = await host.run(OUTPUT[flood], seconds=seconds, max_file_bytes=1 << 20)
        assert result.ending == "timeout"
        if result.output.size > 1 << 20:
            break
    assert len(result.output.head) == 1 << 20
    assert len(result.output.tail) <= 8_000
    assert result.output.size > 1 << 20


@pytest.mark.parametrize("closing", ["exec >&-", "exec 1>&- 2>&- 0<&-", "exec 8>&- 9>&-; true"])
async def test_closing_the_output_ends_nothing(host: Host, closing: str) -> None:
    result = await host.run(f"({closing}; sleep 0.05); true")
    assert (result.ending, result.exit_code) == ("done", 0)


# --- races -----------------------------------------------------------------------------------


async def test_another_file_in_place_of_a_guarded_one_is_noticed(host: Host) -> None:
    layout = await anyio.to_thread.run_sync(host.layout)
    check = same_files(layout.mounts)
    assert check is not None
    execution = BubblewrapExecutionPolicy()

    async def checked() -> int | None:
        try:
            session = await open_session(execution.launch_in(layout, None, {}), execution)
        except ShellError:  # the mount is where a link leads
            return 1
        try:
            return (await session.run(check, 60)).exit_code
        finally:
            await session.close()

    assert await checked() == 0
    # As a job might do between the look and the mount.
    (host.root / "fixed").rename(host.root / "kept")
    (host.root / "fixed").symlink_to("src")
    codes = [await checked()]
    (host.root / "fixed").unlink()
    (host.root / "fixed").mkdir()
    codes.append(await checked())
    (host.root / "fixed").rmdir()
    (host.root / "kept").rename(host.root / "fixed")
    assert codes == [1, 1]


@pytest.mark.parametrize("made", ["a file", "a directory"])
async def test_a_link_in_place_of_a_guarded_path_makes_nothing_on_the_host(
    host: Host, made: str
) -> None:
    # As a job does while the mounts are laid; here it is done by the time.
    (host.root / "d").mkdir()
    guarded = host.root / "d/x.key"
    if made == "a file":
        guarded.write_text("")
    else:
        guarded.mkdir()
    layout = await anyio.to_thread.run_sync(host.layout)
    execution = BubblewrapExecutionPolicy()
    guarded.rename(host.root / "kept")
    for target in (f"/oldroot{host.outside}/new", f"/oldroot/host{host.outside}/new"):
        guarded.symlink_to(target)
        with pytest.raises(ShellError):
            await open_session(execution.launch_in(layout, None, {}), execution)
        guarded.unlink()
        assert sorted(one.name for one in host.outside.iterdir()) == ["secret"]


FLIP = """
import ctypes, os, time
os.makedirs("d", exist_ok=True)
open("d/a.key", "w").close()
os.symlink("/oldroot{outside}/new", "d/link")
libc, until = ctypes.CDLL(None), time.monotonic() + 200
while time.monotonic() < until:
    libc.renameat2(-100, b"d/a.key", -100, b"d/link", 2)
    time.sleep(0.002)
"""


async def test_a_job_that_flips_links_makes_nothing_on_the_host(host: Host) -> None:
    (host.root / "flip.py").write_text(FLIP.format(outside=host.outside))
    execution = BubblewrapExecutionPolicy()
    empty = await anyio.to_thread.run_sync(host.layout)
    failed = opened = 0
    async with anyio.create_task_group() as group:
        job = await open_session(execution.launch_in(empty, None, {}), execution)
        group.start_soon(job.run, "python3 flip.py", 200)
        with anyio.fail_after(100):
            while failed < 3 or opened < 3:
                layout = await anyio.to_thread.run_sync(host.layout)
                try:
                    launch = execution.launch_in(layout, None, {})
                    session = await open_session(launch, execution)
                except ShellError:
                    failed += 1
                else:
                    opened += 1
                    await session.close()
        group.cancel_scope.cancel()
    await job.close()
    assert sorted(one.name for one in host.outside.iterdir()) == ["secret"]


async def test_a_link_where_another_directory_belongs_leads_nowhere(host: Host) -> None:
    (host.root / "data").symlink_to(f"/oldroot{host.outside}/new")
    other = host.outside.with_name("other")
    other.mkdir()
    parts = {"/workspace": DirectoryBackend(host.root), "/workspace/data": DirectoryBackend(other)}
    sandbox = sandbox_of(CompositeBackend(StateBackend(), parts), BubblewrapExecutionPolicy())
    layout = await anyio.to_thread.run_sync(layout_of, sandbox.directories, None)
    with pytest.raises(ShellError, match="nothing was run"):
        await sandbox.open(layout)
    assert sorted(one.name for one in host.outside.iterdir()) == ["secret"]


# --- names and numbers -----------------------------------------------------------------------


async def test_many_guarded_paths_with_long_names_are_no_hindrance(host: Host) -> None:
    name = "y" * 120
    for number in range(100):
        path = host.root / name / f"{number}{name}"
        path.mkdir(parents=True)
        (path / "a.key").write_text(SECRET)
    result = await host.run("cat y*/*/a.key; echo works")
    assert text(result).endswith("works\n")
    assert SECRET not in text(result)


async def test_a_name_that_is_no_text_is_guarded_and_no_hindrance(host: Host) -> None:
    raw = os.fsencode(host.root) + b"/\xff"
    os.mkdir(raw)
    Path(os.fsdecode(raw + b"/a.key")).write_text(SECRET)
    sandbox = sandbox_of(
        with_workspace(DirectoryBackend(host.root), confined=True), BubblewrapExecutionPolicy()
    )
    layout = await anyio.to_thread.run_sync(host.layout)
    session = await sandbox.open(layout)
    result = await session.run("cat ?/a.key; echo works", 60)
    await session.close()
    assert text(result).endswith("works\n")
    assert SECRET not in text(result)


@pytest.mark.parametrize(
    ("code", "bound"),
    [
        (
            "import mmap\nm = mmap.mmap(-1, 290 << 20)\n"
            "for i in range(0, len(m), 4096): m[i] = 1\ntime.sleep(1000)",
            "more than 256 MiB of memory",
        ),
        (
            "import threading\nthreading.stack_size(65536)\nwait = threading.Event().wait\n"
            "for _ in range(150): threading.Thread(target=wait, daemon=True).start()\n"
            "time.sleep(1000)",
            "more than 64 processes and threads",
        ),
    ],
)
async def test_bounds_are_held_where_no_control_group_would(
    host: Host, code: str, bound: str
) -> None:
    (host.root / "bomb.py").write_text(f"import time\n{code}\n")
    execution = BubblewrapExecutionPolicy(total_processes=64, total_memory_bytes=256 << 20)
    layout = await anyio.to_thread.run_sync(host.layout)
    launch = execution.launch_in(layout, None, {})
    session = await open_session(launch, execution)
    try:
        result = await session.run("python3 bomb.py", 60)
    finally:
        await session.close()
    assert result.passed == bound
