"""Each folder in `examples/` that has a README with commands does what that README says."""

import os
import re
import shutil
import sqlite3
import time
from base64 import b64decode
from contextlib import closing
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from deep_agent_mcp.server.agenda.webhooks import new_secret, signed_headers
from tests.doc_pages import ROOT
from tests.tutorials import Newcomer, can_run

EXAMPLES = ROOT / "examples"
WRITTEN = {
    "coding-agent": ("work/durations.py", "if not parts or PART.sub"),
    "data-analyst": ("out/report.md", "| 2026-03 | Hamburg | 659.45 |"),
    "github-action": ("review.md", "| blocker | `refund.py:11` | A retry can pay twice |"),
    "nightly-job": ("reports/report-2026-03-02.md", "the disk of the shop is 91% full"),
    "team-server": ("files/ann/published/plan.md", "# Plan"),
    "research-team": ("out/report.md", "OWASP accepts much less, 19 MiB"),
}
"""A file that the agent has written when the README was followed, and what is in it."""

NEEDS = {"coding-agent": "bwrap"}


@pytest.mark.skipif(not can_run(), reason="the commands are written for a POSIX shell")
@pytest.mark.parametrize("name", WRITTEN)
def test_its_readme_can_be_followed_without_a_key(name: str, tmp_path: Path) -> None:
    if name in NEEDS and not shutil.which(NEEDS[name]) and not os.environ.get("CI"):
        pytest.skip(f"{NEEDS[name]} is not here")
    with Newcomer(tmp_path).cleaned() as newcomer:
        shutil.copytree(EXAMPLES / name, newcomer.place, dirs_exist_ok=True)
        newcomer.do(EXAMPLES / name / "README.md")
        file, content = WRITTEN[name]
        assert content in (newcomer.place / file).read_text(encoding="utf-8")
        log = newcomer.place / ".server-log"
        assert not log.exists() or "ERROR" not in log.read_text(encoding="utf-8")


def module(path: str) -> ModuleType:
    """Import a file of an example."""
    spec = spec_from_file_location(Path(path).stem, EXAMPLES / path)
    assert spec is not None
    assert spec.loader is not None
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_the_data_analyst_joins_files_with_databases_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(tmp_path / "sales.db")) as db, db:
        db.execute("CREATE TABLE goals (city TEXT, goal REAL)")
        db.execute("INSERT INTO goals VALUES ('Graz', 10.5)")
    (tmp_path / "zips.csv").write_text("zip,city\n08010,Graz\n", encoding="utf-8")
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    tools = module("data-analyst/sql_tools.py")
    joined = "SELECT zip, goal FROM zips JOIN sales.goals USING (city)"
    assert tools.answer(joined) == "zip,goal\n08010,10.5\n"
    for other in ("DELETE FROM zips", "ATTACH 'x.db' AS x", "PRAGMA writable_schema = 1"):
        with pytest.raises(ValueError, match="not authorized"):
            tools.answer(other)


def test_the_receiver_takes_what_the_server_signed_and_nothing_else() -> None:
    event_of = module("nightly-job/receiver.py").event_of
    secret, body, now = new_secret(), b'{"type": "run.done"}', int(time.time())
    keys = [b64decode(one.removeprefix("whsec_")) for one in (new_secret(), secret)]
    headers = signed_headers("evt_1", now, body, keys)
    assert event_of(headers, body, [secret]) == {"type": "run.done"}
    with pytest.raises(ValueError, match="signature is wrong"):
        event_of(headers, body + b" ", [secret])
    with pytest.raises(ValueError, match="too old"):
        event_of(signed_headers("evt_1", now - 1_000, body, keys), body, [secret])


def test_a_comment_of_the_review_notifies_nobody_and_keeps_code() -> None:
    plain = module("github-action/review/comment.py").plain
    assert plain("@all see\n![x](y) <b>") == "@<!-- -->all see !&#91;x](y) &lt;b>"
    assert plain("`a < b | c` and @x") == "`a < b \\| c` and @<!-- -->x"
    assert plain("`@x") == "@<!-- -->x"


def test_the_job_of_the_review_that_has_the_key_can_only_read() -> None:
    workflow = yaml.safe_load((EXAMPLES / "github-action/review.yml").read_text(encoding="utf-8"))
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        has_key = "secrets." in str(job["steps"])
        allowed = {"contents": "read"} if has_key else {"pull-requests": "write"}
        assert job["permissions"] == allowed
        assert has_key == ("deep-agent" in str(job["steps"]))


def test_no_job_of_our_own_workflow_can_write_or_run_for_ever() -> None:
    text = (EXAMPLES.parent / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] and "permissions" not in job
        checkout, python = job["steps"][:2]
        assert checkout["with"] == {"persist-credentials": False}
        # It saves a cache of pip for this user, and fails if there is none.
        as_root = any(step.get("run", "").endswith(".ci/run") for step in job["steps"])
        assert ("cache" in python["with"]) == (not as_root)
    for script in re.findall(r"\.ci/\w+", text):
        assert os.access(EXAMPLES.parent / script, os.X_OK)
