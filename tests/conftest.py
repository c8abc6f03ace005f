"""Fixtures and pytest hooks for all tests."""

import gc
import importlib
import os
import re
import signal
import sys
import tempfile
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import certifi
import pytest

# Let test processes share compiled files. Otherwise each process rewrites the asserts of all test
# files, and of packages with pytest plugins such as hypothesis. Child processes share them, too.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

from hypothesis import HealthCheck, settings  # noqa: E402

from tests import fork_server  # noqa: E402
from tests.distribution import dealt  # noqa: E402
from tests.sampled_cases import sample, seed_of, wants_all  # noqa: E402
from tests.shared_parts import share_bundled_skills, share_validators  # noqa: E402

# No deadline: the time of an example depends on the machine more than on the code.
for _profile, _examples in (("sampled", 25), ("exhaustive", 300)):
    settings.register_profile(
        _profile,
        max_examples=_examples,
        deadline=None,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.filter_too_much,
        ],
    )

# Environment variables that change the behaviour of our code, its libraries or terminal programs.
THEIRS = re.compile(
    r"(DEEP_AGENT|ANTHROPIC|OTEL|CLAUDE|CODEX|LC)_.*|XDG_.*_HOME|LANGUAGE|COLUMNS|LINES"
    r"|FORCE_COLOR|NO_COLOR|(HTTPS?|ALL|NO)_PROXY",
    re.IGNORECASE,
)
PEM_END = "-----END CERTIFICATE-----"
OPTIONS = {
    "DEEP_AGENT_CLIENT_TESTS",
    "DEEP_AGENT_CLIENT_ENVS",
    "DEEP_AGENT_CLIENT_REPLICAS",
}
"""Environment variables of the tests themselves."""


MEMORY = "/dev/shm"
"""Directory in memory for files of tests, if there is room. Most writes would wait for a disk.

With `TMPDIR=/tmp`, files are kept for three runs, which is pytest's default.
"""


def _has_room(directory: str) -> bool:
    """Whether a directory is a mount with 4 GB free space from which programs can run."""
    if not os.path.ismount(directory):
        return False
    system = os.statvfs(directory)
    return system.f_bavail * system.f_frsize >= 4 << 30 and not system.f_flag & os.ST_NOEXEC


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Make runs independent of the user: reset settings, umask and ignored signals."""
    for name in [one for one in os.environ if THEIRS.fullmatch(one) and one not in OPTIONS]:
        del os.environ[name]
    settings.load_profile("exhaustive" if wants_all(config) else "sampled")
    os.environ["LANG"] = "C.UTF-8"
    os.umask(0o022)
    if fork_server.PLACE not in os.environ:  # this process starts all others
        if config.option.basetemp is None and "TMPDIR" not in os.environ and _has_room(MEMORY):
            os.environ["TMPDIR"] = tempfile.tempdir = mkdtemp(prefix="tests-", dir=MEMORY)
            os.chmod(tempfile.tempdir, 0o711)  # a Postgres of another user must reach its data
            config.add_cleanup(lambda: rmtree(os.environ.pop("TMPDIR"), ignore_errors=True))
        os.environ[fork_server.PLACE] = mkdtemp(prefix="forks-", dir="/tmp")
        config.add_cleanup(lambda: rmtree(os.environ.pop(fork_server.PLACE), ignore_errors=True))
    if "DEEP_AGENT_CLIENT_TESTS" not in os.environ:
        # No test needs public certificates, but each HTTP client would load all of them.
        certificates = Path(os.environ[fork_server.PLACE], "certificates")
        certificates.mkdir(exist_ok=True)
        os.environ["SSL_CERT_DIR"] = str(certificates)
        first = certificates / "first.pem"  # clients prefer a file, and one without any is an error
        if not first.exists():
            pem = Path(certifi.where()).read_text(encoding="utf-8")
            first.write_text(pem[: pem.index(PEM_END) + len(PEM_END)] + "\n", encoding="utf-8")
        os.environ["SSL_CERT_FILE"] = str(first)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # inherited from `nohup` or `&`
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def looks_at_files_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn off reuse of directory scans: on a slow machine, a test's edit could go unnoticed."""
    monkeypatch.setattr("deep_agent_mcp.harness.definitions.registry._FRESH_SECONDS", 0.0)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return two workers per core, up to eight: they wait for child processes half of the time."""
    return min(8, 2 * (os.cpu_count() or 1))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect tests, and exclude all permanent objects from garbage collection."""
    gc.disable()
    _import_another_part_first(session.config)
    result = yield
    share_validators()
    share_bundled_skills()
    gc.freeze()
    gc.enable()
    return result


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed", help="draw other samples of the families marked `exhaustive` with this seed"
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    if wants_all(config):
        return None
    seed = seed_of(config)
    drawn = "a fixed sample" if seed is None else f"a sample drawn with --seed {seed}"
    return f"families marked `exhaustive`: {drawn}; all of their cases with -m exhaustive"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark Hypothesis tests `exhaustive`: with `-m exhaustive` they draw more examples."""
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        item.add_marker("exhaustive")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not wants_all(config):
        items[:], left_out = sample(items, seed_of(config))
        config.hook.pytest_deselected(items=left_out)
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        items[:] = dealt(items, worker["workercount"])


def _import_another_part_first(config: pytest.Config) -> None:
    """In a full run, let each worker first compile a different part of the test files."""
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args != config.getini("testpaths"):
        return
    root = Path(__file__).parent
    files = sorted(root.rglob("test_*.py"))
    for path in files[int(worker["workerid"][2:]) :: worker["workercount"]]:
        with suppress(Exception, pytest.skip.Exception):  # the collection will report the error
            importlib.import_module(".".join(path.relative_to(root.parent).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape lone surrogates in logs, because pytest-xdist cannot transfer them."""
    report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report
