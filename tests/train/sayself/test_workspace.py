"""What each step leaves for the next one, and what a kill leaves of a training."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from selfreflect.errors import DataError, StoreError
from selfreflect.train.sayself.clusters import Cluster, ClusteredQuestion
from selfreflect.train.sayself.examples import Adapter, TrainingExample, Turn, Workspace
from selfreflect.train.trainers import whole_checkpoints


def checkpoint(folder: Path, step: int, *, whole: bool) -> Path:
    made = folder / f"checkpoint-{step}"
    made.mkdir(parents=True)
    (made / "adapter_model.safetensors").write_bytes(b"x")
    if whole:
        (made / "trainer_state.json").write_text("{}")
    return made


def test_training_goes_on_from_the_last_whole_checkpoint(tmp_path: Path) -> None:
    first = checkpoint(tmp_path / "full-0", 10, whole=True)
    torn = checkpoint(tmp_path / "full-0", 20, whole=False)
    empty = checkpoint(tmp_path / "full-0", 30, whole=False)
    (empty / "trainer_state.json").write_text("")  # opened, and not written yet
    copy = first.rename(tmp_path / "full-0/checkpoint-mine")
    checkpoint(tmp_path / "full-0", 10, whole=True)
    assert Adapter(tmp_path / "full-0", "full").prepare_resume()
    assert whole_checkpoints(tmp_path / "full-0") == [first]
    assert copy.exists()
    assert not torn.exists()
    assert not empty.exists()


def test_without_a_whole_checkpoint_it_begins_anew(tmp_path: Path) -> None:
    adapter = Adapter(tmp_path / "full-0", "full")
    assert not adapter.prepare_resume()
    checkpoint(adapter.folder, 10, whole=False)
    (adapter.folder / "README.md").write_text("x")
    assert not adapter.prepare_resume()
    assert not adapter.folder.exists()


def test_a_training_that_ended_is_never_removed(tmp_path: Path) -> None:
    adapter = Adapter(tmp_path / "full-0", "full")
    adapter.folder.mkdir()
    (adapter.folder / "training.json").write_text('{"base": "smollm2", "metrics": {}}')
    assert not adapter.prepare_resume()
    assert adapter.folder.exists()


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
        workspace.clusters,
    )
    for use in uses:
        with suppress(StoreError, DataError):
            use()
    assert sorted(elsewhere.rglob("*")) == before


def clustered(number: int, text: str = "") -> ClusteredQuestion:
    clusters = (Cluster(answer="Seine", size=2),)
    return ClusteredQuestion(id=f"q{number}", question=text or f"River {number}?", clusters=clusters)


def example(number: int, text: str) -> TrainingExample:
    turn = Turn(role="user", content=text)
    return TrainingExample(
        question_id=f"q{number}", question=text, response="x", prompt=(turn,), completion=(turn,)
    )


@pytest.fixture
def prepared(tmp_path: Path) -> Workspace:
    """Three clustered questions: two to train on, one to test."""
    workspace = Workspace(tmp_path / "run")
    workspace.write("clusters.jsonl", [clustered(number) for number in range(3)])
    parts = {"q2": "test", "q1": "train", "q0": "train", "gone": "dev"}
    workspace.write("splits.jsonl", [{"question_id": id_, "part": part} for id_, part in parts.items()])
    return workspace


def test_trained_adapters_are_listed_by_name_with_their_base(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "run")
    for name in ("plain-1", "full-0-brier", "other-0", "group-2", "rtuning-0"):
        (workspace.folder / "models" / name).mkdir(parents=True)
    assert workspace.trained() == []
    for name in ("plain-1", "full-0-brier", "other-0"):
        written = '{"base": "smollm2", "metrics": {"loss": 2.0}}'
        (workspace.folder / "models" / name / "training.json").write_text(written)
    first, second = workspace.trained()
    assert first == workspace.adapter("full", 0, "brier")
    assert second == workspace.adapter("plain", 1)
    assert first.base == "smollm2"
    assert first.record == {"base": "smollm2", "metrics": {"change": 0.0, "loss": 2.0}}
    assert workspace.adapter("group", 2).base == ""


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"base": "x"}', '{"base": "x", "metrics": 3}'])
def test_a_damaged_record_of_a_training_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "training.json").write_text(text)
    with pytest.raises(DataError, match=r"training\.json cannot be read: .* to train anew"):
        _ = Adapter(tmp_path, "full").record
