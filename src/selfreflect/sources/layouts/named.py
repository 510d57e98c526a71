"""Layouts of other programs that differ only in column names or verdicts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from selfreflect.sources.answer_values import verdict
from selfreflect.sources.cells import is_percent, number_in
from selfreflect.sources.item_rows import list_in
from selfreflect.sources.layouts import Layout
from selfreflect.sources.names import (
    CONFIDENCE,
    CORRECT,
    GOLD,
    GRADES,
    ID_COLUMNS,
    QUESTION_COLUMNS,
    plain_name,
)
from selfreflect.sources.rows import Row, is_text_list, listed


class Names(NamedTuple):
    """Column names of one program, in lower case with ``_``."""

    words: str
    needs: frozenset[str]
    """Columns that identify the program."""
    usual: Mapping[str, str]
    """Our names by the program's."""
    verdicts: Mapping[str, str] = {}
    """Unusual codes for right, wrong and neither."""
    elsewhere: str = ""
    """Remedy for missing questions; rows are then numbered as ids."""


WITHOUT_PROMPTS = (
    "The method score() of uqlm leaves the prompts out: add them, as in frame.insert(0, 'prompt', prompts), "
    "or use a command that needs no questions: selfreflect uncertainty FILE."
)
_CONTEXTS = dict.fromkeys(("context", "contexts", "retrieval_context", "retrieved_contexts"), "context")
# What a retriever should have found, which is the context where there is no other.
_IDEAL = "ideal_context"
DETAILS = "method_specific_outputs"
"""Column of TruthTorchLM with what each of its methods returned, the answers that it sampled included."""
NAMES = {
    "deepeval": Names(
        "test cases of deepeval",
        frozenset({"input", "actual_output"}),
        {
            "input": "question",
            "actual_output": "response",
            "expected_output": GOLD,
            "metrics_data": GRADES,
            **_CONTEXTS,
            "context": _IDEAL,
        },
    ),
    "ragas": Names(
        "rows of RAGAS",
        frozenset({"user_input", "response"}),
        {"user_input": "question", "reference": GOLD, "exact_match": CORRECT, **_CONTEXTS},
    ),
    "ragas-0.1": Names(
        "rows of RAGAS",
        frozenset({"question", "answer", "contexts"}),
        {"answer": "response", "ground_truth": GOLD, "ground_truths": GOLD, **_CONTEXTS},
    ),
    "lm-polygraph": Names(
        "texts of lm-polygraph",
        frozenset({"input_texts", "greedy_texts"}),
        {
            "input_texts": "question",
            "greedy_texts": "response",
            "sample_texts": "samples",
            "sample_log_likelihoods": "logprobs",
            "target_texts": GOLD,
        },
    ),
    "truthtorchlm": Names(
        "rows of TruthTorchLM",
        frozenset({"question_text", "generations"}),
        {
            "question_text": "question",
            "generations": "response",
            "generations_correctness": CORRECT,
            "ground_truths": GOLD,
            DETAILS: "samples",
            **_CONTEXTS,
        },
        {"1": "1", "0": "0", "-1": "not_attempted"},
    ),
    # what generate_with_truth_value() returns, with a question that the user adds
    "truthtorchlm-answers": Names(
        "answers of TruthTorchLM",
        frozenset({"generated_text", "unnormalized_truth_values"}),
        {"generated_text": "response", DETAILS: "samples"},
    ),
    "uqlm": Names("result of uqlm", frozenset({"prompt", "response", "sampled_responses"}), {}),
    # its dictionary as a frame
    "uqlm-data": Names(
        "result of uqlm",
        frozenset({"prompts", "responses", "sampled_responses"}),
        {"prompts": "question", "responses": "response"},
    ),
    "uqlm-answers": Names(
        "result of uqlm without prompts",
        frozenset({"response", "sampled_responses"}),
        {},
        elsewhere=WITHOUT_PROMPTS,
    ),
    "alpaca": Names(
        "instructions with inputs",
        frozenset({"instruction", "input", "output"}),
        {"instruction": "question", "input": "context"},
    ),
    "simpleqa": Names(
        "graded answers to SimpleQA",
        frozenset({"problem", "answer", "response", "grade"}),
        {"problem": "question", "answer": GOLD, "grade": CORRECT},
        {"a": "correct", "b": "incorrect", "c": "not_attempted"},
    ),
    "arc": Names(
        "questions of multiple choice",
        frozenset({"choices", "answer_key"}),
        {"question_stem": "question", "answer_key": GOLD},
    ),
    "truthfulqa": Names(
        "questions of TruthfulQA",
        frozenset({"question", "best_answer", "correct_answers"}),
        {},
    ),
}
"""Programs by precedence."""


class Named(Layout):
    """Layout with columns under another program's names."""

    name = "named"
    streams = True
    known: Names

    def __init__(self) -> None:
        self.columns: dict[str, str] = {}

    def matches(self, rows: Sequence[Row]) -> bool:
        columns = [{*map(_plain, names)} for names in {tuple(row.fields) for row in rows}]
        for name, known in NAMES.items():
            # some programs leave out what is missing in a row
            are_asked = known.elsewhere and any(_ASKED & names for names in columns)
            is_known = any(names >= known.needs for names in columns) and all(
                names & known.needs for names in columns
            )
            if is_known and not are_asked:
                self.name, self.known, self.elsewhere = name, known, known.elsewhere
                return True
        return False

    def items(self, rows: Iterable[Row]) -> Iterable[Row]:
        for number, row in enumerate(rows, 1):
            usual_of = self._usual_names(row)
            self.columns |= {usual: column for column, usual in usual_of.items()}
            fields: dict[str, Any] = {}
            for column, value in row.fields.items():
                usual = usual_of[column]
                if usual.endswith("context"):
                    value = _joined(value)
                elif usual == CORRECT:
                    value = self.known.verdicts.get(str(value).strip().lower(), value)
                elif usual == GRADES:
                    value = _grades(value)
                elif column == DETAILS:
                    value = sampled_texts(value)
                # several columns may have one usual name, and all but one of them be empty
                if value not in (None, "") or usual not in fields:
                    fields[usual] = value
            if not fields.get("context") and fields.get(_IDEAL):
                fields["context"] = fields.pop(_IDEAL)
            missing = self.known.needs - {*map(_plain, row.fields)}
            fields |= {self.known.usual.get(name, name): None for name in sorted(missing)}
            if self.known.elsewhere:
                fields["id"] = number
            if self.name == "truthfulqa":
                fields[GOLD] = _accepted(fields)
            yield row._replace(fields=fields)

    def _usual_names(self, row: Row) -> dict[str, str]:
        """Map each column to our name. Raises DataError if two columns have equal names."""
        columns: dict[str, str] = {}
        for column in row.fields:
            plain = _plain(column)
            if plain in columns and plain in self.known.usual:
                raise row.error(
                    f"{listed([columns[plain], column])} could each be the {self.known.usual[plain]}",
                    remedy="Rename one.",
                )
            columns[plain] = column
        return {column: self.known.usual.get(_plain(column), column) for column in row.fields}

    def explain(self) -> str:
        return self.known.words


_ASKED = {*QUESTION_COLUMNS, *ID_COLUMNS}


def _plain(name: str) -> str:
    """Fold a name, including deepeval's ``camelCase``."""
    return plain_name(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name))


def _grades(metrics: Any) -> Any:
    """Read from a list of metrics whether the answer passes each: ``[{"name": "Faithfulness", "success":
    true}]``."""
    if not isinstance(metrics, list) or not all(isinstance(metric, dict) for metric in metrics):
        return metrics
    return {str(metric.get("name")): metric.get("success") for metric in metrics}


def sampled_texts(details: Any) -> list[str] | None:
    """Read the answers that methods sampled, of which each takes the first few."""
    lists = [entry.get("generated_texts") for entry in details or () if isinstance(entry, dict)]
    return max(filter(is_text_list, lists), key=len, default=None)


def _joined(value: Any) -> Any:
    """Join the texts of a context."""
    texts = list_in(value) if isinstance(value, str) and value.lstrip().startswith("[") else value
    return "\n\n".join(texts) if is_text_list(texts) else value


def _accepted(fields: Mapping[str, Any]) -> list[str]:
    """Collect the true answers, separated by semicolons in a cell."""
    texts = []
    for column, value in fields.items():
        if plain_name(column) in ("best_answer", "correct_answers"):
            texts += value if is_text_list(value) else str(value or "").split(";")
    return [text.strip() for text in dict.fromkeys(texts) if text.strip()]


class Judged(Layout):
    """Answers with a verdict and a confidence from 0 to 100, as in Humanity's Last Exam."""

    name = "judged"
    streams = True
    elsewhere = (
        "The questions are in the data set. Give each record the field 'question', or use a command that "
        "needs no questions: selfreflect uncertainty FILE."
    )

    def matches(self, rows: Sequence[Row]) -> bool:
        return any(isinstance(row.fields.get(_JUDGED), dict) for row in rows) and all(
            isinstance(row.fields.get(_JUDGED, {}), dict | None) for row in rows
        )

    def items(self, rows: Iterable[Row]) -> Iterable[Row]:
        for row in rows:
            record = dict(row.fields)
            judged = record.pop(_JUDGED, None) or {}
            record[CONFIDENCE] = _of_hundred(judged.get("confidence"))
            record[CORRECT] = verdict(judged.get("correct"))
            yield row._replace(fields=record)

    def explain(self) -> str:
        return "answers judged as for Humanity's Last Exam"


_JUDGED = "judge_response"


def _of_hundred(value: Any) -> Any:
    """Convert a number from 0 to 100, or a percentage, to a share; return other values unchanged."""
    try:
        return number_in(value if is_percent(value) else f"{value}%")
    except ValueError:
        return value
