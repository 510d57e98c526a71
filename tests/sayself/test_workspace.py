"""What a kill leaves of a training."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from selfreflect.errors import DataError, StoreError
from selfreflect.sayself.workspace import Adapter, Workspace
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


def test_adapters_are_set_aside_whole(tmp_path: Path) -> None:
    for _ in range(2):
        adapter = Adapter(tmp_path / "full-0", "full")
        checkpoint(adapter.folder, 1, whole=True)
        adapter.set_aside()
        assert not adapter.folder.exists()
    assert len(list(tmp_path.glob("backup-*/full-0/checkpoint-1/trainer_state.json"))) == 2


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


def test_a_workspace_in_a_run_directory_that_is_a_link_is_used(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "real")
    assert Workspace(tmp_path / "run").write("clusters.jsonl", []).exists()
