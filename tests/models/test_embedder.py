"""Answers grouped by meaning, with the real sentence embeddings."""

import sys

import pytest
from command import run as run_command

from selfreflect.errors import BackendError, MissingExtraError
from selfreflect.models import embedder as embedding
from selfreflect.models.embedder import MeaningGroups, contradictions


@pytest.fixture(scope="module")
def grouping():
    return MeaningGroups()


def told(grouping, answers):
    return [{answers[index] for index in group} for group in grouping(answers)]


def test_different_words_for_one_thing_are_one_group(grouping):
    answers = [
        "Paris",
        "The capital of France is Paris.",
        "It's Paris.",
        "Lyon",
        "I think it is Lyon",
        "paris",
    ]
    assert told(grouping, answers) == [
        {"Paris", "paris", "The capital of France is Paris.", "It's Paris."},
        {"Lyon", "I think it is Lyon"},
    ]
    # of equally common spellings the first in code point order
    assert answers[grouping(answers)[0][0]] == "It's Paris."


def test_different_numbers_are_different_answers(grouping):
    answers = ["1969", "In 1969.", "1970", "July 20, 1969"]
    assert told(grouping, answers) == [{"1969", "In 1969.", "July 20, 1969"}, {"1970"}]
    assert contradictions(["2 or 3", "3", "4", "none"]).tolist() == [
        [0, 0, 1, 0],
        [0, 0, 1, 0],
        [1, 1, 0, 0],
        [0, 0, 0, 0],
    ]


@pytest.mark.parametrize("answers", [[], ["one"], ["one", "One."], ["\ud800", " ", "x" * 100_000]])
def test_no_answers_alike_answers_and_odd_ones_are_grouped_too(grouping, answers):
    assert sorted(index for group in grouping(answers) for index in group) == list(range(len(answers)))


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setattr(embedding, "_CARRIER", "not_there")
    with pytest.raises(MissingExtraError, match=r"\.\[embed\]"):
        MeaningGroups()


def test_an_extra_that_cannot_be_imported_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"\.\[embed\]"):
        MeaningGroups()


def test_weights_that_cannot_be_read_are_told(monkeypatch, tmp_path):
    (tmp_path / "without_weights.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(embedding, "_CARRIER", "without_weights")
    with pytest.raises(BackendError, match=r"cannot be read.*Reinstall the 'embed' extra"):
        MeaningGroups()


def test_other_weights_are_refused(monkeypatch):
    monkeypatch.setattr(embedding, "_WEIGHTS", "0" * 64)
    with pytest.raises(BackendError, match="is not the published model"):
        MeaningGroups()


def test_an_unknown_way_of_grouping_is_answered_with_the_known_ones(tmp_path):
    done = run_command("report", tmp_path, "--groups", "sense")
    assert done.code == 2
    assert "is not one of 'spelling', 'meaning'" in done.said
