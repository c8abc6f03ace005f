from pathlib import Path

import pytest
from click.testing import CliRunner

from deep_agent_mcp.server.cli.main import cli

SCHEDULE = ["schedules", "add", "tidy", "Tidy up.", "--cron"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*SCHEDULE, "daily"], "cron 'daily' cannot be read: it has 1 field."),
        ([*SCHEDULE, "0 7 30 2 *"], "Bad day-of-month. Nothing was stored."),
        ([*SCHEDULE, "0 7 * * *", "--timezone", "Mars"], "'Mars' is not a time zone"),
        (["token", "create", " "], "a principal needs a name"),
        (["token", "create", "ann", "--scope", "remember"], "add `--scope approve`"),
        (["webhooks", "test", "https://127.0.0.1:9"], "there is no secret. Nothing was sent."),
        (["mcp", "list"], "--agent FILE"),
        (["mcp", "list", "--agent", "no.toml"], "no.toml cannot be read: No such file"),
        (["threads", "list", "--connect", "foo"], "foo is not an http or https URL"),
        (["threads", "--journal", "foo", "list"], "the journal is named by no URL"),
    ],
)
def test_a_wrong_option_setting_or_address_ends_with_code_2_and_changes_nothing(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DEEP_AGENT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("DEEP_AGENT_AGENT_FILE", raising=False)
    done = CliRunner().invoke(cli, words)
    assert (done.exit_code, said in done.stderr) == (2, True), done.output
    assert not any(tmp_path.iterdir())
