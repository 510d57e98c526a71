"""`selfreflect calibrate`: fitting, saving, applying, and refusing to judge itself on its own questions."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import Outcome, refused, run, written

from selfreflect.records import AnswerSet, Question
from selfreflect.store.run import Run
from selfreflect.uncertainty.measures import measure


def rows(start: int, count: int = 60) -> list[dict[str, Any]]:
    """Overconfident records: half of what is claimed above one half is true."""
    rng = np.random.default_rng(start)
    records = []
    for number in range(start, start + count):
        confidence = float(rng.integers(1, 11)) / 10
        correct = bool(rng.random() < confidence / 2)
        records.append({"id": f"q{number}", "confidence": confidence, "correct": correct})
    return records


def calibrate(*arguments: object) -> Outcome:
    return run("calibrate", *arguments)


@pytest.mark.parametrize("method", ["isotonic", "platt", "temperature"])
def test_a_saved_calibrator_improves_other_questions(tmp_path: Path, method: str) -> None:
    fitted, other = (
        written(tmp_path / "fit.json", rows(0, 300)),
        written(tmp_path / "new.json", rows(300, 300)),
    )
    saved = tmp_path / "cal.json"
    outcome = calibrate(fitted, "--estimator", "stated", "--method", method, "--save", saved)
    assert outcome.code == 0, outcome.stderr
    assert "cross-fitted" in outcome.stdout
    lines = calibrate(other, "--apply", saved, "--json").json
    assert [line["id"] for line in lines] == [f"q{number}" for number in range(300, 600)]
    correct = [line["correct"] for line in lines]
    before = measure("brier", [line["value"] for line in lines], correct).value
    after = measure("brier", [line["confidence"] for line in lines], correct).value
    assert before is not None
    assert after is not None
    assert after < before - 0.02
    by_value = sorted((line["value"], line["confidence"]) for line in lines)
    assert [c for _, c in by_value] == sorted(c for _, c in by_value)


def test_questions_of_the_fit_are_refused(tmp_path: Path) -> None:
    saved = tmp_path / "cal.json"
    calibrate(written(tmp_path / "fit.json", rows(0)), "--estimator", "stated", "--save", saved)
    overlapping = written(tmp_path / "new.json", rows(59, 30))
    refused(calibrate(overlapping, "--apply", saved), "1 of 30 questions", "'q59'")


def test_labels_are_not_needed_to_apply(tmp_path: Path) -> None:
    saved = tmp_path / "cal.json"
    calibrate(written(tmp_path / "fit.json", rows(0)), "--estimator", "stated", "--save", saved)
    unlabelled = [{"id": "x", "confidence": 0.9}, {"id": "y", "answers": ["a"]}]
    path = written(tmp_path / "new.json", unlabelled)
    outcome = calibrate(path, "--apply", saved, "--json")
    (line,) = outcome.json
    assert line["correct"] is None
    assert 0 <= line["confidence"] <= 1
    assert "1 question gets no confidence: the record has no confidence" in outcome.said
    shown = calibrate(path, "--apply", saved)
    assert "nothing to compare with" in shown.stdout
    assert f"{line['confidence']:.3f}" in shown.stdout.partition("most confident first")[2]


def test_the_next_command_keeps_the_options_of_this_one(tmp_path: Path) -> None:
    answers = {number: ["Paris", "Lyon" if number % 3 else "Paris"] for number in range(60)}
    records = [
        {
            "Nr": number,
            "question": f"{number}?",
            "answers": texts,
            "right one": "Paris" if number % 2 else "Rome",
        }
        for number, texts in answers.items()
    ]
    path, saved = written(tmp_path / "a.json", records), tmp_path / "cal.json"
    options = ("--gold", "right one", "--column", "id=Nr")
    said = [
        run("uncertainty", path, *options).said,
        calibrate(path, *options, "--estimator", "modal_share", "--save", saved).said,
    ]
    commands = [text.rpartition(": selfreflect ")[2] for text in said]
    assert "--gold 'right one' --column id=Nr" in commands[0]
    assert run(*shlex.split(commands[0])).code == 0
    unlabelled = [{"Nr": 100, "question": "100?", "answers": ["Paris", "Paris"]}]
    new = written(tmp_path / "new.json", unlabelled)
    assert "--column id=Nr" in commands[1]
    assert run(*shlex.split(commands[1].replace("FILE", str(new)))).code == 0


def test_entropies_become_confidences(tmp_path: Path) -> None:
    records = []
    for number in range(40):
        answers = ["Paris"] * 4 if number % 2 else ["Paris", "Lyon", "Nice", "Metz"]
        records.append(
            {"id": str(number), "answers": answers, "gold": "Paris" if number % 4 == 1 else "Rome"}
        )
    path = written(tmp_path / "a.json", records)
    lines = calibrate(path, "--estimator", "entropy", "--json").json
    sure = {line["confidence"] for line in lines if line["value"] == 0}
    unsure = {line["confidence"] for line in lines if line["value"] > 0}
    assert min(sure) > max(unsure)
    refused(calibrate(path, "--estimator", "entropy", "--method", "temperature"), "use isotonic or platt")


def test_another_number_of_answers_is_noted(tmp_path: Path) -> None:
    records = [
        {"id": str(n), "answers": ["a"] * 3 + ["b"] * (n % 4), "gold": "ab"[n % 5 == 0]} for n in range(60)
    ]
    saved = tmp_path / "cal.json"
    assert calibrate(written(tmp_path / "a.json", records), "--save", saved).code == 0
    new = written(tmp_path / "b.json", [{"id": "new", "answers": ["a"] * 50, "gold": "a"}])
    assert (
        "fitted on questions with 3, 4, 5, 6 answers, but these have 50"
        in calibrate(new, "--apply", saved).said
    )


def test_a_saved_calibrator_says_on_what_and_when_it_was_fitted(tmp_path: Path) -> None:
    saved = tmp_path / "cal.json"
    before = datetime.now(UTC).date()
    assert calibrate(written(tmp_path / "mine.json", rows(0, 60)), "--save", saved).code == 0
    fields = json.loads(saved.read_text())
    assert (fields["source"], fields["n"]) == ("mine.json", 60)
    assert before <= date.fromisoformat(fields["fitted"]) <= datetime.now(UTC).date()
    new = written(tmp_path / "new.json", rows(1000, 20))
    assert f"60 labels from 'mine.json' on {fields['fitted']}" in calibrate(new, "--apply", saved).stderr
    # files of earlier versions have neither
    saved.write_text(json.dumps({**fields, "source": None, "fitted": None}))
    assert calibrate(new, "--apply", saved).code == 2
    del fields["source"], fields["fitted"]
    saved.write_text(json.dumps(fields))
    assert calibrate(new, "--apply", saved).code == 0


def test_fewer_labels_than_a_risk_needs_are_counted_before_anything_is_fitted(tmp_path: Path) -> None:
    few = written(tmp_path / "few.json", rows(0, 30))
    outcome = calibrate(few, "--risk", "0.01", "--save", tmp_path / "cal.json")
    # 299 answered ones, and a pilot of 397 // 4
    assert (outcome.code, "398" in outcome.stderr) == (2, True)
    assert calibrate(few, "--risk", "2", "--save", tmp_path / "cal.json").code == 2


@pytest.mark.parametrize(("labels", "code"), [(49, 2), (50, 0)])
def test_a_map_of_few_labels_is_not_saved(tmp_path: Path, labels: int, code: int) -> None:
    path, saved = written(tmp_path / "few.json", rows(0, labels)), tmp_path / "cal.json"
    assert calibrate(path).code == 0
    assert calibrate(path, "--save", saved).code == code
    assert saved.exists() is (code == 0)


def ranked(start: int, count: int, ranks: int = 4) -> list[dict[str, Any]]:
    """Answers that are wrong where the third likely token is strong, which a sum over ranks hides."""
    generator = np.random.default_rng(start)
    records = []
    for number in range(start, start + count):
        first, part = generator.uniform(0.4, 0.8), generator.uniform(0.02, 0.48)
        rest = 0.98 - first
        shares = [first, rest * (1 - part), rest * part, *[0.001] * (ranks - 3)]
        top = sorted(np.log(shares).tolist(), reverse=True)
        right = bool(generator.random() < (0.97 if part < 0.25 else 0.05))
        columns = {"answers": ["a"], "logprobs": [[top[0]]], "tokens": [["a"]], "top_logprobs": [[top]]}
        records.append({"id": f"q{number}", **columns, "correct": right})
    return records


def test_weights_of_ranks_are_fitted_kept_and_used_for_a_guarantee(tmp_path: Path) -> None:
    first, second, third = (
        written(tmp_path / f"{start}.json", ranked(start, 400)) for start in (0, 400, 800)
    )
    weights, guarantee = tmp_path / "weights.json", tmp_path / "guarantee.json"
    outcome = calibrate(first, "--estimator", "wepr", "--save", weights)
    assert outcome.code == 0, outcome.stderr
    assert "Warning" not in outcome.said
    lines = calibrate(second, "--apply", weights, "--json").json
    area = measure("auroc", [line["confidence"] for line in lines], [line["correct"] for line in lines])
    assert area.value is not None
    assert area.value > 0.85
    used = ("--estimator", "wepr", "--weights", weights, "--risk", "0.2", "--save", guarantee)
    assert calibrate(second, *used).code == 0
    shown = [line for line in calibrate(third, "--apply", guarantee, "--json").json if line["answered"]]
    assert len(shown) > 100
    assert sum(not line["correct"] for line in shown) / len(shown) < 0.2
    for known in (first, second):  # those of the weights and those of the threshold
        refused(calibrate(known, "--apply", guarantee), "were used to fit this calibrator")
    refused(calibrate(first, *used), "were used to fit this calibrator")
    five = written(tmp_path / "five.json", ranked(1200, 60, ranks=5))
    refused(calibrate(five, "--apply", weights), "4 likely tokens")
    refused(calibrate(five, *used), "4 likely tokens")


@pytest.mark.parametrize("options", [("--risk", "0.1"), ("--method", "platt"), ("--weights", "stated.json")])
def test_weights_are_not_judged_by_their_own_labels(tmp_path: Path, options: tuple[str, ...]) -> None:
    stated = written(tmp_path / "a.json", rows(0))
    calibrate(stated, "--estimator", "stated", "--save", tmp_path / "stated.json")
    options = tuple(str(tmp_path / text) if text.endswith(".json") else text for text in options)
    outcome = calibrate(written(tmp_path / "b.json", ranked(0, 100)), "--estimator", "wepr", *options)
    assert (outcome.code, outcome.stdout) == (2, "")


def test_weights_without_likely_tokens_say_what_is_missing(tmp_path: Path) -> None:
    plain = [{"id": str(n), "answers": ["a"], "correct": n % 2 == 0} for n in range(9)]
    outcome = calibrate(written(tmp_path / "a.json", plain), "--estimator", "wepr")
    refused(outcome, "9 questions get no confidence", "--top-logprobs")


def test_weights_of_few_labels_are_not_saved(tmp_path: Path) -> None:
    path, saved = written(tmp_path / "few.json", ranked(0, 44, ranks=6)), tmp_path / "weights.json"
    assert calibrate(path, "--estimator", "wepr", "--save", saved).code == 2
    assert not saved.exists()
    assert calibrate(path, "--estimator", "wepr").code == 0


def test_a_map_that_is_worse_than_none_says_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    useless = [
        {"id": str(n), "confidence": 0.5 + rng.random() / 100, "correct": n % 2 == 0} for n in range(60)
    ]
    outcome = calibrate(written(tmp_path / "useless.json", useless), "--save", tmp_path / "cal.json")
    assert outcome.code == 0
    assert outcome.said.count("Warning") == 2
    assert "0.250" in outcome.said
    assert "Warning" not in calibrate(written(tmp_path / "good.json", rows(0, 300))).said


def test_one_class_and_no_labels_are_refused(tmp_path: Path) -> None:
    same = [{**row, "correct": True} for row in rows(0)]
    path = written(tmp_path / "a.json", same)
    refused(calibrate(path, "--estimator", "stated"), "nothing to fit")
    none = [{"id": row["id"], "confidence": row["confidence"]} for row in same]
    outcome = calibrate(written(tmp_path / "b.json", [{**row, "Right": "a"} for row in none]))
    refused(outcome, "which answers are right", "'Right'", "--column correct=")
    assert len(outcome.stderr.splitlines()) == 1, "said once"


def test_apply_takes_no_other_choices(tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", rows(0))
    refused(calibrate(path, "--apply", path, "--method", "platt"), "With --apply")


def test_the_questions_are_not_replaced_by_the_calibrator(tmp_path: Path) -> None:
    path = written(tmp_path / "fit.json", rows(0))
    before = path.read_bytes()
    refused(calibrate(path, "--estimator", "stated", "--save", path), "would replace the questions")
    assert path.read_bytes() == before
    refused(calibrate(path, "--save", tmp_path), str(tmp_path))


def test_without_values_the_reason_is_said(tmp_path: Path) -> None:
    path = written(tmp_path / "fit.json", rows(0))
    outcome = calibrate(path, "--estimator", "modal_share")
    refused(outcome, "no question has both a value of modal_share and a label", "0 of at least 1 sample")
    assert "isotonic" in " ".join(calibrate(path).stdout.split())  # the default, without answers


# --- a guarantee, and sets of answers


def answered(start: int, count: int, *, answers: int = 10, run_on: float = 0.02) -> list[dict[str, Any]]:
    """Questions whose answers agree where they are right, and are wrong now and then all the same."""
    rng = np.random.default_rng(start)
    records = []
    for number in range(start, start + count):
        share = int(rng.integers(3, answers + 1))
        wrong = rng.random() < (run_on if share > answers * 0.6 else 0.6)
        texts = ["Oslo"] * share + [f"City {n}" for n in range(answers - share)]
        gold = ("City 0" if share < answers else "Bern") if wrong else "Oslo"
        records.append({"id": f"q{number}", "question": f"Capital {number}?", "answers": texts, "gold": gold})
    return records


def lines_of(outcome: Outcome, key: str) -> list[dict[str, Any]]:
    return [line for line in outcome.json if key in line]


def headings(outcome: Outcome, name: str) -> list[str]:
    """List the words in the headings of the table that has a column of that name."""
    return next(line.split() for line in outcome.stdout.splitlines() if name in line.split())


EXACT = ("--classes", "exact", "--correctness", "exact")


def test_a_guarantee_is_saved_and_applied(tmp_path: Path) -> None:
    saved, fitted = tmp_path / "cal.json", written(tmp_path / "fit.json", answered(0, 600))
    outcome = calibrate(fitted, *EXACT, "--risk", "0.1", "--save", saved, "--json")
    assert outcome.code == 0, outcome.stderr
    (found,) = lines_of(outcome, "guarantee")
    guarantee = found["guarantee"]
    assert (guarantee["risk"], guarantee["confidence"], guarantee["n"], guarantee["samples"]) == (
        0.1,
        0.95,
        600,
        10,
    )
    assert found["pilot"] == 150
    assert guarantee["bound"] <= 0.1
    assert guarantee["threshold"] >= 0.6
    new = written(tmp_path / "new.json", answered(1000, 400))
    lines = calibrate(new, "--apply", saved, "--json").json
    shown = [line for line in lines if line["answered"]]
    assert [line["question"] for line in lines] == [f"Capital {number}?" for number in range(1000, 1400)]
    assert [line["answered"] for line in lines] == [line["value"] >= guarantee["threshold"] for line in lines]
    assert len(shown) / len(lines) == pytest.approx(guarantee["coverage"], abs=0.1)
    assert sum(not line["correct"] for line in shown) / len(shown) < 0.12
    assert headings(calibrate(new, "--apply", saved), "answered")[-2:] == ["labels", "wrong"]
    unlabelled = [{**record, "gold": None} for record in answered(1000, 20)]
    shown_without = calibrate(written(tmp_path / "unlabelled.json", unlabelled), "--apply", saved)
    assert shown_without.code == 0
    assert not {"labels", "wrong"} & {*headings(shown_without, "answered")}


def test_questions_without_an_answer_are_counted_once(tmp_path: Path) -> None:
    records = [
        *answered(0, 60),
        *({"id": f"empty{n}", "question": f"{n}?", "answers": [" "]} for n in range(7)),
    ]
    outcome = calibrate(written(tmp_path / "a.json", records))
    assert outcome.code == 0
    assert [line for line in outcome.stderr.splitlines() if "no confidence" in line] == []
    assert outcome.stderr.count("7 questions without any answer") == 1


def test_a_guarantee_is_for_the_same_number_of_new_questions(tmp_path: Path) -> None:
    saved, records = tmp_path / "cal.json", answered(0, 600)
    assert (
        calibrate(written(tmp_path / "f.json", records), *EXACT, "--risk", "0.1", "--save", saved).code == 0
    )
    fewer = written(tmp_path / "fewer.json", answered(1000, 20, answers=5))
    assert calibrate(fewer, "--apply", saved).code == 2
    damaged = saved.read_text().replace('"wrong": ', '"wrong": 3')
    saved.write_text(damaged)
    refused(calibrate(written(tmp_path / "new.json", answered(2000, 20)), "--apply", saved), "not a saved")


def run_at(path: Path, start: int, *temperatures: float | None, model: str = "m") -> Path:
    """Write a run of 100 questions whose answers were drawn at these temperatures in turn."""
    with Run.open(path, {}) as stored:
        for number in range(start, start + 100):
            id_, temperature = f"q{number}", temperatures[number % len(temperatures)]
            stored.append(Question(id=id_, text=f"{number}?", gold=("a",)))
            halves = {"masked_out": ("a", "a") if number % 20 else ("b", "b"), "conditioning": ("a", "c")}
            sampling = {"temperature": temperature, "top_p": None if temperature is None else 1.0}
            stored.append(AnswerSet(question_id=id_, model=model, **halves, **sampling))
    return path


@pytest.mark.parametrize(("model", "code"), [("m", 0), ("other", 2), ("", 0)])
def test_a_calibrator_is_for_answers_of_one_model(tmp_path: Path, model: str, code: int) -> None:
    saved = tmp_path / "cal.json"
    assert calibrate(run_at(tmp_path / "fitted", 0, 0.7), "--save", saved).code == 0
    assert json.loads(saved.read_text())["answered_by"] == "m"
    applied = calibrate(run_at(tmp_path / "new", 100, 0.7, model=model), "--apply", saved)
    assert applied.code == code, applied.said
    served = run("serve", "--port", 0, "--model", "json:loads", "--calibrator", saved)
    assert (served.code, "'m'" in served.stderr) == (2, True)


@pytest.mark.parametrize(("temperature", "code"), [(0.7, 0), (1.0, 2), (None, 0)])
def test_a_guarantee_is_for_one_temperature(tmp_path: Path, temperature: float | None, code: int) -> None:
    saved = tmp_path / "cal.json"
    fitted = run_at(tmp_path / "fitted", 0, 0.7)
    outcome = calibrate(fitted, "--risk", "0.2", "--set", "0.8", "--save", saved)
    assert outcome.code == 0, outcome.said
    for name in ("guarantee", "sets"):
        assert json.loads(saved.read_text())[name]["temperature"] == 0.7
    applied = calibrate(run_at(tmp_path / "other", 100, temperature), "--apply", saved)
    assert applied.code == code, applied.said
    assert calibrate(run_at(tmp_path / "mixed", 0, 0.7, 1.0), "--risk", "0.2").code == 2


def test_without_a_threshold_nothing_is_saved_and_the_missing_labels_are_counted(tmp_path: Path) -> None:
    saved, few = tmp_path / "cal.json", written(tmp_path / "few.json", answered(0, 60))
    outcome = calibrate(few, *EXACT, "--risk", "0.01", "--save", saved, "--json")
    (found,) = lines_of(outcome, "guarantee")
    assert (outcome.code, saved.exists()) == (2, False)
    assert found["guarantee"] is None
    assert found["labels_needed"] > 299
    assert found["smallest_risk"] == found["tests"][0]["bound"] > 0.01
    assert calibrate(few, *EXACT, "--risk", "0.01").code == 0


def test_labels_that_are_all_right_make_a_guarantee(tmp_path: Path) -> None:
    records = [{**row, "correct": True} for row in rows(0, 200)]
    saved = tmp_path / "cal.json"
    options = ("--estimator", "stated", "--risk", "0.05", "--json")
    outcome = calibrate(written(tmp_path / "a.json", records), *options, "--save", saved)
    assert outcome.code == 0, outcome.stderr
    (found,) = outcome.json
    assert (found["guarantee"]["wrong"], found["guarantee"]["answered"]) == (0, 150)


@pytest.mark.parametrize(
    ("options", "shown", "rounded"),
    [
        (("--risk", "0.005"), "0.5 %", " 0 %"),
        (("--risk", "0.125"), "12.5 %", "12 %"),
        (("--risk", "0.1", "--confidence", "0.9999999"), "0.9999999", "confidence 1"),
        (("--set", "0.995"), "99.5 %", "100 % of"),
    ],
)
def test_what_is_promised_is_not_rounded(
    tmp_path: Path, options: tuple[str, ...], shown: str, rounded: str
) -> None:
    records = [{"question": f"{number}?", "answers": ["a"], "gold": "a"} for number in range(900)]
    outcome = calibrate(written(tmp_path / "a.json", records), *options)
    text = " ".join(outcome.stdout.split())
    assert outcome.code == 0
    assert shown in text
    assert rounded not in text


def test_labels_that_are_all_wrong_pass_no_risk(tmp_path: Path) -> None:
    records = [{"question": f"{number}?", "answers": ["a"], "gold": "b"} for number in range(60)]
    outcome = calibrate(written(tmp_path / "a.json", records), "--risk", "0.3", "--json")
    (found,) = lines_of(outcome, "guarantee")
    assert (found["guarantee"], found["smallest_risk"]) == (None, None)
    assert found["tests"][0]["bound"] == 1
    assert found["labels_needed"] > 60


def test_a_question_asked_twice_counts_once(tmp_path: Path) -> None:
    records = answered(0, 300)
    twice = [*records, *({**row, "id": f"{row['id']}-again"} for row in records[:50])]
    outcome = calibrate(written(tmp_path / "a.json", twice), *EXACT, "--risk", "0.1", "--json")
    (found,) = lines_of(outcome, "guarantee")
    assert found["n"] == 300
    assert "50 questions left out" in outcome.said


@pytest.mark.parametrize(
    "options",
    [
        ("--risk", "0"),
        ("--risk", "5"),
        ("--risk", "1e-300"),
        ("--confidence", "0.9"),
        ("--set", "90"),
        ("--risk", "nan"),
    ],
)
def test_levels_that_mean_nothing_are_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    path = written(tmp_path / "a.json", answered(0, 20))
    assert calibrate(path, *options).code == 2


def test_sets_hold_a_right_answer_or_cannot(tmp_path: Path) -> None:
    saved, fitted = tmp_path / "cal.json", written(tmp_path / "fit.json", answered(0, 400))
    outcome = calibrate(fitted, *EXACT, "--set", "0.8", "--save", saved, "--json")
    (found,) = lines_of(outcome, "sets")
    assert outcome.code == 0, outcome.stderr
    new = written(tmp_path / "new.json", answered(1000, 400))
    lines = calibrate(new, "--apply", saved, "--json").json
    golds = {row["id"]: row["gold"] for row in answered(1000, 400)}
    held = [golds[line["id"]] in [entry["text"] for entry in line["set"]] for line in lines]
    assert sum(held) / len(held) > 0.74
    assert all(entry["share"] >= found["sets"]["share"] for line in lines for entry in line["set"])
    too_much = calibrate(fitted, *EXACT, "--set", "0.999", "--save", saved, "--json")
    (cannot,) = lines_of(too_much, "sets")
    assert (too_much.code, cannot["sets"]) == (2, None)
    assert cannot["ceiling"] < 1


def test_too_few_labels_for_sets_say_how_many_are_needed(tmp_path: Path) -> None:
    few, saved = written(tmp_path / "few.json", answered(0, 60)), tmp_path / "cal.json"
    outcome = calibrate(few, *EXACT, "--set", "0.99", "--save", saved)
    assert (outcome.code, saved.exists()) == (2, False)
    assert "99 questions" in outcome.stderr


def test_a_calibrator_is_for_one_number_of_likely_tokens(tmp_path: Path) -> None:
    def ranked(first: int, count: int, ranks: int) -> list[dict[str, Any]]:
        return [
            {
                "id": str(number),
                "answers": ["a"],
                "logprobs": [[-0.1]],
                "top_logprobs": [[[-1.0 - number % 7 - place for place in range(ranks)]]],
                "gold": "a" if number % 3 else "b",
            }
            for number in range(first, first + count)
        ]

    saved = tmp_path / "cal.json"
    fit = (*EXACT, "--estimator", "epr")
    assert calibrate(written(tmp_path / "a.json", ranked(0, 60, 5)), *fit, "--save", saved).code == 0
    assert json.loads(saved.read_text())["ranks"] == 5
    assert calibrate(written(tmp_path / "b.json", ranked(100, 9, 5)), "--apply", saved).code == 0
    assert calibrate(written(tmp_path / "c.json", ranked(100, 9, 8)), "--apply", saved).code == 2
    # an answer with a shorter list at one of its tokens has no value, which is no reason to refuse others
    uneven = [*ranked(100, 9, 5), {**ranked(109, 1, 5)[0], "logprobs": [[-0.1, -0.1]]}]
    uneven[-1]["top_logprobs"] = [[[-1.0, -2.0, -3.0, -4.0, -5.0], [-1.0, -2.0, -3.0, -4.0]]]
    outcome = calibrate(written(tmp_path / "u.json", uneven), "--apply", saved, "--json")
    assert outcome.code == 0, outcome.stderr
    assert len(outcome.json) == 9
    mixed = [*ranked(0, 60, 5), *ranked(60, 60, 8)]
    assert calibrate(written(tmp_path / "d.json", mixed), *fit, "--risk", "0.9").code == 2


def test_a_stated_confidence_is_calibrated_where_each_question_has_one_answer(tmp_path: Path) -> None:
    records = [{**row, "question": f"{row['id']}?", "answer": "a"} for row in rows(0)]
    outcome = calibrate(written(tmp_path / "one.json", records), "--json")
    assert {line["estimator"] for line in outcome.json if "estimator" in line} == {"stated"}
    several = [{**row, "answer": None, "answers": ["a", "b"]} for row in records]
    outcome = calibrate(written(tmp_path / "two.json", several), "--json")
    assert {line["estimator"] for line in outcome.json if "estimator" in line} == {"modal_share"}
