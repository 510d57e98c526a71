"""Debian's chromium through Playwright, watched: what it printed, what went wrong, and what it asked the
network for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import axe_playwright_python
from playwright.sync_api import Browser, Page, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"

SERIOUS = ("serious", "critical")

PATIENCE = 120_000
"""Milliseconds that a page may take for anything. What is waited for comes as soon as a busy machine gets to
it, or not at all."""


def executable() -> str:
    """The browser of this machine.

    Raises:
        RuntimeError: there is none, with what installs one.
    """
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        raise RuntimeError("the browser tests need chromium. On Debian and Ubuntu: apt-get install chromium")
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser. Its sandbox is off because containers rarely allow one; the tests open their own
    pages only."""
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=executable(), args=arguments, timeout=PATIENCE)
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page and everything that it should not have done."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page = page
        self.problems: list[str] = []
        """Messages of the console at level warning or error, uncaught errors and dialogs."""
        self.foreign: list[str] = []
        """Requests that did not go to ``origin``; data and blobs of the page itself do not count."""
        page.on(
            "console",
            lambda message: (
                self.problems.append(message.text) if message.type in ("warning", "error") else None
            ),
        )
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", lambda dialog: (self.problems.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((origin, "data:", "blob:"))
                else self.foreign.append(request.url)
            ),
        )

    def serious(self) -> list[str]:
        """What axe finds on the page as it is now, at impact serious or critical, one line for each rule and
        element."""
        if self.page.evaluate("!window.axe"):
            self.page.evaluate(_AXE.read_text(encoding="utf-8"))
        found: dict[str, Any] = self.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{violation['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
            for violation in found["violations"]
            if violation["impact"] in SERIOUS
            for node in violation["nodes"]
        ]


@contextmanager
def watched(
    browser: Browser, origin: str, *, width: int = 1200, height: int = 900, dark: bool = False
) -> Iterator[Watched]:
    """A fresh page of its own profile; ``origin`` is where it may ask for things, such as
    ``file:///tmp/report.html``."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
    )
    context.set_default_timeout(PATIENCE)
    try:
        yield Watched(context.new_page(), origin)
    finally:
        context.close()
