"""From a file of replies to a gate: `score --items`, one version or two, with files and conditions."""

from __future__ import annotations

import csv
import re
from contextlib import chdir
from pathlib import Path

import pytest
from command import Outcome, run
from finished_run import write_run

from selfreflect.records import Information, Measurement, Score, Summary
from selfreflect.report.thresholds import parse_condition
from selfreflect.store.run import Run

QUESTIONS = {
    "Which plug do I need?": (["Type F.", "A type F plug.", "Type F.", "Type C."], "Type F.", "Type C."),
    "What colour is the train?": (["Blue.", "It is blue.", "Red.", "Blue."], "Blue.", "Blue."),
    "Is it open on Sunday?": (["No.", "No, closed.", "No.", "Yes."], "Yes.", "No."),
}
"""Answers, the old reply and the new one."""


@pytest.fixture(autouse=True)
def _narrow(plugin: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions of a bot, as files with one row for each question."""
    folder = tmp_path_factory.mktemp("versions")
    for place, name in enumerate(("old", "new"), start=1):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["question", *(f"answer_{n}" for n in range(1, 5)), "summary"])
            for question, row in QUESTIONS.items():
                writer.writerow([question, *row[0], row[place]])
    return folder


def score(folder: Path, *arguments: object) -> Outcome:
    """Score the new version by a measure that needs no judge."""
    with chdir(folder):
        return run("score", "--items", "new.csv", "--measures", "contained", *arguments)


def test_two_versions_are_compared_in_one_command(folder: Path) -> None:
    files = ["page.html", "rows.csv", "tables.tex", "tables.md"]
    output = [part for name in files for part in ("--output", name)]
    done = score(folder, "--against", "old.csv", *output, "--fail-if", "any contained < 40%")
    assert done.code == 3, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first.startswith("new.csv against old.csv: ")
    worse = next(line for line in rest if "Which plug do I need?" in line)
    assert "Type C." in worse
    assert not any("What colour is the train?" in line for line in rest), "it is equal"
    assert "1 got worse, 1 better, 1 stayed equal" in " ".join(done.stdout.split())
    assert "any contained < 40% holds on 1 of 3 questions of new.csv" in done.said
    rows = list(csv.DictReader((folder / "rows.csv").open(newline="")))
    assert [(row["run"], row["summary"]) for row in rows[:4:3]] == [
        ("old.csv", "Type F."),
        ("new.csv", "Type C."),
    ]
    assert (folder / "tables.tex").read_text().count(r"\begin{tabular}") >= 3
    assert "| old.csv |" in (folder / "tables.md").read_text()
    page = (folder / "page.html").read_text()
    assert page.count("any contained &lt; 40% holds on 1 of 3 questions of new.csv") == 1
    assert len(page) > 20_000


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("contained < 60%", 3),
        ("contained < 0.4", 0),
        ("any contained <= 25 %", 3),
        ("undefined > 0", 0),
        ("missing == 0", 3),
        ("recovered < 60%", 2),  # not measured
        ("worse > 0", 2),  # nothing to compare with
    ],
)
def test_one_version_can_fail(folder: Path, condition: str, code: int) -> None:
    done = score(folder, "--fail-if", condition, "--json")
    assert done.code == code, done.stderr
    assert (f"passed: {condition}: " in done.said) == (code == 0)
    assert len(done.json) == (0 if "worse" in condition else 3)


def test_a_note_on_one_of_two_files_names_it(folder: Path, tmp_path: Path) -> None:
    text = (folder / "old.csv").read_text().replace("summary", "Bot Reply")
    (tmp_path / "old.csv").write_text(text)
    (tmp_path / "new.csv").write_text((folder / "new.csv").read_text())
    done = score(tmp_path, "--against", "old.csv")
    assert [line.split(": ")[1] for line in done.stderr.splitlines() if line.startswith("note: ")] == [
        "old.csv"
    ]


def test_a_value_just_below_its_threshold_is_not_rounded_onto_it(folder: Path) -> None:
    lines = score(folder, "--json").json
    share = sum(line["contained"]["value"] for line in lines) / len(lines)
    done = score(folder, "--fail-if", f"contained < {100 * share + 0.2:.4f}%")
    assert f"it is {100 * share:.4g} %" in done.said


def test_a_seed_decides_which_answers_are_test_answers(folder: Path) -> None:
    values = set()
    for seed in range(3):
        lines = score(folder, "--seed", seed, "--json").json
        values.add(tuple(line["contained"]["value"] for line in lines))
    assert len(values) > 1


def test_the_worst_questions_come_first_and_replies_are_of_a_system(folder: Path) -> None:
    done = score(folder)
    lines = done.stdout.splitlines()
    places = [next(n for n, line in enumerate(lines) if question in line) for question in QUESTIONS]
    assert places[0] < min(places[1:]), "type C is in one of four answers"
    assert "reply" in done.stdout
    assert "system" in done.stdout
    assert "strateg" not in done.stdout
    assert max(map(len, lines)) <= 80


def test_wrong_files_are_refused_before_anything_is_scored(folder: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    renamed = tmp_path / "renamed.csv"
    renamed.write_text((folder / "new.csv").read_text().replace("?", " today?"))
    for arguments, code in [
        (["--against", empty], 2),
        (["--against", renamed], 2),
        (["--against", folder / "new.csv"], 2),
        (["--against", tmp_path / "none.csv"], 2),
        (["--output", folder / "new.csv"], 2),
        (["--output", "page.pdf"], 2),
    ]:
        done = run("score", "--items", folder / "new.csv", *arguments)
        assert (done.code, done.stdout) == (code, ""), arguments
        assert "loading judge" not in done.said
    assert run("score", "--out", tmp_path, "--against", empty).code == 2
    assert (folder / "new.csv").read_text().startswith("question,")


@pytest.fixture(scope="module")
def informed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven questions: summaries of basic recover 10 to 70 %, but for the last, which is undefined."""
    path = write_run(tmp_path_factory.mktemp("informed") / "r", count=7, informed=True)
    with Run.open(path, {}) as stored:
        for number in range(7):
            id_ = f"q{number}"
            stored.append(Summary(question_id=id_, name="basic", text="x"))
            share = None if number == 6 else (number + 1) / 10
            fields = {"reader": "informed", "zero": "empty", "anchor": "distinct", "judge": "tiny"}
            record = Information(
                question_id=id_,
                summary="basic",
                bits=None if share is None else 10 * share,
                bits_available=None if share is None else 10.0,
                recovered=share,
                undefined="known" if share is None else None,
                **fields,
            )
            stored.append(record)
            score = {"value": 0.4, "stderr": None, "token_tasks": 2, "judge": "tiny"}
            stored.append(Score(question_id=id_, summary="basic", **score))
    return path


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("recovered < 36%", 3),  # the mean of basic is 35 %
        ("information < 34%", 2),  # one question has no value
        ("any recovered < 10%", 2),
        ("any recovered <= 10%", 3),
        ("undefined > 0", 3),
        ("undefined > 1", 0),
        ("undefined >= 10%", 3),  # of seven questions
        ("recovered.undefined > 1 question", 0),
        ("score > 0.3", 3),
        ("selfreflect > 50%", 0),
        ("failures > 0", 0),
    ],
)
def test_a_run_can_fail_by_itself(informed: Path, condition: str, code: int) -> None:
    done = run("report", informed, "--fail-if", condition)
    assert done.code == code, done.stderr
    assert (f"passed: {condition}: " in done.said) == (code == 0)
    assert run("compare", informed, "--fail-if", condition, "--json").code == code


@pytest.mark.parametrize(
    ("allowance", "code"),
    [("undefined > 1", 0), ("recovered.undefined > 20%", 0), ("undefined > 0", 3), ("missing > 0", 2)],
)
def test_what_is_undefined_passes_only_where_a_condition_allows_it(
    informed: Path, allowance: str, code: int
) -> None:
    alone = run("report", informed, "--fail-if", "any recovered < 5%")
    assert alone.code == 2
    assert "1 of 7 questions" in alone.said
    assert "--fail-if 'undefined > N'" in alone.said
    done = run("report", informed, "--fail-if", "any recovered < 5%", "--fail-if", allowance)
    assert done.code == code, done.stderr
    assert ("passed: any recovered < 5%: " in done.said) == (code != 2), "the value closest to it"
    assert ("10 %" in done.said) == (code != 2), "the value that is closest"


def test_units_are_those_of_the_measure() -> None:
    shares = [parse_condition(text) for text in ("recovered<60%", "recovered < 60 %", "information < .6")]
    assert [(share.limit, share.operator) for share in shares] == 3 * [(0.6, "<")]


def test_a_measure_of_another_package_can_fail_a_report(tmp_path: Path) -> None:
    path = write_run(tmp_path / "r", count=6)
    with Run.open(path, {}) as stored:
        for number in range(6):
            value = None if number == 5 else 0.2
            undefined = "blank" if value is None else ""
            fields = {"measure": "contained", "question_id": f"q{number}", "summary": "greedy"}
            stored.append(Measurement(value=value, undefined=undefined, **fields))
    for condition, code in {
        "contained < 25%": 3,
        "any contained < 0.1": 2,  # a blank summary has no value
        "contained.undefined > 0": 3,
        "contained > 5 words": 2,
    }.items():
        done = run("report", path, "--fail-if", condition)
        assert done.code == code, done.stderr


def test_figures_go_into_one_pdf(informed: Path, tmp_path: Path) -> None:
    assert run("report", informed, "--figures", tmp_path / "fig.pdf").code == 0
    content = (tmp_path / "fig.pdf").read_bytes()
    assert content.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type /Page\b", content)) >= 4
    assert run("report", informed, "--figures", tmp_path / "fig.svg").code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["fig.pdf"]


def test_tables_fit_a_narrow_terminal_and_explain_on_request(informed: Path) -> None:
    for command in ("report", "compare"):
        short = run(command, informed)
        assert max(map(len, short.stdout.splitlines())) <= 80
        assert "control: " not in short.stdout
        assert short.stdout.count("BCa") == 0
        assert run(command, informed, "--explain").stdout.count("BCa") > 0
    assert "pasted answers" in run("report", informed, "--explain").stdout
    asked = run("report", informed, "--question", "q3")
    assert asked.stdout.split()[0] == "What"
    assert "Results" not in asked.stdout
