"""A real Chromium, controlled with the W3C WebDriver protocol."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

__all__ = ["Browser", "DriverError", "browsing", "need_browser"]

SECONDS = 50.0
"""Time limit for every wait on a page."""

ENTER, ESCAPE, TAB = "\ue007", "\ue00c", "\ue004"

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"

_UNTIL = """
const [expression, seconds] = [arguments[0], arguments[1]];
const done = arguments[arguments.length - 1];
const judge = new Function("return (" + expression + ")");
let last;
const look = () => {
  try { last = judge(); } catch (error) { last = null; }
  if (last) finish(last);
};
const watching = new MutationObserver(look);
const late = setTimeout(() => finish(null), seconds * 1000);
const again = setInterval(look, 50);
function finish(value) {
  watching.disconnect();
  clearTimeout(late);
  clearInterval(again);
  done(value);
}
watching.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
look();
"""


def need_browser() -> None:
    """Skip the test if Chromium is missing; on CI, fail."""
    missing = [one for one in ("chromium", "chromedriver") if shutil.which(one) is None]
    if not missing:
        return
    problem = f"no {' and no '.join(missing)} here: apt-get install chromium chromium-driver"
    if os.environ.get("CI"):
        pytest.fail(problem)
    pytest.skip(problem)


class DriverError(AssertionError):
    """A command that the driver refused.

    Args:
        path: The command.
        kind: The error code, such as `script timeout`.
        message: Details of the error.
    """

    def __init__(self, path: str, kind: str, message: str) -> None:
        super().__init__(f"{path}: {kind}: {message}")
        self.kind = kind


class Browser:
    """One browser window.

    Args:
        http: A client of the driver.
        session: Id of the window's session.
    """

    def __init__(self, http: httpx2.Client, session: str) -> None:
        self._http = http
        self._base = f"/session/{session}"

    def _ask(self, method: str, path: str, **body: Any) -> Any:
        response = self._http.request(
            method, self._base + path, json=body if method == "POST" else None
        )
        value = response.json()["value"]
        if response.status_code != 200:
            raise DriverError(path, value["error"], value["message"])
        return value

    def go(self, url: str) -> None:
        self._ask("POST", "/url", url=url)

    def reload(self) -> None:
        self._ask("POST", "/refresh")

    def run(self, script: str, *args: Any) -> Any:
        """Run JavaScript in the page and return its result."""
        return self._ask("POST", "/execute/sync", script=script, args=list(args))

    def run_async(self, script: str, *args: Any) -> Any:
        """Run JavaScript in the page and return the value passed to its callback argument."""
        return self._ask("POST", "/execute/async", script=script, args=list(args))

    def until(self, expression: str, seconds: float = SECONDS) -> Any:
        """Wait until a JavaScript expression is true in the page, even if the page reloads.

        Returns:
            The value of the expression.
        """
        end = time.monotonic() + seconds
        while True:
            left = max(0.0, end - time.monotonic())
            try:
                found = self._ask("POST", "/execute/async", script=_UNTIL, args=[expression, left])
            except DriverError as error:
                # Chromedriver reports a timeout immediately if the page is replaced meanwhile.
                if error.kind != "script timeout" or not left:
                    raise
            else:
                assert found, f"never so: {expression}\n{self.text()}"
                return found

    def until_text(self, *texts: str) -> None:
        """Wait until the page shows all of the texts."""
        for text in texts:
            self.until(f"document.body.innerText.includes({_js(text)})")

    def look(self) -> None:
        """Make the page poll immediately instead of in a second or two."""
        self.run("window.dispatchEvent(new Event('look-now'))")

    def text(self, selector: str = "body") -> str:
        return cast(
            "str", self.run("return document.querySelector(arguments[0]).innerText", selector)
        )

    def _element(self, selector: str) -> str:
        using = "xpath" if selector.startswith("//") else "css selector"
        return cast("str", self._ask("POST", "/element", using=using, value=selector)[_ELEMENT])

    def click(self, selector: str) -> None:
        """Click the element of a CSS selector or an XPath."""
        self._ask("POST", f"/element/{self._element(selector)}/click")

    def press(self, label: str, within: str = "") -> None:
        """Wait for a button with a label and click it."""
        free = "not(@disabled or @aria-disabled)"
        path = f"{within}//button[normalize-space()={_js(label)} and {free}]"
        found = "document.evaluate({}, document, null, 9).singleNodeValue"
        self.until(found.format(_js(path)))
        self.click(path)

    def write(self, selector: str, text: str, *, clear: bool = False) -> None:
        element = self._element(selector)
        if clear:
            self._ask("POST", f"/element/{element}/clear")
        self._ask("POST", f"/element/{element}/value", text=text)

    def keys(self, *keys: str) -> None:
        """Press keys where the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("POST", "/actions", actions=[{"type": "key", "id": "keys", "actions": actions}])

    def enter_frame(self) -> None:
        self._ask("POST", "/frame", id=0)

    def leave_frame(self) -> None:
        self._ask("POST", "/frame", id=None)

    def size(self, width: int, height: int) -> None:
        self._ask("POST", "/window/rect", width=width, height=height)

    def device(self, width: int = 0, height: int = 0, scale: float = 1) -> None:
        """Emulate a phone with this screen size; without a size, end the emulation."""
        if not width:
            self.devtools("Emulation.clearDeviceMetricsOverride")
            return
        size = {"width": width, "height": height, "deviceScaleFactor": scale}
        self.devtools("Emulation.setDeviceMetricsOverride", **size, mobile=width < 600)

    def emulate(self, **features: str) -> None:
        """Set media features, such as `prefers_color_scheme="dark"`."""
        named = [{"name": key.replace("_", "-"), "value": one} for key, one in features.items()]
        self.devtools("Emulation.setEmulatedMedia", features=named)

    def devtools(self, command: str, **params: Any) -> Any:
        return self._ask("POST", "/goog/cdp/execute", cmd=command, params=params)

    def complaints(self) -> list[str]:
        """Return errors and refused content from the console since the last call."""
        entries = self._ask("POST", "/se/log", type="browser")
        return [one["message"] for one in entries]

    def screenshot(self) -> bytes:
        return base64.b64decode(self._ask("GET", "/screenshot"))


def _js(text: str) -> str:
    """Return a string as a JavaScript literal; without quotes in it, it is valid XPath, too."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@contextmanager
def browsing(place: Path, options: Mapping[str, Any] | None = None) -> Iterator[Browser]:
    """Open a window of a new Chromium, with its data in `place`, until the block ends."""
    driver = subprocess.Popen(
        [cast("str", shutil.which("chromedriver")), "--port=0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "HOME": str(place)},
    )
    assert driver.stdout is not None
    try:
        said = next((line for line in driver.stdout if "successfully on port" in line), "")
        port = re.search(r"port (\d+)", said)
        assert port is not None, "chromedriver did not start"
        with httpx2.Client(
            base_url=f"http://127.0.0.1:{port[1]}", timeout=90, trust_env=False
        ) as http:
            answer = http.post("/session", json=_capabilities(place)).json()["value"]
            assert "sessionId" in answer, answer
            session = answer["sessionId"]
            try:
                yield Browser(http, session)
            finally:
                http.delete(f"/session/{session}")
    finally:
        driver.terminate()
        driver.wait(60)
        driver.stdout.close()


def _capabilities(place: Path) -> dict[str, Any]:
    flags = [
        "--headless=new",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--window-size=1100,900",
        f"--user-data-dir={place / 'profile'}",
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        flags.append("--no-sandbox")  # Chromium's sandbox does not work for root
    wanted = {
        "browserName": "chrome",
        "goog:chromeOptions": {"args": flags},
        "goog:loggingPrefs": {"browser": "ALL"},
        "timeouts": {"script": 60_000, "pageLoad": 60_000, "implicit": 0},
    }
    return {"capabilities": {"alwaysMatch": wanted}}
