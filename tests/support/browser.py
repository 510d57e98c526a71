"""Debian's chromium through Playwright, watched: what it printed, what went wrong, and what it asked the
network for."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import axe_playwright_python
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""The first takes half the time of the others, which bring windows and extensions."""
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

    def __init__(self, page: Page) -> None:
        self.page = page
        self.begin("")
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", lambda dialog: (self.problems.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", self._see)

    def begin(self, origin: str) -> None:
        """Forget what happened, and take requests to ``origin`` for its own from now on."""
        self._origin = origin
        self.problems: list[str] = []
        """Messages of the console at level warning or error, uncaught errors and dialogs."""
        self.foreign: list[str] = []
        """Requests that did not go to ``origin``; data and blobs of the page itself do not count."""

    def leave(self) -> None:
        """Make a page that nobody has used: empty, alone in its profile, with nothing stored."""
        for page in self.page.context.pages:
            if page != self.page:
                page.close()
        self.page.evaluate("() => { try { localStorage.clear(); sessionStorage.clear() } catch {} }")
        self.page.mouse.move(0, 0)
        self.page.goto("about:blank")

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("warning", "error"):
            self.problems.append(message.text)

    def _see(self, request: Request) -> None:
        if not request.url.startswith((self._origin, "data:", "blob:", "about:blank")):
            self.foreign.append(request.url)

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


_MARK = """names => [...document.querySelectorAll(names)].map((element, place) => {
  element.id ||= `mark-${place}`;
  const link = document.createElement("a");
  link.href = `#${element.id}`;
  link.hidden = true;
  document.body.append(link);
  return [element.tagName.toLowerCase(), element.id];
})"""


def sheets(page: Page, names: str, **size: Any) -> list[tuple[str, int]]:
    """The printed elements that the selector ``names`` finds, each with the sheet that it begins on.

    Chromium writes into a PDF where the targets of links are.
    """
    marked = page.evaluate(_MARK, names)
    page.emulate_media(media="print")
    pdf = page.pdf(**size)
    page.emulate_media(media="screen")
    found = dict(re.findall(rb"/(\S+) \[(\d+) 0 R /XYZ", pdf))
    numbers = re.findall(rb"(\d+) 0 obj\n<</Type /Page\n", pdf)
    return [(tag, numbers.index(found[id_.encode()])) for tag, id_ in marked if id_.encode() in found]


_IDLE: WeakKeyDictionary[Browser, list[Watched]] = WeakKeyDictionary()
"""Pages that were left. To open one takes longer than most tests."""


@contextmanager
def watched(
    browser: Browser, origin: str, *, width: int = 1200, height: int = 900, dark: bool = False
) -> Iterator[Watched]:
    """A page as if nobody had used its profile; ``origin`` is where it may ask for things, such as
    ``file:///tmp/report.html``."""
    idle = _IDLE.setdefault(browser, [])
    one = idle.pop() if idle else Watched(browser.new_context().new_page())
    one.page.context.set_default_timeout(PATIENCE)
    one.page.set_viewport_size({"width": width, "height": height})
    one.page.emulate_media(color_scheme="dark" if dark else "light")
    one.begin(origin)
    try:
        yield one
    except BaseException:
        one.page.context.close()
        raise
    one.leave()
    idle.append(one)
