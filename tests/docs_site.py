"""Open the built site from disk, as a reader without a network does: no request leaves, no script fails, and
the search finds pages."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))

import browser


def main() -> int:
    site = Path(__file__).parent.parent / "build" / "site"
    wrong: list[str] = []
    with browser.chromium() as opened:
        page = opened.new_page()
        page.on("request", lambda request: wrong.append(request.url) if is_elsewhere(request.url) else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        for path in sorted(site.glob("*.html")):
            page.goto(path.as_uri())
        page.goto((site / "index.html").as_uri())
        page.locator("input[data-md-component='search-query']").click()
        page.keyboard.type("race", delay=50)
        try:
            page.wait_for_selector(".md-search-result__item", timeout=20_000)
        except Exception as error:
            wrong.append(f"the search finds nothing: {error}")
        found = page.locator(".md-search-result__item").count()
    for line in wrong:
        print(line)
    print(f"{len(list(site.glob('*.html')))} pages opened from disk; the search found {found} of them")
    return 1 if wrong else 0


def is_elsewhere(url: str) -> bool:
    return not url.startswith(("file:", "data:", "blob:", "about:"))


if __name__ == "__main__":
    sys.exit(main())
