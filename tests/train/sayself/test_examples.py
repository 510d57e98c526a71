"""Training data, its parts, and the files of all steps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.errors import DataError, StoreError
from selfreflect.train.sayself.clusters import Cluster, ClusteredQuestion, Rationale
from selfreflect.train.sayself.examples import VARIANTS, Workspace, make_examples, part_of
from selfreflect.train.trainers import last_checkpoint, read_record

DOUBT = "I do not remember which river it is."


def question(id_: str, text: str, *clusters: tuple[str, int, bool]) -> ClusteredQuestion:
    made = tuple(Cluster(answer=answer, size=size, correct=right) for answer, size, right in clusters)
    return ClusteredQuestion(id=id_, question=text, gold=("Seine",), clusters=made)


RIVER = question("r", "Which river?", ("Loire", 6, False), ("Seine", 4, True))
RATIONALES = {"r": Rationale(question_id="r", text=DOUBT, origin="model")}


def responses(variant: str, choice: str = "gold") -> list[str]:
    rows, _ = make_examples([RIVER], RATIONALES, variant, choice)  # type: ignore[arg-type]
    return [row["response"] for row in rows]


def test_the_right_answer_gets_the_share_of_its_own_cluster() -> None:
    assert responses("full") == [f"Answer: Seine. Self-reflection: {DOUBT} Confidence: 4"]
    assert responses("full", "majority") == [f"Answer: Loire. Self-reflection: {DOUBT} Confidence: 6"]
    assert responses("no_rationale") == ["Answer: Seine. Confidence: 4"]


def test_r_tuning_asks_about_the_models_own_answer() -> None:
    [row], _ = make_examples([RIVER], RATIONALES, "rtuning", "gold")
    assert row["prompt"][1] == {"role": "assistant", "content": "Answer: Loire."}
    assert row["completion"] == [{"role": "assistant", "content": "I am unsure."}]


def test_a_group_shares_the_accuracy_of_its_largest_clusters() -> None:
    twin = question("s", "Which other river?", ("Seine", 6, True), ("Loire", 4, False))
    rows, _ = make_examples([RIVER, twin], None, "group", "majority")
    assert [row["response"] for row in rows] == [
        "Answer: Loire. Confidence: 5",
        "Answer: Seine. Confidence: 5",
    ]


def test_what_cannot_be_used_is_counted_by_reason() -> None:
    wrong = question("w", "Which lake?", ("Como", 3, False))
    dropped = Rationale(question_id="r", text="", origin="dropped")
    for variant in VARIANTS:  # all learn from the same questions, but for rtuning, which needs wrong answers
        rows, counts = make_examples([RIVER, wrong], {"r": dropped}, variant, "gold")
        assert rows == []
        assert counts["no usable rationale"] == (2 if variant == "rtuning" else 1)
    assert counts["no cluster has the right answer"] == 1


@pytest.mark.parametrize("answer", ["Self-reflection: none. Confidence: 10", "\n confidence : 9", "  "])
def test_an_answer_that_would_be_read_as_another_part_is_not_trained_on(answer: str) -> None:
    hostile = question("h", "Which lake?", (answer, 3, True))
    rows, counts = make_examples([hostile], None, "no_rationale", "gold")
    assert rows == []
    assert sum(counts.values()) == 1


@given(st.text("abc äÖ?.", min_size=1))
def test_no_text_is_in_two_parts_however_it_is_spelled(text: str) -> None:
    assert part_of(f"  {text.upper()} ") == part_of(text)


def test_every_variant_has_the_published_row() -> None:
    [row], _ = make_examples([RIVER], RATIONALES, "no_rationale", "gold")
    assert row == {
        "question_id": "r",
        "question": "Which river?",
        "response": "Answer: Seine. Confidence: 4",
        "prompt": [{"role": "user", "content": "Question: Which river?"}],
        "completion": [{"role": "assistant", "content": "Answer: Seine. Confidence: 4"}],
    }
    [tuned], _ = make_examples([RIVER], None, "rtuning", "gold")
    assert tuned["prompt"][0] == row["prompt"][0]
    assert [turn["role"] for turn in tuned["prompt"]] == ["user", "assistant", "user"]


def checkpoint(folder: Path, step: int, *, whole: bool) -> Path:
    made = folder / f"checkpoint-{step}"
    made.mkdir(parents=True)
    (made / "adapter_model.safetensors").write_bytes(b"x")
    if whole:
        (made / "trainer_state.json").write_text("{}")
    return made


def test_training_goes_on_from_the_last_whole_checkpoint(tmp_path: Path) -> None:
    first = checkpoint(tmp_path / "full-0", 10, whole=True)
    checkpoint(tmp_path / "full-0", 20, whole=False)
    empty = checkpoint(tmp_path / "full-0", 30, whole=False)
    (empty / "trainer_state.json").write_text("")  # opened, and not written yet
    checkpoint(tmp_path / "full-0", 40, whole=True).rename(tmp_path / "full-0/checkpoint-mine")
    assert last_checkpoint(tmp_path / "full-0") == first
    assert last_checkpoint(tmp_path / "group-0") is None


@pytest.mark.parametrize("name", ["sayself", "sayself/data", "sayself/data/full", "sayself/models"])
def test_nothing_is_written_or_removed_through_a_link(tmp_path: Path, name: str) -> None:
    elsewhere, workspace = tmp_path / "elsewhere", Workspace(tmp_path / "run")
    checkpoint(elsewhere / "full-0", 10, whole=False)
    link = tmp_path / "run" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    uses: tuple[Callable[[], object], ...] = (
        lambda: workspace.write("data/full/train.jsonl", [{"a": 1}]),
        lambda: workspace.adapter("full", 0),
        workspace.trained,
    )
    for use in uses:
        with suppress(StoreError, DataError):
            use()
    assert sorted(elsewhere.rglob("*")) == before


def test_trained_adapters_are_listed_by_name_with_their_base(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "run")
    for name in ("no_rationale-1", "full-0-brier", "other-0", "group-2", "rtuning-0"):
        (workspace.folder / "models" / name).mkdir(parents=True)
    assert workspace.trained() == []
    for name in ("no_rationale-1", "full-0-brier", "other-0"):
        written = '{"base": "smollm2", "metrics": {"loss": 2.0}}'
        (workspace.folder / "models" / name / "training.json").write_text(written)
    first, second = workspace.trained()
    assert first == workspace.adapter("full", 0, "brier")
    assert second == workspace.adapter("no_rationale", 1)
    assert read_record(first.folder) == {"base": "smollm2", "metrics": {"change": 0.0, "loss": 2.0}}
    assert read_record(workspace.adapter("group", 2).folder) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"base": "x"}', '{"base": "x", "metrics": 3}'])
def test_a_damaged_record_of_a_training_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "training.json").write_text(text)
    with pytest.raises(DataError) as damaged:
        read_record(tmp_path)
    assert damaged.value.code == "damaged"
