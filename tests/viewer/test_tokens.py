"""With tokens, the page can do what the token's bearer may do, and nothing without one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deep_agent_mcp.server.auth.tokens import TokenFile
from tests.viewer.browser import ENTER, Browser
from tests.viewer.conftest import Served, viewer_setup
from tests.viewer.test_runs import open_run, until_status


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that asks for tokens; the token here has no `approve`."""
    setup = viewer_setup(tmp_path_factory.mktemp("guarded"), "--auth", "token")
    with setup.serving() as server:
        tokens = TokenFile(setup.state / "tokens.json")
        yield Served(setup, server, tokens.create("ann", ("drive", "delegate"))[1])


def sign_in(browser: Browser, token: str) -> None:
    browser.until("document.querySelector('#token input')")
    browser.write("#token input", token + ENTER)


def test_a_token_is_asked_for_and_kept_in_the_tab_only(browser: Browser, guarded: Served) -> None:
    run_id = guarded.begin("take your time")
    browser.go(guarded.page)
    browser.until_text("Sign in", "This server asks for a token.")
    sign_in(browser, "dam_wrong")
    browser.until_text("does not accept this token")
    browser.until("sessionStorage.length === 0")
    assert "Sign out" not in browser.text()
    sign_in(browser, f" {guarded.token} ")  # as it is copied
    browser.until_text("Threads", "take your time", "Sign out")
    kept = "return [sessionStorage.length, localStorage.length, document.cookie, location.search]"
    assert browser.run(kept) == [1, 0, "", ""]
    browser.reload()
    browser.until_text("take your time")
    assert browser.run("return document.querySelectorAll('#token input').length") == 0
    browser.press("Sign out")
    browser.until_text("This server asks for a token.")
    assert "take your time" not in browser.text()
    assert browser.run(kept)[0] == 0
    guarded.call("cancel", run_id=run_id)
    refused = browser.complaints()
    assert refused and all("401 (Unauthorized)" in one for one in refused)  # the browser's words


def test_an_address_with_a_slash_at_its_end_leads_to_the_page_without_a_token(
    browser: Browser, guarded: Served
) -> None:
    browser.go(f"{guarded.page}/#run_1")
    browser.until("document.querySelector('#token input')")
    assert browser.run("return location.href") == f"{guarded.page}#run_1"
    browser.complaints()


def test_who_needs_a_token_of_an_issuer_is_told_so(browser: Browser, guarded: Served) -> None:
    browser.go(guarded.page)
    browser.until_text("Create one with “deep-agent-mcp token create NAME”")
    assert "OAuth" not in browser.text()
    browser.run(
        'const challenge = \'Bearer scope="drive", resource_metadata="https://a.example/x"\';'
        "const headers = {'WWW-Authenticate': challenge};"
        "window.fetch = async () => new Response('{}', {status: 401, headers});"
        "dispatchEvent(new Event('hashchange'));"
    )
    browser.until_text("Use an access token of this server's OAuth issuer")
    browser.complaints()


def test_without_the_scope_a_decision_is_refused_in_words(
    browser: Browser, guarded: Served
) -> None:
    browser.go(guarded.page)
    sign_in(browser, guarded.token)
    browser.until_text("Threads")
    run_id = open_run(browser, guarded, "write once")
    browser.press("Approve")
    browser.until_text("Deciding needs the scope 'approve', which you do not have")
    assert guarded.status(run_id) == "needs_approval"
    tokens = TokenFile(guarded.setup.state / "tokens.json")
    browser.press("Sign out")
    sign_in(browser, tokens.create("ann", ("approve",))[1])
    browser.press("Approve")
    until_status(browser, "done")
    browser.complaints()


def test_runs_of_others_do_not_exist(browser: Browser, guarded: Served) -> None:
    run_id = guarded.begin("say much")
    tokens = TokenFile(guarded.setup.state / "tokens.json")
    browser.go(guarded.page)
    browser.run("sessionStorage.clear()")
    browser.reload()
    sign_in(browser, tokens.create("ben", ("drive",))[1])
    browser.until_text("No threads yet.")
    browser.go(f"{guarded.page}#{run_id}")
    browser.until_text(f"There is no run {run_id} that this token may see")
    assert "Call threads" not in browser.text()  # which is for models
    browser.complaints()
