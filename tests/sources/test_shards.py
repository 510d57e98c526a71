"""Parts of a question set: whatever the source, N jobs share it without overlap, and nothing is left over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import piped, run, small, written
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.errors import ConfigError, DataError
from selfreflect.records import Question, dump_line, from_plain
from selfreflect.sources.questions import QuestionSet, load_questions, parse_shard
from selfreflect.store.run import Run

TEXTS = ["What first?", "Who is it?", "Which pot?", "Why not?", "How deep?"]


def read(texts: list[str], **options: object) -> QuestionSet:
    with piped(json.dumps(texts).encode()):
        return load_questions("-", **options)


@given(
    st.lists(st.sampled_from(TEXTS), min_size=1, max_size=40),
    st.none() | st.integers(1, 50),
    st.integers(1, 12),
    st.integers(0, 3),
)
def test_parts_are_disjoint_even_and_the_whole(
    texts: list[str], limit: int | None, of: int, seed: int
) -> None:
    """Also where texts repeat, and after a sample was drawn: the part is one of the sample."""
    whole = read(texts, limit=limit, seed=seed).questions
    parts = [
        read(texts, limit=limit, seed=seed, part=f"{number}/{of}")
        for number in range(1, min(of, len(whole)) + 1)
    ]
    together = [question for part in parts for question in part.questions]
    assert sorted(together, key=whole.index) == list(whole)
    sizes = [len(part.questions) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert {part.total for part in parts} == {len(texts)}


def test_a_part_takes_every_nth_question_and_says_so() -> None:
    """Literal questions: another version of this package has to cut in the same way, or parts made by both
    would overlap."""
    found = read(TEXTS, part="2/3")
    assert [question.text for question in found.questions] == ["Who is it?", "How deep?"]
    assert (found.part, found.total) == ("2/3", 5)
    assert from_plain(QuestionSet, json.loads(dump_line(found))) == found
    assert read(TEXTS, part="1/1").questions == read(TEXTS).questions


@pytest.mark.parametrize(
    "text",
    ["0/3", "4/3", "3", "1/0", "", "1/", "/3", "01/3", "1/3/3", " 1/3", "1/3\n", "-1/3", "1.0/3", "١/٣"],
)
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="K/N with K from 1 to N"):
        parse_shard(text)


def test_a_part_without_questions_is_an_error() -> None:
    assert len(read(TEXTS, part="5/5").questions) == 1
    with pytest.raises(DataError, match="shard 6/6 of 5 questions is empty"):
        read(TEXTS, part="6/6")


# On the command line


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tiny

    return tiny.save(tmp_path_factory.mktemp("model"), "llama")


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("questions") / "q.txt", "\n".join(TEXTS))


def test_questions_shows_and_stores_a_part(questions: Path, tmp_path: Path) -> None:
    command = ["questions", "--questions", questions, "--shard", "2/3"]
    assert [line["text"] for line in run(*command, "--json").json] == ["Who is it?", "How deep?"]
    assert run(*command, "--out", tmp_path / "r").code == 0
    stored = Run.load(tmp_path / "r")
    assert [question.text for question in stored.questions.values()] == ["Who is it?", "How deep?"]
    assert stored.manifest.config["questions"]["part"] == "2/3"
    assert (stored.manifest.sources["questions"]["part"], stored.manifest.sources["questions"]["count"]) == (
        "2/3",
        2,
    )


def test_a_directory_stays_with_its_part(model: Path, questions: Path, tmp_path: Path) -> None:
    command = small(model, tmp_path / "r", questions)
    assert run(*command, "--shard", "1/2").code == 0
    other = run(*command, "--shard", "2/2")
    assert other.code == 2
    assert 'questions.part: "1/2" -> "2/2"' in other.said
    assert run(*command).code == 0, "without --shard the directory's own is kept"
    assert len(Run.load(tmp_path / "r").questions) == 3


def test_joined_parts_are_the_undivided_run_record_for_record(
    model: Path, questions: Path, tmp_path: Path
) -> None:
    parts = [tmp_path / f"part-{number}" for number in (1, 2)]
    for number, part in enumerate(parts, 1):
        assert run(*small(model, part, questions), "--shard", f"{number}/2").code == 0
    assert run(*small(model, tmp_path / "whole", questions)).code == 0
    joined = run("import", *parts, "--out", tmp_path / "joined")
    assert joined.code == 0
    counts = "5 questions, 5 answer sets, 10 summaries, measured: 10 by selfreflect, 10 by information"
    assert joined.said.endswith(f"joined: {counts}")
    whole, found = Run.load(tmp_path / "whole"), Run.load(tmp_path / "joined")
    assert found.questions == whole.questions
    assert found.answers == whole.answers
    assert found.summaries == whole.summaries
    assert found.scores == whole.scores
    assert found.manifest.config == whole.manifest.config
    assert found.manifest.models == whole.manifest.models
    assert found.manifest.sources == whole.manifest.sources
    shown = [run("compare", tmp_path / name, "--json").json[0] for name in ("whole", "joined")]
    assert [{**line, "run": "", "baseline": "", "sentence": ""} for line in shown[:1]] == [
        {**line, "run": "", "baseline": "", "sentence": ""} for line in shown[1:]
    ]


def test_a_joined_run_goes_on_like_any_other_and_gets_the_questions_it_lacks(
    model: Path, questions: Path, tmp_path: Path
) -> None:
    first, joined = tmp_path / "part-1", tmp_path / "joined"
    assert run(*small(model, first, questions, strategies="greedy"), "--shard", "1/2").code == 0
    outcome = run("import", first, "--out", joined)
    assert "2 of 5 questions are missing: no directory holds shard 2/2." in outcome.said
    assert run(*small(model, joined, questions)).code == 0
    found = Run.load(joined)
    assert {question.text for question in found.questions.values()} == set(TEXTS)
    assert len(found.scores) == 10
    kept = Run.load(first)
    assert [found.scores[key] for key in kept.scores] == list(kept.scores.values())
    assert all(isinstance(question, Question) for question in found.questions.values())
