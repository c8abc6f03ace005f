"""Static tokens: made and revoked on the command line, kept as hashes, checked by servers."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest
from click.testing import CliRunner, Result

from deep_agent_mcp.server.auth import tokens
from deep_agent_mcp.server.auth.caller import AGENTS_CLAIM
from deep_agent_mcp.server.auth.tokens import (
    FileTokens,
    TokenError,
    TokenFile,
    TokenVerifier,
)
from deep_agent_mcp.server.cli.main import cli
from tests.fork_server import environment, start

pytestmark = pytest.mark.anyio


async def run(place: Path, *args: str) -> Result:
    given = ["token", "--state-dir", str(place), *args]
    return await anyio.to_thread.run_sync(partial(CliRunner().invoke, cli, given))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_LOOK_SECONDS", 0.0)


async def test_a_token_is_shown_once_and_kept_as_a_hash(tmp_path: Path) -> None:
    made = await run(tmp_path, "create", "ann", "--scope", "drive", "--expires", "12h", "--json")
    data = json.loads(made.stdout)
    kept = (tmp_path / "tokens.json").read_text()
    _prefix, _id, secret = data["token"].split("_", 2)
    assert secret not in kept and "ann" in kept
    assert (tmp_path / "tokens.json").stat().st_mode & 0o777 == 0o600
    access = await TokenVerifier(FileTokens(TokenFile(tmp_path / "tokens.json"))).verify_token(
        data["token"]
    )
    assert access is not None
    assert (access.subject, access.scopes, access.client_id) == ("ann", ["drive"], data["id"])
    assert access.expires_at == int(data["created_at"] + 12 * 3_600)


async def test_a_token_decides_nothing_unless_it_is_told_so(tmp_path: Path) -> None:
    made = json.loads((await run(tmp_path, "create", "ann", "--json")).stdout)
    assert made["scopes"] == ["drive", "delegate"]


async def test_decisions_last_by_a_token_that_is_told_so_and_may_decide(tmp_path: Path) -> None:
    refused = await run(tmp_path, "create", "ann", "--scope", "remember")
    assert refused.exit_code and "add `--scope approve`" in refused.output
    scopes = ["--scope", "approve", "--scope", "remember"]
    made = json.loads((await run(tmp_path, "create", "ann", *scopes, "--json")).stdout)
    access = await TokenVerifier(FileTokens(TokenFile(tmp_path / "tokens.json"))).verify_token(
        made["token"]
    )
    assert access is not None and access.scopes == ["approve", "remember"]


async def test_a_token_may_be_for_some_agents_only(tmp_path: Path) -> None:
    verifier = TokenVerifier(FileTokens(TokenFile(tmp_path / "tokens.json")))
    made = json.loads((await run(tmp_path, "create", "ann", "--json")).stdout)
    assert "agents" not in (tmp_path / "tokens.json").read_text()  # as earlier versions read it
    access = await verifier.verify_token(made["token"])
    assert access is not None and access.claims is None
    made = json.loads(
        (await run(tmp_path, "create", "ann", "--agents", "scout, main", "--json")).stdout
    )
    access = await verifier.verify_token(made["token"])
    assert access is not None and access.claims == {AGENTS_CLAIM: ["scout", "main"]}
    assert "agents: scout, main" in (await run(tmp_path, "list")).stdout


@pytest.mark.usefixtures("at_once")
async def test_a_revoked_token_no_longer_holds_in_a_server_that_runs(tmp_path: Path) -> None:
    verifier = TokenVerifier(FileTokens(TokenFile(tmp_path / "tokens.json")))
    assert await verifier.verify_token("dam_" + "0" * 12 + "_" + "x" * 43) is None
    made = json.loads((await run(tmp_path, "create", "ann", "--json")).stdout)
    assert await verifier.verify_token(made["token"]) is not None
    listed = (await run(tmp_path, "list")).stdout
    assert made["id"] in listed and "drive,delegate" in listed and "never ends" in listed
    assert (await run(tmp_path, "revoke", made["id"])).exit_code == 0
    assert await verifier.verify_token(made["token"]) is None
    again = await run(tmp_path, "revoke", made["id"])
    assert again.exit_code == 1 and "nothing was done" in again.stderr


async def test_an_expired_token_and_a_guessed_one_are_refused(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    record, secret = file.create("ann", ("drive",), lifetime=-1)
    other, _ = file.create("ben", ("drive",))
    verifier = TokenVerifier(FileTokens(file))
    assert await verifier.verify_token(secret) is None
    assert await verifier.verify_token(secret.replace(record.id, other.id)) is None
    for wrong in ("", "dam_", secret[:-1], secret + "x", secret.upper(), "Bearer " + secret):
        assert await verifier.verify_token(wrong) is None


async def test_a_damaged_file_accepts_nobody_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    _, secret = file.create("ann", ("drive",))
    verifier = TokenVerifier(FileTokens(file))
    assert await verifier.verify_token(secret) is not None
    monkeypatch.setattr(tokens, "_LOOK_SECONDS", 0.0)
    file.path.write_text('{"tokens": [{"id": 1}]}')
    for _ in range(3):
        with pytest.raises(TokenError, match="damaged"):
            await verifier.verify_token(secret)
    assert "damaged" in (await run(tmp_path, "list")).stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("create", " "), "a principal needs a name"),
        (("create", "ann", "--expires", "soon"), "write one such as 90m"),
        (("create", "ann", "--scope", "everything"), "is not one of"),
        (("create", "ann", "--agents", "a,,b"), "write them like scout,main"),
        (("revoke", "nothing"), "there is no token 'nothing'"),
    ],
)
async def test_wrong_words_are_answered_with_what_is_accepted(
    tmp_path: Path, args: tuple[str, ...], words: str
) -> None:
    done = await run(tmp_path, *args)
    assert done.exit_code != 0 and words in done.stderr
    assert not (tmp_path / "tokens.json").exists()


CREATE = """
import sys
from pathlib import Path
from deep_agent_mcp.server.auth.tokens import TokenFile

for _ in range(10):
    TokenFile(Path(sys.argv[1])).create("ann", ("drive",))
"""


def test_tokens_made_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    program = tmp_path / "create.py"
    program.write_text(CREATE)
    command = [sys.executable, str(program), str(tmp_path / "tokens.json")]
    with open(os.devnull, "wb") as nothing:
        to = {"stdout": nothing.fileno(), "stderr": 2}
        workers = [start(command, environment(tmp_path), tmp_path, **to) for _ in range(3)]
    assert [one.wait(30) for one in workers] == [0, 0, 0]
    assert len(TokenFile(tmp_path / "tokens.json").read()) == 30
