"""`selfreflect uncertainty` on files and run directories."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import uq_data
from command import refused, run, written
from fault_server import FaultServer
from finished_run import write_run

from selfreflect.logprobs import AnswerTokens
from selfreflect.store.run import Run
from selfreflect.uncertainty.estimators import ESTIMATORS

QUESTIONS = [
    {
        "id": f"q{number}",
        "question": f"Which city is number {number}?",
        "answers": ["Paris"] * (1 + number % 4) + ["Lyon"] * (number % 3) + ["Nice"],
        "gold": "Paris" if number % 3 else "Lyon",
    }
    for number in range(12)
]


def lines(*arguments: object) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The lines of questions and those of estimators."""
    outcome = run("uncertainty", *arguments, "--json")
    assert outcome.code == 0, outcome.stderr
    of_questions = [line for line in outcome.json if "values" in line]
    return of_questions, [line for line in outcome.json if "estimator" in line]


def test_a_file_gives_values_and_predictions(tmp_path: Path) -> None:
    of_questions, predictions = lines(written(tmp_path / "a.json", QUESTIONS))
    assert of_questions[4]["values"]["modal_share"] == pytest.approx(1 / 3)
    assert of_questions[4]["samples"] == 3
    assert of_questions[3]["answer"] == "Paris"
    assert of_questions[3]["correct"] == {"contains": False}
    by_name = {line["estimator"]: line for line in predictions}
    assert by_name["modal_share"]["n"] == 12
    assert by_name["modal_share"]["classes"] == "same"
    assert by_name["entropy"]["variant"] == "plug-in"
    assert by_name["entropy"]["range"] == [0, None]
    facts = {name: by_name["entropy"][name] for name in ("direction", "unit", "needs", "source")}
    assert facts == {**facts, "direction": "uncertainty", "unit": "nats", "needs": "samples"}
    assert by_name["modal_share"]["direction"] == "confidence"
    assert not {"direction", "model"} & by_name["constant"].keys()
    assert by_name["entropy"]["samples"] == [2, 3, 4, 5, 6, 7]
    assert "brier" not in by_name["entropy"]["measures"]
    assert by_name["constant"]["baseline"] is True
    assert by_name["constant"]["measures"]["auroc"]["value"] == 0.5
    assert by_name["length"]["baseline"] is True
    assert by_name["modal_share"]["isotonic"]["brier"]["value"] is not None


def test_only_confidences_and_labels(tmp_path: Path) -> None:
    rows = [{"id": str(n), "confidence": (n % 5) / 4, "correct": n % 2, "length": n} for n in range(10)]
    _, predictions = lines(written(tmp_path / "a.json", rows))
    assert [line["estimator"] for line in predictions] == ["stated", "constant", "length"]
    assert predictions[0]["correctness"] == "human"
    assert predictions[0]["audit"]["n"] == 10


def test_log_probabilities_bring_their_estimators(tmp_path: Path) -> None:
    rows = [{**question, "logprobs": [[-0.5, -1.0] for _ in question["answers"]]} for question in QUESTIONS]
    of_questions, _ = lines(written(tmp_path / "a.json", rows))
    assert of_questions[0]["values"]["predictive_entropy"] == pytest.approx(1.5)
    assert "token_sar" not in of_questions[0]["values"]
    outcome = run("uncertainty", written(tmp_path / "b.json", QUESTIONS))
    assert "No log-probabilities are stored" in outcome.said


@pytest.fixture(scope="module")
def with_logprobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory whose answers have log-probabilities."""
    import tiny

    folder = tmp_path_factory.mktemp("logprobs")
    model = tiny.save(folder / "model", "llama", max_position_embeddings=400)
    questions = written(folder / "q.txt", "What first?\nWhich pot?\nWhy not?")
    sizes = ("--num-answers", 3, "--max-new-tokens", 6, "--temperature", 0.7, "--device", "cpu")
    command = ("answers", "--questions", questions, "--model", model, *sizes, "--out", folder / "r")
    outcome = run(*command, "--logprobs")
    assert outcome.code == 0, outcome.stderr
    return folder / "r"


NEED_LOGPROBS = {name for name, info in ESTIMATORS.items() if info.needs in ("logprobs", "self_certainty")}
NEED_TOKENS = {"token_sar", "sar"}


def test_a_run_with_log_probabilities_has_every_estimator_of_them(with_logprobs: Path) -> None:
    of_questions, _ = lines(with_logprobs)
    for line in of_questions:
        assert line["values"].keys() >= NEED_LOGPROBS
        assert not line["values"].keys() & NEED_TOKENS
        assert line["undefined"] == {}
    drawn = Run.load(with_logprobs).answers[of_questions[0]["id"]]
    sums = [sum(tokens.logprobs) for tokens in drawn.logprobs if isinstance(tokens, AnswerTokens)]
    assert len(sums) == 6
    assert of_questions[0]["values"]["predictive_entropy"] == pytest.approx(-sum(sums) / 6)
    said = run("uncertainty", with_logprobs).said
    assert "the model's at temperature 1, before top-p. The answers were drawn at temperature 0.7" in said
    assert "token_sar and sar are left out" in said
    asked, _ = lines(with_logprobs, "--estimators", "token_sar,self_certainty", "--num-answers", 2)
    assert {line["undefined"]["token_sar"]["reason"] for line in asked} == {"no_relevance"}
    assert all(line["values"]["self_certainty"] > 0 for line in asked)


@pytest.mark.slow  # sentence embeddings; test_estimators proves the formulas
def test_token_sar_weighs_tokens_by_sentence_embeddings(with_logprobs: Path) -> None:
    of_questions, _ = lines(with_logprobs, "--similarity", "embedding")
    for line in of_questions:
        assert line["values"].keys() >= NEED_LOGPROBS | NEED_TOKENS
        assert line["undefined"] == {}


def test_a_server_without_log_probabilities_is_named(tmp_path: Path) -> None:
    questions = written(tmp_path / "q.txt", "What first?\nWhich pot?")
    out = tmp_path / "r"
    with FaultServer() as server:
        model = ("--model", "openai:m", "--base-url", server.url)
        sizes = ("--num-answers", 2, "--logprobs")
        drawn = run("answers", "--questions", questions, *model, *sizes, "--out", out)
    assert drawn.code == 0, drawn.stderr
    assert "the answers are kept without log-probabilities" in drawn.said
    of_questions, _ = lines(out, "--estimators", "entropy,semantic_entropy")
    assert of_questions[0]["values"]["entropy"] > 0
    missing = of_questions[0]["undefined"]["semantic_entropy"]
    assert missing["reason"] == "no_logprobs"
    assert "the server does not return log-probabilities" in missing["message"]
    assert "(an answer has no log-probabilities: the server does not" in run("uncertainty", out).said


def test_calibration_is_advised_only_where_it_is_possible(tmp_path: Path) -> None:
    many = run("uncertainty", written(tmp_path / "many.json", QUESTIONS))
    assert "--estimator modal_share" in many.said
    explained = run("uncertainty", tmp_path / "many.json", "--explain").stdout
    # each estimator of the table has its line, as the table of estimators words it
    assert all(f"{name}: {ESTIMATORS[name].meaning}." in explained for name in ("deg", "kle", "ecc", "eigv"))
    few = run("uncertainty", written(tmp_path / "few.json", QUESTIONS[:4]))
    assert few.code == 0
    assert "Calibrate one" not in few.said


def test_without_gold_there_are_values_and_no_predictions(tmp_path: Path) -> None:
    rows = [{"question": q["question"], "answers": q["answers"]} for q in QUESTIONS]
    path = written(tmp_path / "a.json", rows)
    of_questions, predictions = lines(path)
    assert len(of_questions) == 12
    assert predictions == []
    outcome = run("uncertainty", path)
    assert "nothing to predict" in outcome.said
    # the shares rise from row to row, and 11 of 12 questions would be cut to ten
    shares = [int(row.split()[-3]) for row in outcome.stdout.splitlines() if "is number" in row]
    assert shares == sorted(shares)
    assert len(shares) == 10
    assert "modal_share" in run("uncertainty", path, "--explain").stdout


@pytest.mark.parametrize("file_says", [{"grades": {"g": ["I", "I"]}}, {"correct": False}])
def test_a_named_field_of_right_answers_counts_before_what_a_file_says(
    tmp_path: Path, file_says: dict[str, Any]
) -> None:
    row = {"question": "Which city?", "answers": ["Oz", "Oz"], "target": ["Oz", "Emerald City"], **file_says}
    path = written(tmp_path / "a.json", [row])
    [by_gold], _ = lines(path, "--gold", "target")
    assert by_gold["correct"] == {"contains": True}
    [of_file], _ = lines(path)
    assert {*of_file["correct"].values()} == {False}
    name = "graded" if "grades" in file_says else "human"
    [both], _ = lines(path, "--gold", "target", "--correctness", f"{name},contains")
    assert both["correct"] == {name: False, "contains": True}


def test_gold_field_and_spellings(tmp_path: Path) -> None:
    rows = [{**question, "gold": None, "meta": {"right": ["x", "PARIS"]}} for question in QUESTIONS]
    of_questions, _ = lines(written(tmp_path / "a.json", rows), "--gold", "meta.right")
    assert {line["correct"]["contains"] for line in of_questions} == {
        line["answer"] == "Paris" for line in of_questions
    }


def test_fewer_answers(tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", QUESTIONS)
    of_questions, _ = lines(path, "--num-answers", 3)
    assert {line["samples"] for line in of_questions} == {3}
    refused(run("uncertainty", path, "--sizes", "2,3"), "--num-answers")


def test_a_run_directory(tmp_path: Path) -> None:
    of_questions, predictions = lines(write_run(tmp_path / "run", count=3), "--classes", "exact")
    assert [line["id"] for line in of_questions] == ["q0", "q1", "q2"]
    assert of_questions[0]["values"]["modal_share"] == 0.5
    assert predictions == []  # its questions have no right answers


def test_what_a_judge_measured_of_the_greedy_answer_is_an_estimator(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", count=3, informed=True)
    [line, *_], _ = lines(path)
    values = line["values"]
    assert (values["greedy_distance"], values["greedy_bits"], values["greedy_recovered"]) == (0.375, 6.0, 0.6)
    [line, *_], _ = lines(write_run(tmp_path / "scored", count=1))
    assert line["values"]["greedy_distance"] == 0.375
    assert "greedy_bits" not in line["values"]
    missing = ["--estimators", "greedy_bits"]
    [line, *_], _ = lines(write_run(tmp_path / "other", strategy="basic"), *missing)
    assert line["undefined"]["greedy_bits"]["reason"] == "not_measured"
    assert "greedy_bits" in run("uncertainty", path, "--explain").stdout


def test_a_run_directory_without_answers(tmp_path: Path) -> None:
    refused(run("uncertainty", write_run(tmp_path / "run", count=0)), "has no answers yet")


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"id": "q0"}, ["record 2", "already taken"]),
        ({"confidence": 1.5}, ["record 2", "'confidence' is 1.5; it must be in [0, 1]"]),
        ({"correct": 0.5}, ["record 2", "'correct' must be"]),
        ({"logprobs": [[-1.0]]}, ["record 2", "1 entries for 4 answers"]),
        ({"logprobs": [[-1.0]] * 3 + [[-(10**400)]]}, ["record 2", "a number of at most 0"]),
        ({"logprobs": [[-1.0]] * 3 + [[-0.1] * 90]}, ["record 2", "another tokenizer"]),
        ({"tokens": [["Pa", "ris"]] * 2 + [["Lyon"], ["X"]]}, ["record 2", "do not spell it"]),
        ({"aliases": ["Paris"]}, ["record 2", "'aliases' must be a list of lists"]),
    ],
)
def test_bad_records_are_named(tmp_path: Path, change: dict[str, Any], parts: list[str]) -> None:
    rows = [dict(question) for question in QUESTIONS]
    rows[1] |= change
    refused(run("uncertainty", written(tmp_path / "a.json", rows)), *parts)


@pytest.mark.parametrize(
    ("field", "says"), [("confidence", "'confidence' is nan"), ("gold", "nan is not an answer")]
)
def test_a_not_a_number_in_parquet_is_refused(tmp_path: Path, field: str, says: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"id": name, "confidence": 0.5, field: value} for name, value in (("a", 0.5), ("b", math.nan))]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    refused(run("uncertainty", tmp_path / "a.parquet"), "record 2", says)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--estimators", "modal_shar"], "Did you mean 'modal_share'"),
        (["--num-answers", "99"], "no question has 99 answers"),
    ],
)
def test_bad_options_are_named(tmp_path: Path, arguments: list[str], part: str) -> None:
    refused(run("uncertainty", written(tmp_path / "a.json", QUESTIONS), *arguments), part)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--measures", "auroc,f1"], "no measure 'f1'"),
        (["--output", "nowhere/a.html"], "nowhere/a.html: there is no directory nowhere"),
    ],
)
def test_what_would_be_refused_in_the_end_is_refused_at_once(
    tmp_path: Path, arguments: list[str], part: str
) -> None:
    path = written(tmp_path / "a.json", QUESTIONS)
    assert "No log-probabilities are stored" in run("uncertainty", path).said
    outcome = run("uncertainty", path, *arguments)
    refused(outcome, part)
    assert "No log-probabilities are stored" not in outcome.said


def test_text_of_a_file_cannot_control_the_terminal(tmp_path: Path) -> None:
    rows = [{**question, "id": f"\x1b[31m{number}"} for number, question in enumerate(QUESTIONS)]
    outcome = run("uncertainty", written(tmp_path / "a.json", rows))
    assert "\x1b[31m" not in outcome.stdout + outcome.stderr


def test_real_answers_of_a_13b_model() -> None:
    """250 TriviaQA questions, 20 answers each. Ties go to the first sampled."""
    path = uq_data.find("triviaqa_llama13b.json")
    of_questions, predictions = lines(path, "--classes", "exact", "--correctness", "exact")
    assert len(of_questions) == 250
    share = next(line for line in predictions if line["estimator"] == "modal_share")
    accuracy = sum(line["correct"]["exact"] for line in of_questions) / 250
    assert accuracy == pytest.approx(0.62)
    assert share["measures"]["auroc"]["value"] == pytest.approx(0.860, abs=5e-4)
    assert share["measures"]["brier"]["value"] == pytest.approx(0.165, abs=5e-4)


def test_a_field_of_right_answers_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", QUESTIONS)
    refused(run("uncertainty", path, "--gold", "glod"), "no row has a right answer in the field 'glod'")
    write_run(tmp_path / "run")
    refused(run("uncertainty", tmp_path / "run", "--gold", "glod"), "right answer in the field 'glod'")


def test_an_output_without_labels_or_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    unlabelled = written(tmp_path / "a.json", [{"id": "1", "answers": ["a", "b"]}])
    refused(run("uncertainty", unlabelled, "--output", tmp_path / "x.csv"), "must end in .html")
    refused(run("uncertainty", unlabelled, "--output", tmp_path / "x.html"), "--gold", "nothing to predict")
    long = tmp_path / f"{'x' * 300}.html"
    labelled = written(tmp_path / "b.json", QUESTIONS)
    refused(run("uncertainty", labelled, "--output", long), "cannot be written: File name too long")
    assert not (tmp_path / "x.html").exists()
