"""The page that the documentation gives to users of the endpoint, in a browser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from browser import chromium, watched
from endpoint import endpoint_server
from fault_server import unused_port

PAGE = Path(__file__).parent.parent / "docs" / "show.md"
HOSTILE = "<img src=x onerror=alert(1)>"


def files(folder: Path) -> None:
    """Write the files that the commands of the page make."""
    text = PAGE.read_text(encoding="utf-8")
    for name, code in re.findall(r"^cat > (\S+) <<'\w+'\n(.*?)^[A-Z]+$", text, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(code, encoding="utf-8")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_shows_shares_and_text_as_text(width: int, tmp_path: Path) -> None:
    files(tmp_path)
    port = unused_port()
    answers = [HOSTILE, HOSTILE, HOSTILE, "Ankara"]
    with endpoint_server(answers, rule="exact") as endpoint:
        variables = {"ENDPOINT": endpoint.url, "MODEL": "selfreflect/m", "PORT": str(port)}
        server = subprocess.Popen([sys.executable, "page.py"], cwd=tmp_path, env={**os.environ, **variables})
        try:
            address = f"http://localhost:{port}/"
            with chromium() as browser, watched(browser, address, width=width) as seen:
                page = seen.page
                for _ in range(100):
                    try:
                        page.goto(address)
                        break
                    except Exception:  # the server is still starting
                        page.wait_for_timeout(100)
                page.get_by_label("Question").fill("What is the capital of Turkey?")
                page.get_by_role("button", name="Ask").click()
                page.get_by_text("75 % of 4 tries say:").wait_for()
                assert page.get_by_role("status").inner_text() == f"75 % of 4 tries say: {HOSTILE}"
                assert [text.strip() for text in page.locator("li").all_inner_texts()] == [
                    f"75 % {HOSTILE}",
                    "25 % Ankara",
                ]
                assert page.locator("progress").first.evaluate("bar => bar.value") == 0.75
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                assert seen.serious() == []
                assert not [text for text in seen.problems if "favicon" not in text]
                assert seen.foreign == []
                page.screenshot(path=tmp_path / "page.png")
        finally:
            server.terminate()
            server.wait()
