"""Answers that a judge has graded, as in the files of Humanity's Last Exam."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from selfreflect.sources.layouts.shapes import Places, Records


class Judged(Records):
    """Records with a verdict and a confidence from 0 to 100; one without verdict has no label."""

    name = "judged"
    needs = ("judge_response",)

    def holds(self, fields: Mapping[str, Any]) -> bool:
        verdicts = [record.get("judge_response") for record in fields.values() if isinstance(record, dict)]
        return any(isinstance(verdict, dict) for verdict in verdicts) and super().holds(fields)

    def records(self, fields: Mapping[str, Any]) -> Places:
        for place, record in super().records(fields):
            verdict = record.pop("judge_response", None) or {}
            correct = {"yes": True, "no": False}.get(str(verdict.get("correct")).strip().lower())
            confidence = verdict.get("confidence")
            if isinstance(confidence, int | float) and not isinstance(confidence, bool):
                record["confidence"] = confidence / 100
            if correct is not None:
                record["correct"] = correct
            if isinstance(record.get("response"), str):
                record.setdefault("answers", [record["response"]])
            yield place, record

    def explain(self) -> str:
        return "answers judged as for Humanity's Last Exam"
