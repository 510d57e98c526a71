"""The documentation stays true: its links lead somewhere, its messages exist, and the README stays short."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)|(?:src|srcset|href)=\"([^\":#]+)\"")
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
SOURCE = re.sub(r"\"\s*\n\s*f?\"", "", SOURCE)  # literals that are joined from several lines
SOURCE = SOURCE.replace("{label}", "key in")
ELSEWHERE = ("We couldn't connect to 'https://huggingface.co'",)
"""Messages of libraries, which ours quote."""


def test_links_lead_to_files_of_a_clone() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    targets = {
        (page, first or second) for page in pages for first, second in LINK.findall(page.read_text("utf-8"))
    }
    assert len(targets) > 100
    assert [(page.name, target) for page, target in targets if not (page.parent / target).exists()] == []


def test_the_messages_under_troubleshooting_exist() -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    messages = re.findall(r"^## `(.+)`(?: in failures)?$", text, flags=re.MULTILINE)
    assert len(messages) == 11
    assert [one for one in messages if one not in SOURCE and one not in ELSEWHERE] == []


def described(address: str = "") -> str:
    """The README as a package index shows it, by the rules in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    *pictures, links = hook["substitutions"]
    if address:
        links["replacement"] = rf"\1[\2]({address}\3\4)"
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for rule in (*pictures, links):
        text = re.sub(rule["pattern"], rule["replacement"], text)
    return text


def targets(text: str) -> list[str]:
    return re.findall(r"\]\(([^)]*)\)|(?:src|srcset|href)=", text)


def test_a_package_index_gets_no_link_or_picture_that_leads_nowhere() -> None:
    assert [target for target in targets(described()) if not target.startswith("https://")] == []
    assert "(`docs/report-light.png`)" in described()
    text = described("https://host.example/files/")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(target.startswith("https://") for target in targets(text))
    assert len(targets(text)) == readme.count("](") + readme.count("<picture>")
    assert "](https://host.example/files/docs/index.md#install)" in text
    assert "![One question of the demo" in text
    assert "](https://host.example/files/docs/report-light.png)" in text


@pytest.mark.slow
def test_pip_builds_the_description_from_these_rules(tmp_path: Path) -> None:
    """The test above applies the rules itself; it needs no package index."""
    report = tmp_path / "report.json"
    options = ["--quiet", "--dry-run", "--no-deps", "--ignore-installed", "--report", str(report)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(ROOT)], check=True)
    [package] = json.loads(report.read_text(encoding="utf-8"))["install"]
    assert package["metadata"]["description"].strip() == described().strip()


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
