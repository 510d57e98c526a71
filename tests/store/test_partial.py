"""Answers of unfinished questions: kept until the question is done, and never anything else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from selfreflect.errors import StoreError
from selfreflect.records import AnswerSample, AnswerSet, Failure, Question
from selfreflect.store.manifest import count_records
from selfreflect.store.run import Run


def sample(question: str, index: int, text: str = "yes") -> AnswerSample:
    return AnswerSample(question_id=question, index=index, text=text, finish="stop", request="r")


def answer_set(question: str) -> AnswerSet:
    return AnswerSet(question_id=question, masked_out=("a",), conditioning=("b",))


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A run with two unfinished questions, one of them with an id that is no file name."""
    with Run.open(tmp_path / "r", {}) as run:
        for name in ("a", "../../b\x00"):
            run.append(Question(id=name, text=name))
            run.append_all([sample(name, 1), sample(name, 0, "no\u2028")])
    return tmp_path / "r"


def test_they_are_there_again_and_go_when_their_question_has_answers(begun: Path) -> None:
    assert [one.text for one in Run.load(begun).samples("../../b\x00")] == ["yes", "no\u2028"]
    with Run.open(begun, {}) as run:
        assert [one.index for one in run.samples("a")] == [1, 0]
        run.append(answer_set("a"))
        assert run.samples("a") == ()
        assert len(run.samples("../../b\x00")) == 2
        run.append(answer_set("../../b\x00"))
    assert not (begun / "partial").exists()
    assert {path.name for path in begun.parent.iterdir()} == {"r"}


@pytest.mark.parametrize(("kind", "kept"), [("backend", 2), ("content_filter", 0)])
def test_a_failure_that_is_tried_again_keeps_them(begun: Path, kind: str, kept: int) -> None:
    with Run.open(begun, {}) as run:
        run.append(Failure(question_id="a", stage="answers", kind=kind, message="no"))  # type: ignore[arg-type]
        assert len(run.samples("a")) == kept


def test_what_a_kill_left_behind_a_whole_answer_set_goes_when_the_run_is_opened(begun: Path) -> None:
    left = {file.name: file.read_bytes() for file in (begun / "partial").iterdir()}
    with Run.open(begun, {}) as run:
        run.append(answer_set("a"))
    for name, data in left.items():
        (begun / "partial" / name).write_bytes(data)
    with Run.open(begun, {}) as run:
        assert len(list((begun / "partial").iterdir())) == 1
        assert len(run.samples("../../b\x00")) == 2


def test_a_torn_line_costs_itself_and_a_damaged_one_is_named(begun: Path) -> None:
    [file] = [path for path in (begun / "partial").iterdir() if b'"a"' in path.read_bytes()]
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:40])
    with Run.open(begun, {}) as run:
        run.append(sample("a", 2))
        assert [one.index for one in run.samples("a")] == [1, 0, 2]
    assert len(file.read_bytes().splitlines()) == 3
    file.write_bytes(whole.replace(b'"index": 1', b'"index": -1'))
    with pytest.raises(StoreError, match=r"partial/.*jsonl, line 1: .*>= 0"):
        Run.load(begun).samples("a")


def test_starting_over_moves_them_aside_with_their_run(begun: Path) -> None:
    assert count_records(begun) == {"questions": 2}
    assert count_records(begun.rename(begun.with_name("partial"))) == {"questions": 2}
    begun.with_name("partial").rename(begun)
    with Run.open(begun, {}, fresh=True) as run:
        assert run.samples("a") == ()
    [backup] = begun.glob("backup-*")
    assert len(Run.load(backup).samples("a")) == 2
    assert not (begun / "partial").exists()


def test_another_questions_file_and_a_linked_folder_are_not_used(begun: Path, tmp_path: Path) -> None:
    first, second = sorted((begun / "partial").iterdir())
    first.write_bytes(second.read_bytes())
    assert [len(Run.load(begun).samples(name)) for name in ("a", "../../b\x00")].count(0) == 1
    elsewhere = (begun / "partial").rename(tmp_path / "elsewhere")
    (begun / "partial").symlink_to(elsewhere)
    with pytest.raises(StoreError, match="is a link"), Run.open(begun, {}) as run:
        run.append(sample("a", 7))
