"""From a file of one's own to scores: what was understood, and what to do next."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import tiny
from command import run, written

from selfreflect.store.run import Run

LONG = """prompt,response,topic,summary
What first?,Radishes.,garden,Radishes or lettuce.
What first?,"Lettuce, I think.",garden,
Who watches?,Anna,town,Anna.
Who watches?,Tom,town,
"""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("model"), "llama")


def test_a_table_of_ones_own_is_scored_by_one_command(judge: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "mine.csv", LONG)
    lines = run("score", "--items", path, "--judge", judge, "--json").json
    assert [(line["question"], line["summary"], line["summary_text"]) for line in lines] == [
        ("What first?", "summary", "Radishes or lettuce."),
        ("Who watches?", "summary", "Anna."),
    ]
    assert [line["metadata"] for line in lines] == [{"topic": "garden"}, {"topic": "town"}]
    assert all(0 <= line["score"] <= 1 for line in lines)
    shown = run("score", "--items", path, "--judge", judge, "--measures", "selfreflect")
    for text in ("What first?", "Radishes or", "Who watches?", "Anna.", "mean"):
        assert text in shown.stdout
    for line in lines:
        assert f"{line['score']:.4f}" in shown.stdout
    assert "--json" in shown.said


def test_convert_shows_what_it_understood_and_writes_it(tmp_path: Path) -> None:
    path = written(tmp_path / "mine.csv", LONG)
    output = tmp_path / "items.jsonl"
    outcome = run("convert", path, "--output", output)
    assert outcome.code == 0, outcome.stderr
    for text in (
        "CSV, one row per answer",
        "kept with the question",
        "2 questions; answers per question: 2; summaries: summary (2)",
        "Lettuce, I think.",
    ):
        assert text in outcome.stdout
    assert f"selfreflect score --items {output}" in outcome.said
    first = json.loads(output.read_text(encoding="utf-8").splitlines()[0])
    assert sorted(first["answers"]) == ["Lettuce, I think.", "Radishes."]
    assert first["metadata"] == {"topic": "garden"}
    again = tmp_path / "again.jsonl"
    assert run("convert", output, "--output", again).code == 0
    assert again.read_bytes() == output.read_bytes()
    refused = run("convert", path, "--output", output)
    assert (refused.code, "already there" in refused.said) == (2, True)
    assert run("convert", path, "--output", output, "--overwrite").code == 0
    refused = run("convert", output, "--output", output, "--overwrite", "--limit", 1)
    assert (refused.code, "would replace the questions" in refused.said) == (2, True)
    assert again.read_bytes() == output.read_bytes()


def test_convert_takes_for_the_summary_what_score_takes(tmp_path: Path) -> None:
    path = written(tmp_path / "bot.csv", "question,answer_1,answer_2,Bot Reply\nOz?,Emerald,Ruby,Either.\n")
    [shown] = run("convert", path, "--json").json
    assert (shown["summaries"], shown["columns"]["Bot Reply"]) == (1, "summary")
    output = tmp_path / "items.jsonl"
    assert run("convert", path, "--output", output).code == 0
    assert json.loads(output.read_text(encoding="utf-8"))["summaries"] == {"Bot Reply": "Either."}


def test_lines_of_an_answer_stand_below_its_first(tmp_path: Path) -> None:
    path = written(
        tmp_path / "poems.json", json.dumps([{"question": "A poem?", "answers": ["One\ntwo", "x"]}])
    )
    assert "\n    One\n    two\n" in run("convert", path).stdout


SPLIT = "frage,antworten,summary\nWhat first?,Radishes; Lettuce ;Radishes,Radishes.\n"


def test_named_columns_and_several_answers_in_a_cell(judge: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "mine.csv", SPLIT)
    named = ["--column", "question=frage", "--column", "answer=antworten"]
    advice = run("score", "--items", path, "--judge", judge, *named)
    assert (advice.code, "split it with: --separator ';'" in advice.said) == (2, True), advice.said
    options = [*named, "--separator", ";"]
    [line] = run("score", "--items", path, "--judge", judge, *options, "--json").json
    listed = [
        {"question": "What first?", "answers": ["Radishes", "Lettuce", "Radishes"], "summary": "Radishes."}
    ]
    [same] = run("score", "--items", written(tmp_path / "a.json", listed), "--judge", judge, "--json").json
    assert line["score"] == same["score"]
    assert run("import", "--items", path, *options, "--out", tmp_path / "r").code == 0
    [answers] = Run.load(tmp_path / "r").answers.values()
    assert sorted(answers.answers) == ["Lettuce", "Radishes", "Radishes"]
    lines_in_cells = written(tmp_path / "lines.csv", 'question,answer\nWhat first?,"Radishes\nLettuce"\n')
    assert "split it with: --separator '\\n'" in run("convert", lines_in_cells).said
    assert "answers per question: 2" in run("convert", lines_in_cells, "--separator", "\\n").stdout


def test_a_large_file_says_how_much_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfreflect.cli.console.SECONDS_BETWEEN_READINGS", 0)
    rows = "".join(f"What first in garden {number // 4}?,Radishes.\n" for number in range(20_000))
    outcome = run("convert", written(tmp_path / "large.csv", "question,answer\n" + rows))
    shares = re.findall(r"reading large.csv: (\d+) %, about \d+ s left", outcome.said)
    assert len(shares) >= 6
    assert list(map(int, shares)) == sorted(map(int, shares))
    assert int(shares[0]) < 20
    assert int(shares[-1]) == 100
    assert "reading" not in run("convert", written(tmp_path / "small.csv", LONG)).said


def test_answers_alone_are_imported_to_be_summarised(tmp_path: Path) -> None:
    rows = [{"question": "What first?", "samples": ["Radishes.", "", "Peas"], "topic": "garden"}]
    path = written(tmp_path / "mine.json", rows)
    outcome = run("import", "--items", path, "--out", tmp_path / "r")
    assert outcome.code == 0, outcome.stderr
    assert "1 question, 1 answer set, 0 summaries" in outcome.said
    quick = f"selfreflect summarize --out {tmp_path / 'r'} --strategies basic --summary-tokens 256"
    assert quick in outcome.said, "the quick choice comes first"
    assert "1 answer is blank" in outcome.said
    stored = Run.load(tmp_path / "r")
    assert [question.metadata for question in stored.questions.values()] == [{"topic": "garden"}]
    refused = run("score", "--items", path)
    assert refused.code == 2
    assert "selfreflect import --items FILE --out DIR" in refused.said


def test_what_a_file_holds_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b[2J[bold]%s{0}"
    rows = [{"question": evil, "answers": [evil, "b"], evil: evil, "summaries": {evil: evil}}]
    outcome = run("convert", written(tmp_path / "mine.json", rows))
    assert outcome.code == 0, outcome.stderr
    assert "\x1b" not in outcome.stdout + outcome.stderr
    assert outcome.stdout.count("[bold]%s{0}") >= 4


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--output", "x.csv"], "must end in .jsonl"),
        (["--column", "answer"], "as in --column answer=text"),
        (["--column", "answer=none"], "has no column 'none'"),
        (
            ["--column", "answer=topic", "--column", "answer=prompt"],
            "answer: topic and prompt. Keep one. For several columns with one answer each, write --column "
            "answer=A1..A6.",
        ),
        (["--separator", ""], "as in --separator ';'"),
        (["--separator", "|"], "no answer cell contains '|'"),
    ],
)
def test_convert_refuses(arguments: list[str], problem: str, tmp_path: Path) -> None:
    outcome = run("convert", written(tmp_path / "mine.csv", LONG), *arguments)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert problem in outcome.said


def test_numbered_columns_are_named_at_once(tmp_path: Path) -> None:
    rows = "Q,A1,A2,A3,A10,A11\nWhat first?,Radishes,Lettuce,Cress,Peas,no answer\n"
    path = written(tmp_path / "mine.csv", rows)
    named = ["--column", "question=Q", "--column", "answers=A1..A10"]
    assert "answers per question: 4" in run("convert", path, *named).stdout
    assert run("import", "--items", path, *named, "--out", tmp_path / "r").code == 0
    [answers] = Run.load(tmp_path / "r").answers.values()
    assert sorted(answers.answers) == ["Cress", "Lettuce", "Peas", "Radishes"]
    none = run("convert", path, "--column", "question=Q", "--column", "answers=B1..B3")
    assert (none.code, "has no column 'B1..B3'" in none.said) == (2, True)
    dotted = written(tmp_path / "dots.csv", "Q,A1..A3,A1,A2\nWhat?,both,x,y\n")
    only = run("convert", dotted, "--column", "question=Q", "--column", "answer=A1..A3")
    assert "the question has 1" in only.said, "a column of that very name goes before"
