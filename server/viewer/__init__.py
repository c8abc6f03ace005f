"""Puts the page together from its parts, and says what it may do."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.routing import Route

__all__ = ["UI_PATH", "viewer_headers", "viewer_html", "viewer_routes"]


UI_PATH = "/ui"

_PARTS = (
    "dom.js",
    "exact.js",
    "mcp.js",
    "run.js",
    "questions.js",
    "run_page.js",
    "looking.js",
    "pages.js",
    "hosted.js",
    "main.js",
)


@cache
def viewer_html() -> str:
    """Return the document, complete in itself."""
    return _read("page.html").replace("/*style*/", _style()).replace("/*script*/", _script())


@cache
def viewer_headers() -> dict[str, str]:
    """Return the headers of `/ui`: nothing runs but the page's own script, and nobody frames it."""
    policy = {
        "default-src": "'none'",
        "script-src": _digest(_script()),
        "style-src": _digest(_style()),
        "img-src": "data:",  # the icon that is none
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-cache",
    }


def viewer_routes() -> list[Route]:
    """Return the routes of `/ui`, also with a slash at its end, and of `/`, which leads there."""
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, RedirectResponse
    from starlette.routing import Route

    def show(_: Request) -> HTMLResponse:
        return HTMLResponse(viewer_html(), headers=viewer_headers())

    def lead(_: Request) -> RedirectResponse:
        return RedirectResponse(f"..{UI_PATH}")  # also where a proxy has put a path before it

    def begin(_: Request) -> RedirectResponse:
        return RedirectResponse(UI_PATH[1:])

    return [
        Route(UI_PATH, show, methods=["GET"]),
        Route(f"{UI_PATH}/", lead, methods=["GET"]),
        Route("/", begin, methods=["GET"]),
    ]


def _style() -> str:
    return _read("page.css")


def _script() -> str:
    """Return the parts as one script with names of its own."""
    return '"use strict";\n(() => {\n' + "\n".join(map(_read, _PARTS)) + "})();\n"


def _read(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
