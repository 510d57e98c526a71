"""The documentation stays true: its links lead somewhere, its messages exist, and the README stays short."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)|(?:src|srcset|href)=\"([^\":#]+)\"")
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
SOURCE = re.sub(r"\"\s*\n\s*f?\"", "", SOURCE)  # literals that are joined from several lines
SOURCE = SOURCE.replace("{what}", "key in")
ELSEWHERE = ("We couldn't connect to 'https://huggingface.co'",)
"""Messages of libraries, which ours quote."""


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_of_pages_that_the_site_does_not_check_lead_to_files(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    targets = [first or second for first, second in LINK.findall(text)]
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_messages_under_troubleshooting_exist() -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    messages = re.findall(r"^## `(.+)`(?: in failures)?$", text, flags=re.MULTILINE)
    assert len(messages) == 10
    assert [one for one in messages if one not in SOURCE and one not in ELSEWHERE] == []


def test_every_block_of_commands_runs_or_says_what_it_needs() -> None:
    runner = runpy.run_path(str(ROOT / "tests" / "docs_commands.py"))
    commands = []
    for page in runner["DOCUMENTS"]:
        commands += runner["blocks"](page, (ROOT / page).read_text(encoding="utf-8"))
    assert {"README.md", "docs/validate.md", "docs/scale.md"} <= {
        one.page for one in commands if one.language
    }
    assert {one.needs for one in commands if one.page == "docs/scale.md"} >= {"needs a bucket"}
    with pytest.raises(ValueError, match=r"page: mark this block bash"):
        runner["blocks"]("page", "```\nselfreflect run\n```")


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
