"""Layouts of other libraries: what each column becomes, in every format that they write."""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import pickle
import re
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import run, written
from round_trip import assert_converted_alike

from selfreflect.errors import DataError
from selfreflect.sources.items import read_item_file
from selfreflect.sources.questions import load_questions
from selfreflect.uncertainty.reading import read_answered_questions

LOGS = Path(__file__).parents[2] / "data" / "logs"
Known = tuple[str, Any, Any, Any]
FILES: dict[str, tuple[str, Any, Known]] = {
    "deepeval": (
        "deepeval",
        [
            {"input": "Oz?", "actual_output": "a", "expected_output": "b", "retrieval_context": ["x", "y"]},
            {"input": "Oz?", "actual_output": "c", "expected_output": "b", "retrieval_context": ["x", "y"]},
        ],
        ("Oz?", ("a", "c"), None, ("b",)),
    ),
    "ragas": (
        "ragas",
        [
            {"user_input": "Oz?", "response": answer, "reference": "b", "retrieved_contexts": ["x"]}
            for answer in "ac"
        ],
        ("Oz?", ("a", "c"), None, ("b",)),
    ),
    "ragas before": (
        "ragas-0.1",
        [{"question": "Oz?", "answer": answer, "contexts": ["x"], "ground_truth": "b"} for answer in "ac"],
        ("Oz?", ("a", "c"), None, ("b",)),
    ),
    "lm-polygraph": (
        "lm-polygraph",
        {
            "stats": {
                "input_texts": ["Oz?"],
                "greedy_texts": ["a"],
                "sample_texts": [["a", "c"]],
                "target_texts": [["b"]],
            },
            "estimations": {"sequence": {"MeanTokenEntropy": [0.5]}},
        },
        ("Oz?", ("a", "c"), "a", ("b",)),
    ),
    "uqlm without prompts": (
        "uqlm",
        {"data": {"responses": ["a"], "sampled_responses": [["a", "c"]]}, "metadata": {}},
        ("", ("a", "c"), "a", ()),
    ),
    "uqlm frame without prompts": (
        "uqlm-answers",
        [{"response": "a", "sampled_responses": ["a", "c"], "exact_match": 0.5}],
        ("", ("a", "c"), "a", ()),
    ),
    "lm-polygraph of turns": (
        "lm-polygraph",
        {
            "stats": {
                "input_texts": [
                    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Oz?"}]
                ],
                "greedy_texts": ["a"],
                "sample_texts": [["a", "c"]],
                "target_texts": [["b"]],
            }
        },
        ("Oz?", ("a", "c"), "a", ("b",)),
    ),
    "lm-polygraph frame": (
        "lm-polygraph",
        [{"input_texts": "Oz?", "greedy_texts": "a", "sample_texts": ["a", "c"], "target_texts": "b"}],
        ("Oz?", ("a", "c"), "a", ("b",)),
    ),
    "TruthTorchLM": (
        "truthtorchlm",
        {
            "eval_list": [{"auroc": 1.0}],
            "output_dict": {
                # as long as the questions, and no column
                "previous_context": [{"role": "system", "content": "Be brief."}] * 2,
                "truth_methods": ["Confidence", "Entropy"],
                "question_text": ["Oz?", "Nod?"],
                "generations": ["a", "c"],
                "generations_correctness": [1, -1],
                "ground_truths": [["b", "d"], ["e"]],
                "contexts": ["", ""],
                "truth_method_0": {
                    "name": "Confidence with {'x': 1}",
                    "truth_values": [-0.1, -0.2],
                    "normalized_truth_values": [0.9, 0.8],
                },
                "truth_method_1": {"name": "Confidence with {'x': 2}", "truth_values": [-0.3, -0.4]},
            },
        },
        ("Oz?", ("a",), None, ("b", "d")),
    ),
    "TruthTorchLM frame": (
        "truthtorchlm",
        [{"question_text": "Oz?", "generations": "a", "generations_correctness": 1, "ground_truths": ["b"]}],
        ("Oz?", ("a",), None, ("b",)),
    ),
    "TruthTorchLM of one question": (
        "truthtorchlm-answers",
        [
            {
                "question": "Oz?",
                "generated_text": "a",
                "unnormalized_truth_values": [-0.1, -0.2],
                "method_specific_outputs": [
                    {"truth_value": -0.1, "generated_text": "a"},
                    {"truth_value": -0.2, "generated_texts": ["a", "c"]},
                ],
            }
        ],
        ("Oz?", ("a", "c"), "a", ()),
    ),
    "SimpleQA": (
        "simpleqa",
        [{"problem": "Oz?", "answer": "b", "response": "a", "grade": "B"}],
        ("Oz?", ("a",), None, ("b",)),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_columns_of_a_library_become_ours(name: str, tmp_path: Path) -> None:
    _, content, known = FILES[name]
    question = read_answered_questions(path := written(tmp_path / "f.json", content)).questions[0]
    assert (question.text, question.answers, question.answer, question.gold) == known
    if question.text:  # what has no questions is not converted
        assert_converted_alike(path)


def test_labels_and_values_of_a_library_are_read(tmp_path: Path) -> None:
    for name, labels in (("TruthTorchLM", [True, None]), ("SimpleQA", [False])):
        file = read_answered_questions(written(tmp_path / "f.json", FILES[name][1]))
        assert [question.correct for question in file.questions] == labels
    manager = FILES["lm-polygraph"][1]
    by_tuple = {**manager, "estimations": {"('sequence', 'MeanTokenEntropy')": [0.5]}}
    for content in (manager, by_tuple):
        [item] = read_item_file(written(tmp_path / "p.json", content)).items
        assert item.metadata["MeanTokenEntropy"] == 0.5
    oz, _ = read_item_file(written(tmp_path / "t.json", FILES["TruthTorchLM"][1]), allow_few=True).items
    assert (oz.metadata["Confidence_value"], oz.metadata["Confidence_normalized"]) == (-0.1, 0.9)
    assert "truth_methods" not in oz.metadata
    assert sorted(value for value in oz.metadata.values() if isinstance(value, float)) == [-0.3, -0.1, 0.9]
    [item] = read_item_file(written(tmp_path / "d.json", FILES["deepeval"][1])).items
    assert item.context == "x\n\ny"


def test_what_a_retriever_found_is_the_context_not_what_it_should_have_found(tmp_path: Path) -> None:
    header = "input,actual_output,expected_output,retrieval_context,context\n"
    rows = "".join(f"Oz?,{text},b,found,ideal\nNod?,{text},,found,\nUz?,{text},,,ideal\n" for text in "ab")
    file = read_item_file(written(tmp_path / "d.csv", header + rows))
    assert [item.context for item in file.items] == ["found", "found", "ideal"]
    assert (file.items[0].metadata["ideal_context"], file.columns["actual_output"]) == ("ideal", "answers")


def test_each_row_of_a_test_run_brings_its_grades(tmp_path: Path) -> None:
    cases = [
        {
            "input": "Oz?",
            "actualOutput": answer,
            "order": number,
            "metricsData": [{"name": "Exact Match", "success": answer == "a"}],
        }
        for number, answer in enumerate("aba")
    ]
    run_file = written(tmp_path / "run.json", {"testRunData": {"testCases": cases, "prompts": []}})
    [item] = read_item_file(run_file).items
    graded = zip(item.answer_set.answers, item.grades["Exact Match"], strict=True)
    assert sorted(graded) == [("a", True), ("a", True), ("b", False)]
    [question] = read_answered_questions(run_file).questions
    assert [right for _, right in question.grades["Exact Match"]] == [True, False, True]
    ragas = "user_input,response,exact_match\nOz?,a,1.0\nOz?,b,0.0\n"
    [question] = read_answered_questions(written(tmp_path / "r.csv", ragas)).questions
    assert [right for _, right in question.grades["correct"]] == [True, False]


def test_a_row_may_lack_what_a_program_leaves_out(tmp_path: Path) -> None:
    rows = [{"user_input": "Oz?", "response": "a"}, {"user_input": "Nod?", "reference": "b"}]
    file = read_answered_questions(written(tmp_path / "r.json", rows))
    assert [question.answers for question in file.questions] == [("a",), ()]
    assert file.notes
    judged = {
        "q": {"response": "a", "judge_response": {"correct": "yes", "confidence": 80}},
        "r": {"response": "b"},
    }
    questions = read_answered_questions(written(tmp_path / "h.json", judged)).questions
    assert [question.correct for question in questions] == [True, None]


SQUAD = {
    "version": "2.0",
    "data": [
        {
            "title": "Oz",
            "paragraphs": [
                {
                    "context": "Ruby Town is the capital.",
                    "qas": [
                        {"id": "7", "question": "Capital?", "answers": [{"text": "Ruby Town"}] * 2},
                        {"id": "8", "question": "King?", "answers": [], "is_impossible": True},
                    ],
                }
            ],
        }
    ],
}


def test_questions_of_squad_and_truthful_qa_are_asked_with_their_right_answers(tmp_path: Path) -> None:
    capital, king = load_questions(str(written(tmp_path / "squad.json", SQUAD))).questions
    assert (capital.id, capital.gold, king.gold) == ("7", ("Ruby Town",), ())
    assert capital.context == "Ruby Town is the capital."
    text = "Type,Category,Question,Best Answer,Correct Answers\nX,Fish,Forget?,No,No; never\n"
    [fish] = load_questions(str(written(tmp_path / "t.csv", text))).questions
    assert (fish.kind, fish.gold, fish.metadata["Best Answer"]) == ("Fish", ("No", "never"), "No")


ROWS = [["Question", "answer 1", "Answer 2"], ["Où?", "à", "b"], ["Why?", "1", "2"]]


def table(delimiter: str = ",") -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows(ROWS)
    return text.getvalue()


def workbook(path: Path) -> None:
    book = pytest.importorskip("openpyxl").Workbook()
    for row in [[], *ROWS[:2], [None], ["Why?", 1, 2.0], []]:
        book.active.append(row)
    book.save(path)


def saved(path: Path) -> Path:
    lines = [dict(zip(["question", "answers"], [row[0], row[1:]], strict=True)) for row in ROWS[1:]]
    jsonl = "".join(json.dumps(line) + "\n" for line in lines)
    contents = {
        "u16.csv": table().encode("utf-16"),
        "bom.csv": b"\xef\xbb\xbf" + table(";").encode(),
        "u16.tsv": table("\t").encode("utf-16"),
        "u16.json": json.dumps(lines).encode("utf-16"),
        "a.csv.gz": gzip.compress(table().encode()),
        "a.jsonl.gz": gzip.compress(jsonl.encode()),
    }
    if path.suffix == ".xlsx":
        workbook(path)
    else:
        path.write_bytes(contents[path.name])
    return path


@pytest.mark.parametrize(
    "name", ["u16.csv", "bom.csv", "u16.tsv", "u16.json", "a.csv.gz", "a.jsonl.gz", "a.xlsx"]
)
def test_formats_hold_the_same_questions(name: str, tmp_path: Path) -> None:
    questions = read_answered_questions(saved(tmp_path / name)).questions
    assert [(question.text, question.answers) for question in questions] == [
        ("Où?", ("à", "b")),
        ("Why?", ("1", "2")),
    ]


def test_the_sheet_with_the_questions_is_read_and_several_are_refused(tmp_path: Path) -> None:
    book = pytest.importorskip("openpyxl").Workbook()
    book.active.append(["A report"])
    book.active.append(["of May"])
    for day in (2, 3):
        sheet = book.create_sheet(f"Day {day}")
        sheet.append(["question", "answer_1", "answer_2"])
        sheet.append(["When?", date(2024, 3, day), 0.1 + 0.2])
        book.save(tmp_path / f"{day}.xlsx")
    [question] = read_answered_questions(tmp_path / "2.xlsx").questions
    assert question.answers == ("2024-03-02", "0.3")
    with pytest.raises(DataError) as raised:
        read_answered_questions(tmp_path / "3.xlsx")
    assert all(f"Day {day}" in raised.value.message for day in (2, 3))


@pytest.mark.parametrize("name", ["a.csv.gz", "a.xlsx", "u16.csv"])
def test_damaged_files_are_refused(name: str, tmp_path: Path) -> None:
    data = saved(tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) // 2 - 1])
    outcome = run("convert", tmp_path / name)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert "Traceback" not in outcome.said


@pytest.mark.parametrize("flaw", ["password", "method", "content"])
def test_workbooks_that_cannot_be_unpacked_are_refused(flaw: str, tmp_path: Path) -> None:
    data = bytearray(saved(tmp_path / "a.xlsx").read_bytes())
    entries = [place.start() for place in re.finditer(rb"PK\x01\x02", data)]
    for start in entries:
        data[start + 8] |= flaw == "password"
        data[start + 10] = 97 if flaw == "method" else data[start + 10]
    for place in re.finditer(rb"PK\x03\x04", bytes(data)) if flaw != "method" else ():
        data[place.start() + 6] |= flaw == "password"
        content = place.start() + 30 + data[place.start() + 26]
        data[content : content + 4] = b"\xff" * 4 if flaw == "content" else data[content : content + 4]
    (tmp_path / "a.xlsx").write_bytes(data)
    outcome = run("convert", tmp_path / "a.xlsx")
    assert (outcome.code, outcome.stdout) == (2, "")


def assessed(path: Path) -> list[dict[str, Any]]:
    outcome = run("uncertainty", path, "--json")
    assert outcome.code == 0
    lines = map(json.loads, outcome.stdout.splitlines())
    return [line for line in lines if "values" in line]


SAME_ESTIMATOR = {
    "entropy": "SemanticEntropyEmpirical",
    "eigv": "EigValLaplacian_Jaccard_score",
    "deg": "DegMat_Jaccard_score",
    "ecc": "Eccentricity_Jaccard_score",
}


def test_a_manager_of_lm_polygraph_gives_the_values_that_it_holds() -> None:
    france, hamlet, planet, gold = assessed(LOGS / "lm_polygraph.json")
    assert [question["correct"] for question in (france, hamlet, planet, gold)] == [
        {"graded": right} for right in (True, True, False, True)
    ]
    for question in (france, hamlet, planet):  # in the fourth, `**gold**` is another answer to lm-polygraph
        values = question["values"]
        for ours, theirs in SAME_ESTIMATOR.items():
            assert values[ours] == pytest.approx(values[f"column:{theirs}"])
        assert values["lexical"] == pytest.approx(-values["column:LexicalSimilarity_rougeL"])
    for question in (hamlet, gold):  # whose answers have no token for their end
        values = question["values"]
        assert values["predictive_entropy"] == pytest.approx(values["column:MonteCarloSequenceEntropy"])


def test_a_result_of_truth_torch_gives_its_values_and_what_it_sampled() -> None:
    path = LOGS / "truthtorchlm.json"
    output = json.loads(path.read_text("utf-8"))["output_dict"]
    assert [question["correct"] for question in assessed(path)] == [
        {"human": bool(label)} for label in output["generations_correctness"]
    ]
    for name in ("Confidence", "Entropy", "MatrixDegreeUncertainty"):
        column = f"truth_method_{output['truth_methods'].index(name)}"
        for kind, values in (("value", "truth_values"), ("normalized", "normalized_truth_values")):
            read = [question["values"][f"column:{name}_{kind}"] for question in assessed(path)]
            assert read == output[column][values]
    details = output["truth_method_1"]["method_specific_details"]
    answers = [question.answers for question in read_answered_questions(path).questions]
    assert answers == [tuple(detail["generated_texts"]) for detail in details]


def test_values_of_tokens_that_are_not_of_texts_are_named(tmp_path: Path) -> None:
    manager = json.loads((LOGS / "lm_polygraph.json").read_text("utf-8"))
    del manager["stats"]["sample_texts"]
    manager["estimations"]["('claim', 'PTrueClaim')"] = [0.5, 0.25]
    file = read_answered_questions(written(tmp_path / "m.json", manager))
    assert [question.answers for question in file.questions][:2] == [
        (" Paris\n",),
        (" William Shakespeare\n",),
    ]
    assert any("PTrueClaim" in note for note in file.notes)


def test_import_says_that_log_probabilities_without_tokens_are_left_out(tmp_path: Path) -> None:
    outcome = run("import", "--items", LOGS / "lm_polygraph.json", "--out", tmp_path / "run")
    assert (outcome.code, "4 questions" in outcome.said, "'tokens'" in outcome.said) == (0, True, True)


def test_scores_of_a_library_are_estimators_in_a_run_too(tmp_path: Path) -> None:
    file = LOGS / "truthtorchlm.json"
    assert run("import", "--items", file, "--out", tmp_path / "run").code == 0
    of_run, of_file = (
        [question["values"] for question in assessed(path)] for path in (tmp_path / "run", file)
    )
    assert [{**values, "split_half": 0} for values in of_run] == [
        {**values, "split_half": 0}
        for values in of_file  # which depends on the order of answers
    ]


def manager_as_saved() -> dict[str, Any]:
    """Give the parts of a manager their types before they were JSON."""
    parts = json.loads((LOGS / "lm_polygraph.json").read_text("utf-8"))
    parts["stats"]["entropy"] = [list(map(np.float32, row)) for row in parts["stats"]["entropy"]]
    for part in ("gen_metrics", "estimations"):
        parts[part] = {ast.literal_eval(name): values for name, values in parts[part].items()}
    return {"state": "Initialized", "metrics": {("sequence", "Perplexity", "Accuracy", "prr"): 0.5}, **parts}


def result_as_pickled() -> dict[str, Any]:
    parts = json.loads((LOGS / "truthtorchlm.json").read_text("utf-8"))
    for generation in parts["output_dict"]["generation_dicts"]:
        generation["model_output"] = torch.tensor(generation["model_output"])
    return dict(parts)


@pytest.mark.parametrize(("name", "log"), [("ue_manager_seed1", "lm_polygraph"), ("r.pkl", "truthtorchlm")])
def test_the_command_that_a_refused_pickle_gets_writes_json_from_it(
    name: str, log: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if name.endswith(".pkl"):
        path.write_bytes(pickle.dumps(result_as_pickled()))
    else:
        torch.save(manager_as_saved(), path)
    outcome = run("convert", path)
    assert (outcome.code, outcome.stdout) == (2, "")
    command = shlex.split(outcome.said[outcome.said.index("python -c") :])
    subprocess.run([sys.executable, *command[1:]], check=True)
    found = read_answered_questions(tmp_path / f"{name}.json").questions
    assert found == read_answered_questions(LOGS / f"{log}.json").questions


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    (tmp_path / "run.man").write_bytes(b"\x80\x04N.")
    outcome = run("convert", tmp_path / "run.man")
    assert (outcome.code, "JSON" in outcome.said) == (2, True)
