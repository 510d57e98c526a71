"""What a kill leaves of a training."""

from __future__ import annotations

from pathlib import Path

from selfreflect.sayself.workspace import Adapter


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
    assert Adapter(tmp_path / "full-0", "full").prepare_resume()
    assert first.exists()
    assert not torn.exists()


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
