"""Hub data sets, read from local copies of exactly their schemas through the code that reads the real
ones."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import datasets
import huggingface_hub.constants
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from selfreflect.errors import DataError, MissingExtraError
from selfreflect.sources.hub import HUB_SETS, find_hub_set, load_hub, revision_of
from selfreflect.sources.questions import QuestionSet, load_questions

TEXT, INT, FLAG = Value("string"), Value("int64"), Value("bool")
SPAN = {"start_token": INT, "end_token": INT, "start_byte": INT, "end_byte": INT}

NATURAL_QUESTIONS = Features(
    {
        "id": TEXT,
        "document": {
            "html": TEXT,
            "title": TEXT,
            "tokens": {
                "token": List(TEXT),
                "is_html": List(FLAG),
                "start_byte": List(INT),
                "end_byte": List(INT),
            },
            "url": TEXT,
        },
        "question": {"text": TEXT, "tokens": List(TEXT)},
        "long_answer_candidates": {**{name: List(INT) for name in SPAN}, "top_level": List(FLAG)},
        "annotations": {
            "id": List(TEXT),
            "long_answer": List({**SPAN, "candidate_index": INT}),
            "short_answers": List({**{name: List(INT) for name in SPAN}, "text": List(TEXT)}),
            "yes_no_answer": List(ClassLabel(names=["NO", "YES"])),
        },
    }
)
TRIVIA_QA = Features(
    {
        "question": TEXT,
        "question_id": TEXT,
        "question_source": TEXT,
        "entity_pages": {name: List(TEXT) for name in ("doc_source", "filename", "title", "wiki_context")},
        "search_results": {
            **{name: List(TEXT) for name in ("description", "filename", "title", "url", "search_context")},
            "rank": List(Value("int32")),
        },
        "answer": {
            "aliases": List(TEXT),
            "normalized_aliases": List(TEXT),
            "matched_wiki_entity_name": TEXT,
            "normalized_matched_wiki_entity_name": TEXT,
            "normalized_value": TEXT,
            "type": TEXT,
            "value": TEXT,
        },
    }
)
MMLU = Features(
    {
        "question": TEXT,
        "subject": TEXT,
        "choices": List(TEXT),
        "answer": ClassLabel(names=["A", "B", "C", "D"]),
    }
)
TRUTHFUL_QA = Features(
    {
        **dict.fromkeys(("type", "category", "question", "best_answer"), TEXT),
        "correct_answers": List(TEXT),
        "incorrect_answers": List(TEXT),
        "source": TEXT,
    }
)


def natural_question(number: int) -> dict[str, Any]:
    tokens: dict[str, list[Any]] = {"token": [], "is_html": [], "start_byte": [], "end_byte": []}
    spans: dict[str, list[Any]] = {name: [] for name in SPAN}
    return {
        "id": f"{number}5225754983651766092",
        "document": {
            "html": "<html>" * 50,
            "title": "Trade winds",
            "tokens": tokens,
            "url": "https://example.org",
        },
        "question": {"text": f"what purpose did wind {number} serve", "tokens": ["what", "purpose"]},
        "long_answer_candidates": {**spans, "top_level": []},
        "annotations": {"id": [], "long_answer": [], "short_answers": [], "yes_no_answer": []},
    }


def trivia(question: str, value: str, aliases: list[str]) -> dict[str, Any]:
    empty = {
        "normalized_aliases": [],
        "matched_wiki_entity_name": "",
        "normalized_matched_wiki_entity_name": "",
        "normalized_value": "",
    }
    return {
        "question": question,
        "question_id": "tc_33",
        "question_source": "https://example.org",
        "entity_pages": {name: [] for name in ("doc_source", "filename", "title", "wiki_context")},
        "search_results": {
            name: [] for name in ("description", "filename", "title", "url", "search_context", "rank")
        },
        "answer": {"value": value, "aliases": aliases, "type": "", **empty},
    }


def publish(
    root: Path, name: str, subset: str, split: str, features: Features, rows: list[dict[str, Any]]
) -> None:
    """A directory laid out as a data set of the hub, with several splits under one named subset."""
    folder = root / name
    files = "".join(f"  - split: {one}\n    path: {subset}/{one}-*\n" for one in (split, "other"))
    (folder / subset).mkdir(parents=True)
    (folder / "README.md").write_text(
        f"---\nconfigs:\n- config_name: {subset}\n  data_files:\n{files}---\n", encoding="utf-8"
    )
    for one in (split, "other"):
        Dataset.from_list(rows, features=features).to_parquet(
            folder / subset / f"{one}-00000-of-00001.parquet"
        )


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    publish(
        root,
        "google-research-datasets/natural_questions",
        "dev",
        "validation",
        NATURAL_QUESTIONS,
        list(map(natural_question, range(9))),
    )
    hidden, known = (
        trivia("Who?", "<unk>", []),
        trivia("Which county?", "Kent", ["Kent", "County of Kent", "<unk>"]),
    )
    publish(root, "mandarjoshi/trivia_qa", "rc", "test", TRIVIA_QA, [hidden, known, hidden])
    sums = {
        "question": "What is 1 + 1?",
        "subject": "elementary_mathematics",
        "choices": ["1", "2", "3", "4"],
        "answer": 1,
    }
    publish(root, "cais/mmlu", "all", "test", MMLU, [sums, {**sums, "answer": -1}])
    fortune = {
        "type": "Adversarial",
        "category": "Misconceptions",
        "question": "Where?",
        "best_answer": "Unclear",
        "source": "w",
    }
    publish(
        root,
        "truthfulqa/truthful_qa",
        "generation",
        "validation",
        TRUTHFUL_QA,
        [{**fortune, "correct_answers": ["Japan"], "incorrect_answers": ["China"]}],
    )
    simple = root / "basicv8vc/SimpleQA"
    simple.mkdir(parents=True)
    (simple / "simple_qa_test_set.csv").write_text(
        "metadata,problem,answer\n{'topic': 'Art'},Who painted it?,Frida Kahlo\n", encoding="utf-8"
    )
    return root


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither the user's cache nor the network takes part."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def load(root: Path, source: str, **options: Any) -> QuestionSet:
    return loaded(source, lambda name, subset, split: load_hub(str(root / name), subset, split), **options)


def loaded(source: str, hub: Callable[..., Any], **options: Any) -> QuestionSet:
    """The questions of a source when ``hub`` loads its data set."""
    with mock.patch("selfreflect.sources.questions.load_hub", hub):
        return load_questions(source, **options)


def test_natural_questions(published):
    got = load(published, "natural_questions")
    assert [question.text for question in got.questions] == [
        f"what purpose did wind {number} serve" for number in range(9)
    ]
    assert got.questions[3].id == "35225754983651766092"
    assert (got.dataset, got.subset, got.split) == (
        "google-research-datasets/natural_questions",
        "dev",
        "validation",
    )
    assert (got.total, got.question_column, got.sha256) == (9, "question.text", "")


def test_trivia_qa(published):
    hidden, known, repeated = load(published, "trivia_qa").questions
    assert known.gold == ("Kent", "County of Kent")
    assert (hidden.text, hidden.gold) == ("Who?", ())
    assert repeated.id == f"{hidden.id}-2"


def test_every_alias_is_tried_above_and_has_its_full_name(published):
    assert {entry.name for entry in HUB_SETS.values()} == {
        str(path.relative_to(published)) for path in published.glob("*/*")
    }
    for alias, entry in HUB_SETS.items():
        assert find_hub_set(alias) is find_hub_set(entry.name) is find_hub_set(f"hf:{entry.name}") is entry


def test_split_subset_and_column_can_be_chosen(published):
    assert load(published, "cais/mmlu", split="other").split == "other"
    plain = load(published, "mmlu", question_column="question")
    assert (plain.questions[0].text, plain.questions[0].gold) == ("What is 1 + 1?", ("2",))
    with pytest.raises(DataError, match="subset 'anatomy'"):
        load(published, "mmlu", subset="anatomy")


def test_columns_of_an_unknown_set_are_guessed_and_odd_extras_ignored(tmp_path):
    rows = [{"id": 7, "prompt": "Why?", "answers": {"text": ["a"], "answer_start": [3]}, "category": 2}]
    Dataset.from_list(rows).to_parquet(tmp_path / "set" / "train.parquet")
    (question,) = load_questions(f"hf:{tmp_path / 'set'}").questions
    assert (question.id, question.text, question.gold, question.kind) == ("7", "Why?", ("a",), "")


def test_unknown_column_is_named_with_the_nearest(published):
    with pytest.raises(
        DataError,
        match=r"no column 'qestion'\. Did you mean 'question'\? Its columns are 'question', 'subject'",
    ):
        load(published, "mmlu", question_column="qestion")


def test_rows_with_pictures_are_left_out_whatever_holds_them(tmp_path):
    picture = {"bytes": b"no picture that could be decoded", "path": None}
    features = Features(
        {"question": TEXT, "image": TEXT, "images": List(datasets.Image()), "picture": datasets.Image()}
    )
    rows = [
        {"question": "What is seen?", "image": "data:image/png;base64,AAAA", "images": [], "picture": None},
        {"question": "What is drawn?", "image": "", "images": [picture], "picture": None},
        {"question": "What is painted?", "image": None, "images": None, "picture": picture},
        {"question": "What is said?", "image": "", "images": [], "picture": None},
    ]
    Dataset.from_list(rows, features=features).to_parquet(tmp_path / "test.parquet")
    found = load_questions(f"hf:{tmp_path}", split="test")
    assert [question.text for question in found.questions] == ["What is said?"]
    assert found.with_images == 3


@pytest.mark.parametrize("source", ["hf:nobody/nothing", "cais/mmlu"])
@pytest.mark.parametrize("is_offline", [True, False])
def test_unreachable_hub_says_at_once_what_to_do(source, is_offline, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", "http://127.0.0.1:9")
    for module in (huggingface_hub.constants, datasets.config):
        monkeypatch.setattr(module, "HF_HUB_OFFLINE", is_offline)
    started = time.monotonic()
    with pytest.raises(DataError, match=r"could not be loaded: the hub cannot be reached.* as hf:PATH, or a"):
        load_questions(source, split="test")
    assert time.monotonic() - started < 10, "nothing is tried again and again"
    assert datasets.config.HF_HUB_OFFLINE is huggingface_hub.constants.HF_HUB_OFFLINE is is_offline


def test_without_datasets_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"\.\[datasets\]"):
        load_questions("mmlu")


def test_contexts_of_a_set_that_nobody_can_edit():
    rows = {"question": ["Why?"], "context": ["Anna: red."], "page": [{"text": "Tom.", "links": ["x"]}]}
    dataset = Dataset.from_dict(rows)
    assert loaded("hf:any/set", lambda *_: dataset).questions[0].context == "Anna: red."
    inner = loaded("hf:any/set", lambda *_: dataset, context_column="page.text")
    assert inner.questions[0].context == "Tom."
    parts = Dataset.from_dict({"question": ["Why?"], "context": [["Anna: red.", "Tom."]]})
    assert loaded("hf:any/set", lambda *_: parts).questions[0].context == ""
    passages = loaded("hf:any/set", lambda *_: dataset, context_column="page.links")
    assert passages.questions[0].context == "x"


def test_revision_is_the_commit_in_the_addresses():
    dataset = Dataset.from_list([{"question": "Why?"}])
    assert revision_of(dataset) == ""
    commit = "c30699e8356da336a370243923dbaf21066bb9fe"
    dataset.info.download_checksums = {
        f"hf://datasets/cais/mmlu@{commit}/all/{part}.parquet": {} for part in "ab"
    }
    assert loaded("hf:any/set", lambda *_: dataset).revision == commit
