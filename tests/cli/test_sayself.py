"""``selfreflect sayself run``, with functions as its models, and adapters that count as trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import Outcome, run
from moments import files_in, moments

from selfreflect.train.sayself import comparison

MODEL = """
def answer(messages, *, n=1, **options):
    text = messages[-1]["content"]
    if "Speak as this person" in text or "Complete this sentence" in text:
        return ["I am not sure which of these rivers runs through that town."] * n
    if "How faithfully" in text:
        return ["Score: 8"] * n
    if "Confidence:" in text:
        return ["Seine\\nConfidence: 9"] * n
    place = int("".join(filter(str.isdigit, text)) or 0)
    wrong = place % 4
    return ["Loire" if number % 4 < wrong else "Seine" for number in range(n)]


def trained(messages, *, n=1, **options):
    place = int("".join(filter(str.isdigit, messages[0]["content"])))
    river = "Loire" if place % 4 > 1 else "Seine"
    doubt = "Self-reflection: I do not know whether it is the Loire."
    return [f"Answer: {river}. {doubt} Confidence: {10 - 3 * (place % 4)}"] * n


def same(messages, *, n=1, **options):
    return ["Yes."] * n


def wordy(messages, *, n=1, **options):
    return ["The river that runs there is the Seine."] * n
"""
QUICK = "--num-answers 4 --classes exact --reward none --seeds 0 --yes"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "river_model.py").write_text(MODEL)
    rows = [
        {"question": f"Which river runs through town {number}?", "answer": "Seine"} for number in range(40)
    ]
    (tmp_path / "questions.json").write_text(json.dumps(rows))
    monkeypatch.chdir(tmp_path)

    def learn(self: comparison.Training) -> str:
        self.folder.mkdir(parents=True, exist_ok=True)
        record = {"base": "river_model:answer", "metrics": {"change": 1.0}}
        (self.folder / "training.json").write_text(json.dumps(record))
        return f"{self.folder}: trained"

    monkeypatch.setattr(comparison.Training, "run", learn)
    monkeypatch.setattr(comparison, "adapter_asker", lambda opened, _: opened("river_model:trained"))
    return tmp_path


def sayself(options: str = "", code: int = 0, model: str = "answer") -> Outcome:
    name = f"river_model:{model}"
    arguments = f"--questions questions.json --out r --model {name} --base {name} {QUICK} {options}"
    outcome = run("sayself", "run", *arguments.split())
    assert outcome.code == code, outcome.said
    return outcome


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path("r/sayself") / name).read_text().splitlines()]


def test_from_questions_to_data_and_baselines(folder: Path) -> None:
    outcome = sayself()
    assert "10 with a single one" in outcome.said
    assert "before their end" not in outcome.said
    assert "0 left out" not in outcome.said
    rows = lines("data/full/train.jsonl")
    assert {row["response"].rpartition(" ")[2] for row in rows} <= {"3", "5", "8", "10"}
    assert all(row["completion"][0]["content"] == row["response"] for row in rows)
    tested = {line["question_id"] for line in lines("statements-test.jsonl")}
    assert tested
    assert not tested & {row["question_id"] for row in rows}
    table = (folder / "r/sayself/evaluation.md").read_text()
    for name in ("agreement of samples (SC)", "asked directly (DP)", "full-0", "rtuning-0"):
        assert name in table
        assert name.partition(" (")[0] in outcome.stdout


def test_methods_are_compared_on_the_same_questions(folder: Path) -> None:
    sayself()
    adapter = folder / "r/sayself/models/full-\x1b[2J"  # which would clear the screen
    adapter.mkdir(parents=True)
    (adapter / "training.json").write_text('{"base": "x", "metrics": {"change": 1.0}}')
    outcome = sayself("--judge river_model:answer --json")
    methods = {row["method"]: row for row in outcome.json}
    trained = methods["full-0"]
    shown = trained["n"]
    assert trained["faithfulness"] == {"mean": pytest.approx(0.8), "read": shown, "asked": shown}
    assert methods["asked directly (DP)"]["accuracy"] == 1.0
    # r-tuning was trained on the most common answer, and what a model says when asked directly may be none
    assert methods["rtuning-0"]["accuracy"] == methods["agreement of samples (SC)"]["accuracy"] < 1
    stated = [line for line in lines("statements-test.jsonl") if line["method"] == "full-0"]
    assert len(stated) == shown
    assert sum(line["correct"] for line in stated) / shown == trained["accuracy"]
    assert stated[0]["reflection"].startswith("I do not know")
    written = (folder / "r/sayself/evaluation.md").read_text()
    for title in ("Brier score minus the Brier score of baselines", "Faithfulness of"):
        assert title in written
    assert "\x1b" not in written + sayself().stdout


def test_the_same_command_asks_for_no_reply_twice(folder: Path) -> None:
    sayself()
    before = files_in(folder / "r")
    (folder / "river_model.py").write_text(
        MODEL.replace("def answer", "def answer(messages, **options):\n    return 1 / 0\n\n\ndef unused")
    )
    with moments(folder / "r/sayself") as states:
        sayself()
    after = files_in(folder / "r")
    assert {path: after[path] for path in before if path.endswith(".jsonl")} == {
        path: data for path, data in before.items() if path.endswith(".jsonl")
    }
    whole = files_in(folder / "r/sayself")
    for state in states:
        visible = {path: data for path, data in state.items() if ".partial" not in path}
        assert visible.items() <= whole.items(), "a part of a file was left"


def test_a_model_can_decide_what_is_one_cluster(folder: Path) -> None:
    variants = "--variants no_rationale --classes judge"
    assert "Name it with --judge MODEL" in sayself(variants, code=2).said
    assert not (folder / "r").exists()
    assert "40 with a single one" in sayself(f"{variants} --judge river_model:same").said


def test_answers_none_of_which_is_right_come_with_advice(folder: Path) -> None:
    options = "--variants no_rationale --select majority"
    assert "--correctness squad_f1:0.2" in sayself(options, model="wordy").said
    said = sayself(f"{options} --correctness squad_f1:0.2", model="wordy").said
    assert "In 40 of 40 questions with a right answer" in said


def test_answers_without_their_end_are_counted(folder: Path) -> None:
    sayself("--variants no_rationale")
    answers = folder / "r/answers.jsonl"
    answers.write_text(answers.read_text().replace('"truncated": 0', '"truncated": 3', 2))
    assert "6 of 320 answers were cut off" in sayself("--variants no_rationale").said


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--variants no_rational", "Did you mean 'no_rationale'?"),
        ("--seeds a", "'a'"),
        ("--classes nothing", "no class rule 'nothing'"),
    ],
)
def test_mistyped_names(folder: Path, options: str, sentence: str) -> None:
    assert sentence in sayself(options, code=2).said


def test_nothing_starts_without_questions(folder: Path) -> None:
    outcome = run("sayself", "run", "--out", "r")
    assert outcome.code == 2
    assert "--questions" in outcome.said
    assert not (folder / "r").exists()


def test_too_few_questions_are_refused_before_training(folder: Path) -> None:
    (folder / "questions.json").write_text('[{"question": "Which river?", "answer": "Seine"}]')
    assert "too few" in sayself(code=2).said
    assert not (folder / "r/sayself/models").exists()
