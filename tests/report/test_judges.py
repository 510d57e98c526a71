"""Several judges of one run, side by side."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command import run
from finished_run import write_run

from selfreflect.records import Score, Summary
from selfreflect.store.run import Run

pytestmark = pytest.mark.usefixtures("quick_figures", "one_embedder")


@pytest.fixture
def two_judges(tmp_path: Path) -> Path:
    """Six questions with two summaries, whose order two judges see alike on four; and a third judge."""
    path = write_run(tmp_path / "r", count=6)
    with Run.open(path, {}) as stored:
        stored.append_all(Summary(question_id=f"q{n}", name="basic", text="short") for n in range(6))
        stored.append_all(score(n, "basic", 0.5) for n in range(6))
        stored.update_manifest(config={"scores": {"judge": "tiny"}}, models={"scores": {"name": "tiny"}})
        stored.select_scoring("big-1")
        stored.update_manifest(
            config={"scores": {"judge": "org/big", "budget": "99"}}, models={"scores": {"name": "org/big"}}
        )
        for number in range(6):
            stored.append(score(number, "greedy", 0.1, "org/big"))
            stored.append(score(number, "basic", 0.2 if number < 4 else 0.05, "org/big"))
    return path


def score(number: int, name: str, value: float, judge: str = "tiny") -> Score:
    return Score(question_id=f"q{number}", summary=name, value=value, stderr=None, token_tasks=2, judge=judge)


def judges_of(page: Path) -> list[str]:
    """The judges that a reader of the page can choose, the one that it begins with first."""
    [menu] = re.findall(r'<select id="judge"[^>]*>(.*?)</select>', page.read_text())
    return re.findall(r"<option[^>]*>(.*?)</option>", menu)


def test_a_report_shows_each_judge_and_how_far_they_agree(two_judges: Path, tmp_path: Path) -> None:
    said = " ".join(run("report", two_judges).stdout.split())
    assert "(r, judge tiny)" in said
    assert "(r, judge org/big, budget 99)" in said
    agreement = "in the same order in 67 %"
    assert agreement in said
    lines = run("report", two_judges, "--json").json
    assert [(line["judge"], line["strategy"]) for line in lines] == [
        ("tiny", "greedy"),
        ("tiny", "basic"),
        ("org/big, budget 99", "greedy"),
        ("org/big, budget 99", "basic"),
    ]
    markdown, csv, page = (tmp_path / f"r.{suffix}" for suffix in ("md", "csv", "html"))
    output = [part for path in (markdown, csv, page) for part in ("--output", path)]
    assert run("report", two_judges, *output).code == 0
    assert agreement in markdown.read_text()
    assert csv.read_text().count("big") == 12
    assert judges_of(page) == ["tiny", "org/big, budget 99"]
    assert agreement in re.sub(r"<.*?>", "", page.read_text()).replace("\xa0", " ")


def test_one_judge_can_be_chosen(two_judges: Path, tmp_path: Path) -> None:
    for name in ("org/big", "org/big, budget 99"):
        lines = run("report", two_judges, "--judge", name, "--json").json
        assert [line["score"] for line in lines] == pytest.approx([0.1, 0.15])
    page = tmp_path / "r.html"
    assert run("report", two_judges, "--judge", "org/big", "--output", page).code == 0
    assert judges_of(page) == ["org/big, budget 99", "tiny"]
    refused = run("report", two_judges, "--judge", "org/bug")
    assert refused.code == 2
    assert "has scores by tiny; org/big, budget 99, not by 'org/bug'" in refused.said


def test_each_judge_compares_its_own_scores(two_judges: Path) -> None:
    lines = run("compare", two_judges, "--json").json
    assert [line["judge"] for line in lines] == ["tiny", "org/big, budget 99"]
    assert [line["difference"] for line in lines] == pytest.approx([0.125, 0.05])
    said = " ".join(run("compare", two_judges).stdout.split())
    assert "NOT DIRECTLY COMPARABLE" not in said
    assert "in the same order in 67 %" in said


def test_two_runs_are_compared_by_the_judge_that_both_have(two_judges: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "s", count=6)
    lines = run("compare", other, two_judges, "--json").json
    assert {line["judge"] for line in lines} == {"tiny"}
    lines = run("compare", two_judges, other, "--judge", "tiny", "--json")
    assert lines.code == 2  # the other directory does not know who scored it
    with Run.open(other, {}) as stored:
        stored.update_manifest(config={"scores": {"judge": "tiny"}})
    lines = run("compare", two_judges, other, "--judge", "tiny", "--json").json
    assert [(line["run"], line["strategy"]) for line in lines] == [
        ("r, judge tiny", "basic"),
        ("s", "greedy"),
    ]


def test_a_run_with_one_judge_looks_as_it_did(tmp_path: Path) -> None:
    path = write_run(tmp_path / "r", count=6)
    said = run("report", path).stdout
    assert "by judge" not in said
    assert "(r)" in said
    page = tmp_path / "r.html"
    assert run("report", path, "--output", page).code == 0
    assert 'id="judge"' not in page.read_text()
    assert "Judges side by side" not in page.read_text()


def test_a_page_of_runs_lists_a_judge_once_and_shows_what_else_a_run_has(
    two_judges: Path, tmp_path: Path
) -> None:
    other, page = write_run(tmp_path / "s", count=6), tmp_path / "r.html"
    assert run("report", two_judges, other, "--output", page).code == 0
    assert judges_of(page) == ["tiny", "org/big, budget 99"]
    assert run("report", other, two_judges, "--output", page).code == 0
    assert judges_of(page) == ["unknown", "org/big, budget 99"]
