"""The page as it is delivered: to browsers at `/ui`, and to hosts as a resource of some tools."""

from __future__ import annotations

import gzip
import json
import re

import anyio
import httpx2
import pytest
from mcp.server import apps

from deep_agent_mcp.server.viewer import VIEWER_URI, viewer_html
from tests.e2e.servers import ERAS, Era, connected
from tests.viewer.browser import Browser
from tests.viewer.conftest import Served

MIME = apps.APP_MIME_TYPE


def test_it_may_do_next_to_nothing_and_nobody_may_frame_it(served: Served) -> None:
    with httpx2.Client(trust_env=False) as http:
        page = http.get(served.page)
        assert page.status_code == 200 and page.text == viewer_html()
        rules = dict(
            one.strip().split(" ", 1) for one in page.headers["content-security-policy"].split(";")
        )
        assert rules["default-src"] == "'none'" and rules["frame-ancestors"] == "'none'"
        assert rules["connect-src"] == "'self'" and rules["base-uri"] == "'none'"
        assert "unsafe" not in str(rules)
        assert page.headers["x-content-type-options"] == "nosniff"
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
            assert http.get(served.page, headers=headers).status_code in (403, 421), headers
        assert http.post(served.page).status_code == 405


def test_it_needs_nothing_from_elsewhere(browser: Browser, served: Served) -> None:
    html = viewer_html()
    markup = re.sub(r"(?s)<script>.*</script>", "", html)
    assert not re.search(r"""(src|href)=["'](?!data:,|#)|url\(|@import""", markup)
    assert not re.search(r"outerHTML|insertAdjacentHTML|document\.write|\beval\(|\bimport\(", html)
    assert html.count("</script>") == 1 and len(gzip.compress(html.encode())) < 350_000
    browser.go(served.page)
    browser.until("document.querySelector('#threads, .empty')")
    asked = browser.run("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert set(asked) == {f"{served.base}/mcp"}


def test_texts_cannot_become_a_page_even_by_mistake(browser: Browser, served: Served) -> None:
    browser.go(served.page)
    browser.until_text("Threads")
    refused = "try { document.body.innerHTML = '<b>x</b>'; } catch (error) { return error.name; }"
    assert browser.run(refused) == "TypeError"
    assert browser.run("return document.querySelectorAll('b').length") == 0
    assert "TrustedHTML" in str(browser.complaints())


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ERAS)
async def test_hosts_of_both_eras_are_told_of_it(served: Served, mode: Era) -> None:
    with anyio.fail_after(60):
        async with connected(served.server.target("http"), mode) as client:
            assert client.server_capabilities.extensions is not None
            assert client.server_capabilities.extensions[apps.EXTENSION_ID] == {}
            tools = (await client.list_tools()).tools
            bound = {one.name: (one.meta or {}).get("ui") for one in tools}
            assert {name for name, ui in bound.items() if ui} == {"task", "wait"}
            assert bound["wait"] == {"resourceUri": VIEWER_URI}
            listed = (await client.list_resources()).resources
            (entry,) = [one for one in listed if one.uri == VIEWER_URI]
            assert entry.mime_type == MIME
            (content,) = (await client.read_resource(VIEWER_URI)).contents
            assert content.mime_type == MIME
            assert content.meta == {"ui": {"csp": {}, "prefersBorder": True}}
            assert json.loads(content.model_dump_json())["text"] == viewer_html()


@pytest.mark.parametrize(
    ("status", "headers", "body", "said"),
    [
        (429, {"Retry-After": "7"}, "{}", "Too many requests. Trying again in 7 s."),
        (503, {}, "<html>", "The server is not ready (HTTP 503). Trying again in 1 s."),
        (502, {}, "", "The server is not ready (HTTP 502)."),
        (413, {}, "no", "The server refused the call (HTTP 413)."),
        (
            403,
            {},
            '{"error": "insufficient_scope", "error_description": "It needs approve."}',
            "It needs approve.",
        ),
    ],
)
def test_what_stands_in_front_of_the_server_is_said_too(
    browser: Browser, served: Served, status: int, headers: dict[str, str], body: str, said: str
) -> None:
    browser.go(served.page)
    browser.until_text("Threads")
    browser.run(
        "const [status, headers, body] = arguments;"
        "window.fetch = async () => new Response(body, {status, headers});"
        "window.dispatchEvent(new Event('look-now'));",
        status,
        headers,
        body,
    )
    browser.until_text(said)
