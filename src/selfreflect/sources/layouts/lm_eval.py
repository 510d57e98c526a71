"""Samples of lm-eval (``--log_samples``)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from selfreflect.sources.answer_values import is_grader, verdict
from selfreflect.sources.cells import is_place, metadata, right_choice
from selfreflect.sources.item_rows import list_in
from selfreflect.sources.layouts import Layout, right_answers
from selfreflect.sources.names import CHOICES, GRADES, QUESTION_COLUMNS, plain_name
from selfreflect.sources.rows import Row, is_text_list
from selfreflect.text import common_prefix, counted

_FIELDS = {"doc_id", "doc", "resps"}
# Fields of a sample that are no metrics.
_OF_SAMPLE = _FIELDS | set(
    "target arguments filtered_resps filter metrics doc_hash prompt_hash target_hash task_name".split()
)
# The metric that grades the likeliest choice; others grade choices by other rules.
_OF_LIKELIEST = "acc"


class LmEval(Layout):
    """Layout with each document's repeats as answers, and filters over the same documents."""

    name = "lm-eval"
    is_log = True
    streams = True
    ignores = ("arguments", "doc_hash", "prompt_hash", "target_hash")

    def matches(self, rows: Sequence[Row]) -> bool:
        # in the cells of a table they are texts
        return all(row.fields.keys() >= _FIELDS and not isinstance(row.fields["resps"], str) for row in rows)

    def items(self, rows: Iterable[Row]) -> Iterable[Row]:
        items: dict[str, Row] = {}
        graded: dict[str, dict[tuple[str, str], list[tuple[str | None, Any]]]] = {}
        runs: dict[str, list[Any]] = {}
        counts: Counter[tuple[str, str]] = Counter()
        choices = 0
        for sample in rows:
            if not self.matches([sample]):
                raise sample.error("not a sample of lm-eval, although the rows before it are")
            filter_name, responses = str(sample.fields.get("filter", "")), sample.fields["resps"]
            key = _key(sample)
            run = counts[key, filter_name]
            if run < len(runs.get(key, ())) and runs[key][run] != responses:
                key += filter_name  # another task with the same documents
                run = counts[key, filter_name]
            counts[key, filter_name] += 1
            if run and _likelihoods(responses):
                key, run = f"{key}{run}", 0  # another run, with a confidence of its own
            if key not in items:
                items[key] = sample._replace(fields=self._fields(sample))
                graded[key] = {}
            fields, runs_of_item = items[key].fields, runs.setdefault(key, [])
            repeats = [fields["response"]] if _likelihoods(responses) else _repeats(sample)
            if run >= len(runs_of_item):  # not the same responses under another filter
                runs_of_item.append(responses)
                if run and "samples" in fields:
                    fields["samples"] = [*fields["samples"], *repeats]
                choices += "samples" not in fields
            # of several repeats the first text that a filter makes is graded
            text = repeats[0] if len(repeats) == 1 else None
            filtered = sample.fields.get("filtered_resps")
            if text is None and is_text_list(filtered) and filtered:
                fields.setdefault("response", filtered[0])
            for metric, value in _metrics(sample):
                fields["metadata"].setdefault(metric, value)
                if "samples" in fields or metric == _OF_LIKELIEST:
                    graded[key].setdefault((metric, filter_name), []).append((text, value))
        self._grade(items, graded)
        if choices:
            self.notes = [
                *self.notes,
                f"{counted(choices, 'question')} of multiple choice: the confidence is the likelihood of the "
                "likeliest choice among all",
            ]
        return items.values()

    def explain(self) -> str:
        return "samples of lm-eval"

    def _fields(self, sample: Row) -> dict[str, Any]:
        doc = sample.fields["doc"]
        values = dict(doc) if isinstance(doc, dict) else {}
        texts = {plain_name(name): name for name, value in values.items() if isinstance(value, str)}
        column = next((texts[name] for name in QUESTION_COLUMNS if name in texts), "")
        question = values.pop(column, None) or _prompt(sample.fields.get("arguments"))
        target = _targets(sample.fields.get("target"))
        values |= {"target": target, "doc_id": sample.fields["doc_id"]}
        fields = {"question": question, "metadata": metadata(values, values), GRADES: {}}
        fields |= {path: sample.get(path) for path in self.assigned if sample.get(path) is not None}
        likelihoods = _likelihoods(sample.fields["resps"])
        if not likelihoods:
            return {**fields, "samples": _repeats(sample), **right_answers(target)}
        choices = _choices(values, sample.fields.get("arguments"), len(likelihoods))
        likelihoods = likelihoods[: len(choices)]  # twice as many where acc_mutual_info is asked for
        likeliest = max(likelihoods)
        columns = [column for column in values.values() if isinstance(column, dict)]
        named = next((column for column in columns if column.get("text") == choices), choices)
        labels = next((column["labels"] for column in columns if _are_labelled(column, choices)), None)
        ends = [text.strip() for text in _request(sample.fields.get("arguments"), 0)[1:]]
        # what follows the blank of winogrande, whichever choice fills it
        if isinstance(target, str) and target.strip() in ends and target.strip() not in choices:
            target = None
            fields["metadata"].pop("target")
        if labels:  # several may be right
            target = [text for text, label in zip(choices, labels, strict=True) if label]
        # a number is the place of the right choice, also where the document numbers its choices from 1
        right = right_answers(right_choice(target, choices if is_place(str(target), choices) else named))
        # the likeliest one's share of the softmax, in which its own term is exp(0) = 1
        confidence = 1 / sum(math.exp(value - likeliest) for value in likelihoods)
        return {
            **fields,
            **right,
            "response": choices[likelihoods.index(likeliest)],
            "confidence": confidence,
        }

    def _grade(
        self,
        items: Mapping[str, Row],
        graded: Mapping[str, Mapping[tuple[str, str], Sequence[tuple[str | None, Any]]]],
    ) -> None:
        """Grade the rows by metrics that are right or wrong throughout the file."""
        columns: dict[tuple[str, str], list[Any]] = {}
        for by_metric in graded.values():
            for name, pairs in by_metric.items():
                columns.setdefault(name, []).extend(value for _, value in pairs)
        graders = [name for name, values in columns.items() if is_grader(values)]
        for key, by_metric in graded.items():
            grades = items[key].fields[GRADES]
            for metric, filter_name in graders:
                verdicts = by_metric.get((metric, filter_name))
                # the first filter of a document counts; the comma of lm-eval's tables divides options here
                grader = f"{metric}:{filter_name}" if metric in grades else metric
                if verdicts:
                    grades[grader] = [[text, verdict(value)] for text, value in verdicts]


def _key(sample: Row) -> str:
    """Make a key for a document that is unique across tasks, whose ids all begin at 0."""
    document = "doc_hash" if "doc_hash" in sample.fields else "doc"
    names = ("task_name", "doc_id", document, "prompt_hash")
    return repr([sample.fields.get(name) for name in names])


def _repeats(sample: Row) -> list[str]:
    requests = sample.fields["resps"]
    repeats = requests[0] if isinstance(requests, list) and len(requests) == 1 else None
    if not is_text_list(repeats) or not repeats:
        raise sample.error(
            "its 'resps' are neither generated answers (a task of output_type generate_until has them) nor "
            "likelihoods of several choices (multiple_choice)"
        )
    return repeats


def _likelihoods(requests: Any) -> list[float]:
    """Read the log-likelihood of each choice, ``[[[-2.3, false]], …]``; empty without choices."""
    if not isinstance(requests, list) or len(requests) < 2:
        return []
    values = []
    for request in requests:
        try:
            [[value, _]] = request
            values.append(float(value))
        except (TypeError, ValueError):
            return []
    return values if all(map(math.isfinite, values)) else []


def _choices(doc: Mapping[str, Any], arguments: Any, count: int) -> list[str]:
    """Find the choices' texts: in the document, if its list is called so or says what the model read, or else
    in the requests."""
    requests = [_request(arguments, number) for number in range(count)]
    continuations = [request[1].strip() if len(request) > 1 else "" for request in requests]
    for name, column in doc.items():
        texts = column.get("text") if isinstance(column, dict) else column
        if is_text_list(texts) and len(texts) in (count, count / 2):
            is_said = [text.strip() for text in texts] == continuations[: len(texts)]
            if is_said or plain_name(name) in _LISTS_OF_CHOICES or not any(continuations):
                return texts
    if len({*continuations}) == 1 and all(requests):  # the choices stand in what comes before
        starts = [request[0].split() for request in requests]
        same = common_prefix(min(starts), max(starts))
        continuations = [" ".join(words[same:]) for words in starts]
    return [text or f"choice {number}" for number, text in enumerate(continuations, 1)]


_LISTS_OF_CHOICES = (*CHOICES, "endings")


def _request(arguments: Any, number: int) -> list[str]:
    """List the texts of a request: ``[["context", " end"], …]``, or ``{"gen_args_0": {"arg_0": …}}``."""
    if isinstance(arguments, dict):
        request = arguments.get(f"gen_args_{number}")
    else:
        request = arguments[number] if isinstance(arguments, list) and number < len(arguments) else None
    texts = list(request.values()) if isinstance(request, dict) else request
    return texts if is_text_list(texts) else []


def _are_labelled(column: Mapping[str, Any], choices: Sequence[str]) -> bool:
    """Check whether a column of the document labels the choices, as in TruthfulQA."""
    labels = column.get("labels")
    return column.get("choices") == choices and isinstance(labels, list) and len(labels) == len(choices)


def _targets(target: Any) -> Any:
    """Parse several right answers printed as one text: ``"['a', 'b']"``."""
    values = list_in(target) if isinstance(target, str) and target.startswith("[") else None
    return values if values and is_text_list(values) else target


def _metrics(sample: Row) -> Iterable[tuple[str, Any]]:
    """Yield a sample's single-valued metrics."""
    names = sample.fields.get("metrics")
    for name, value in sample.fields.items():
        is_metric = name in names if isinstance(names, list) else name not in _OF_SAMPLE
        if is_metric and isinstance(value, bool | int | float):
            yield name, value


def _prompt(arguments: Any) -> Any:
    """Find the first request's prompt: ``{"gen_args_0": {"arg_0": …}}``, or a list of lists."""
    for key in ("gen_args_0", "arg_0"):
        if isinstance(arguments, dict):
            arguments = arguments.get(key)
        elif isinstance(arguments, list):
            arguments = next(iter(arguments), None)
    return arguments
