"""A measure of another package appears in every report by itself."""

from __future__ import annotations

import json
from pathlib import Path

import browser as b
import pytest
from command import run
from finished_run import write_run

from selfreflect.records import Measurement, Summary
from selfreflect.store.run import Run

VALUES = {"greedy": [0.5] * 6, "basic": [0.2, 0.3, 0.25, 0.2, 0.1, 0.3]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six questions with scores of one strategy, and a measure of another package for two."""
    path = write_run(tmp_path_factory.mktemp("run") / "r", count=6)
    with Run.open(path, {}) as stored:
        stored.append_all(Summary(question_id=f"q{n}", name="basic", text="short") for n in range(6))
        for name, values in VALUES.items():
            for number, value in enumerate(values):
                fields = {"measure": "contained", "question_id": f"q{number}", "summary": name}
                stored.append(Measurement(value=value, **fields))
    return path


@pytest.mark.usefixtures("plugin")
def test_it_is_in_the_table_in_json_and_in_files(folder: Path, tmp_path: Path) -> None:
    csv, markdown = tmp_path / "r.csv", tmp_path / "r.md"
    output = ["--output", csv, "--output", markdown, "--figures", tmp_path / "figures"]
    done = run("report", folder, *output, "--json")
    assert done.code == 0, done.stderr
    lines = {line["strategy"]: line["contained"] for line in done.json}
    assert (lines["basic"]["mean"], lines["basic"]["n"]) == (pytest.approx(0.225), 6)
    assert lines["basic"]["low"] < 0.225 < lines["basic"]["high"]
    assert "contained: 50 %" in run("report", folder, "--question", "q0").stdout
    assert "| contained | contained 95 % low |" in markdown.read_text()
    assert "| basic | – | – | – | 22 % |" in markdown.read_text()
    heading, *rows = csv.read_text().splitlines()
    assert heading.endswith("failure,contained,contained_undefined")
    assert sorted(row.split(",")[-2] for row in rows if ",basic," in row)[-1] == "0.3"
    assert {"contained.svg", "differences-contained.csv"} <= {
        path.name for path in (tmp_path / "figures").iterdir()
    }


@pytest.mark.parametrize(
    ("condition", "code"),
    [("contained.worse > 0", 3), ("contained.difference < -50%", 0), ("contain.worse > 0", 2)],
)
@pytest.mark.usefixtures("plugin")
def test_it_can_fail_a_comparison(folder: Path, condition: str, code: int) -> None:
    done = run("compare", folder, "--fail-if", condition, "--json")
    assert done.code == code, done.stderr
    if code != 2:
        assert done.json[0]["contained"]["verdict"] == "worse"
    else:
        assert "'contained.worse'" in done.said


def test_a_join_counts_it(folder: Path, tmp_path: Path) -> None:
    done = run("import", folder, "--out", tmp_path / "joined")
    assert (done.code, " 12 by " in done.said) == (0, True), done.said


@pytest.mark.usefixtures("plugin")
def test_it_chooses_what_a_student_learns(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "set"
    done = run("dataset", "sft", folder, "--measure", "contained", "--output", out, "--json")
    assert done.code == 0, done.stderr
    rows = [json.loads(line) for name in ("train", "dev", "test") for line in (out / f"{name}.jsonl").open()]
    assert {(row["summary"], row["value"]) for row in rows} == {("greedy", 0.5)}
    assert json.loads((out / "splits.json").read_text())["measure"] == "contained"


@pytest.mark.usefixtures("plugin")
def test_it_has_a_column_on_the_page(folder: Path, tmp_path: Path) -> None:
    page_file = tmp_path / "r.html"
    assert run("report", folder, "--output", page_file).code == 0
    with b.chromium() as browser, b.watched(browser, page_file.as_uri()) as watched:
        page = watched.page
        page.goto(page_file.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        assert page.get_by_role("heading", name="Mean contained of each strategy").is_visible()
        page.get_by_label("Sort by").select_option(label="contained of basic")
        assert page.locator(".list tbody tr").first.locator("td").nth(-2).inner_text().endswith("30\xa0%")
        page.locator(".list a").first.click()
        page.locator(".card", has_text="contained: 30 %").wait_for()
        assert (watched.problems, watched.foreign) == ([], [])


def test_a_report_says_whose_package_is_not_installed(folder: Path) -> None:
    done = run("report", folder)
    assert done.code == 0, done.stderr
    assert "contained" in done.stdout
    assert "is not installed" in " ".join(done.stdout.split())
