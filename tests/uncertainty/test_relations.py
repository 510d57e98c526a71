"""Answers that a model calls the same: a generator that is asked, and a classifier of pairs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from scripted import Scripted
from tiny_classifier import make_classifier

from selfreflect.errors import BackendError, ConfigError
from selfreflect.models.base import Request
from selfreflect.models.embed import EntailmentModel
from selfreflect.store.journal import open_replies
from selfreflect.uncertainty import relations
from selfreflect.uncertainty.asking.asker import Asker
from selfreflect.uncertainty.assess import Assessment, Method
from selfreflect.uncertainty.classes import ClassRule
from selfreflect.uncertainty.question import AnsweredQuestion
from selfreflect.uncertainty.relations import Entailment

QUESTION = AnsweredQuestion(id="q", text="Where?", answers=("Paris", "paris.", "France's capital", "Capital"))


def asker(model: Scripted) -> Asker:
    return Asker("scripted", lambda: model)


def chain(request: Request) -> str:
    """Paris ~ France's capital ~ Capital, and Paris is not Capital."""
    text = request.messages[0].content
    return "No." if '"Paris"' in text and '"Capital"' in text else "**Yes**, both"


def test_a_judge_is_asked_about_each_pair_of_spellings_once() -> None:
    model = Scripted(chain)
    ask = asker(model)
    assert ClassRule("judge", asker=ask)(QUESTION).tolist() == [0, 0, 0, 1]
    again = ClassRule("judge", asker=ask)
    assert again(QUESTION).tolist() == [0, 0, 0, 1]
    assert (len(model.requests), again.name, again.undecided) == (2, "judge scripted, first", 0)
    with pytest.raises(ConfigError) as refused:
        ClassRule("judge")
    assert refused.value.code == "no_model"


def test_a_judge_that_does_not_decide_leaves_answers_apart_and_is_counted() -> None:
    rule = ClassRule("judge", asker=asker(Scripted("I wonder.")))
    assert rule(QUESTION).tolist() == [0, 0, 1, 2]
    assert rule.undecided == 3
    assert "3 pairs" in rule.caveats[0]


def test_pairs_are_compared_round_by_round_up_to_a_bound() -> None:
    letters = tuple("abcdefgh")
    question = AnsweredQuestion(id="q", text="Which letter?", answers=letters)
    model = Scripted({"My sister did": "Yes", "": "No"})
    rule = ClassRule("judge", asker=asker(model), bounded=True)
    assert rule(question).tolist() == list(range(8))
    assert len(model.requests) == 2 + 2 * len(letters)  # of 28 pairs
    assert "12 pairs" in rule.caveats[0]
    model = Scripted({"postman": "No", "": "Yes"})
    rule = ClassRule("judge", asker=asker(model), bounded=True)
    assert (rule(question).tolist(), len(model.requests), rule.caveats) == ([0] * 8, 2 + 7, [])
    rule.prepare([question])
    assert len(model.requests) == 2 + 7


@pytest.mark.parametrize("text", ["Yes", "No", "Hm."])
def test_a_model_that_gets_a_control_wrong_is_not_asked_unless_it_is_chosen(text: str) -> None:
    model = Scripted(text)
    rule = ClassRule("judge", asker=asker(model), bounded=True)
    assert (rule(QUESTION).tolist(), rule.name, len(model.requests)) == ([0, 0, 1, 2], "same", 2)
    assert len(rule.caveats) == 1
    chosen = ClassRule("judge", asker=asker(Scripted("Yes")))
    assert (chosen(QUESTION).tolist(), chosen.name) == ([0] * 4, "judge scripted, first")


def test_a_judge_of_correctness_is_asked_about_other_spellings_only() -> None:
    model = Scripted({"Lyon": "No", "City of Light": "Yes", "Rome": "Hm"})
    answers = ("Paris", "Lyon", "The City of Light", "Rome")
    questions = [
        AnsweredQuestion(id=text, text="Where?", answers=(text,), gold=("paris!",)) for text in answers
    ]
    questions.append(AnsweredQuestion(id="x", answers=("Paris",)))
    method = Method(ClassRule(), correctness=("judge",), asker=asker(model))
    assert Assessment(questions, [], method).judged.labels["judge"] == [True, False, True, None, None]
    assert len(model.requests) == 3


@pytest.mark.parametrize("labels", [{0: "contradiction", 1: "ENTAILMENT"}, {0: "entailment", 1: "neutral"}])
def test_the_label_of_entailment_is_found_by_its_name(tmp_path: Path, labels: dict[int, str]) -> None:
    entailment = next(number for number, label in labels.items() if label.lower() == "entailment")
    for likeliest in labels:
        path = make_classifier(tmp_path / str(likeliest), labels, likeliest)
        rule = ClassRule(f"nli:{path}")
        same = likeliest == entailment
        assert rule(QUESTION).tolist() == ([0, 0, 0, 0] if same else [0, 0, 1, 2])
        assert rule.name == f"nli:{path}, first"


def test_verdicts_are_kept_and_the_model_is_not_loaded_again(tmp_path: Path) -> None:
    path = make_classifier(tmp_path / "model", {0: "entailment", 1: "neutral"})
    long = AnsweredQuestion(id="r", answers=("paris", "lyon " * 20))
    with open_replies(tmp_path / "kept") as store:
        rule = ClassRule(f"nli:{path}", store=store)
        assert (rule(QUESTION).tolist(), rule(long).tolist()) == ([0, 0, 0, 0], [0, 1])
    shutil.rmtree(path)
    with open_replies(tmp_path / "kept") as store:
        again = ClassRule(f"nli:{path}", store=store)
        again.prepare([QUESTION, long])
        assert (again(QUESTION).tolist(), again(long).tolist(), again.undecided) == ([0] * 4, [0, 1], 1)
        with pytest.raises(BackendError):
            ClassRule(f"nli:{path}", store=store)(AnsweredQuestion(id="s", answers=("Rome", "Oslo")))


def test_an_interruption_keeps_the_verdicts_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relations, "STORED_AT_ONCE", 2)
    path = make_classifier(tmp_path / "model", {0: "entailment", 1: "neutral"})
    entails, calls = EntailmentModel.entails, []

    def interrupted(model: EntailmentModel, pairs: Sequence[tuple[str, str]]) -> list[bool | None]:
        calls.append(len(pairs))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return entails(model, pairs)

    monkeypatch.setattr(EntailmentModel, "entails", interrupted)
    with pytest.raises(KeyboardInterrupt), open_replies(tmp_path / "kept") as store:
        ClassRule(f"nli:{path}", store=store)(QUESTION)
    with open_replies(tmp_path / "kept") as store:
        assert ClassRule(f"nli:{path}", store=store)(QUESTION).tolist() == [0, 0, 0, 0]
    assert calls == [2, 2, 2]  # the first answer with the two others, both ways


def test_entailment_must_hold_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    relation = Entailment(make_classifier(tmp_path, {0: "entailment", 1: "neutral"}))
    said = {("Where? Paris", "Where? Capital"): True, ("Where? Capital", "Where? Paris"): False}
    monkeypatch.setattr(EntailmentModel, "entails", lambda model, pairs: [said[pair] for pair in pairs])
    question = AnsweredQuestion(id="q", text="Where?")
    assert relation((question, ["Paris", "Capital"])).tolist() == [[True, False], [False, True]]


def test_models_that_classify_no_entailment_are_refused(tmp_path: Path) -> None:
    path = make_classifier(tmp_path / "a", {0: "LABEL_0", 1: "LABEL_1"})
    with pytest.raises(ConfigError, match="'LABEL_0', 'LABEL_1'"):
        ClassRule(f"nli:{path}")(QUESTION)
    with pytest.raises(ConfigError, match="nli:DIRECTORY"):
        ClassRule("nli")
    with pytest.raises(BackendError):
        ClassRule(f"nli:{tmp_path / 'nothing'}")(QUESTION)
