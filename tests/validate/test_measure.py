"""What a study's folder keeps, and what it leaves alone."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from selfreflect.errors import StoreError
from selfreflect.validate.study import Finding, write


def finding(*tables: str) -> Finding:
    finding = Finding("ranked", alike=1, fewest_pairs=1)
    for key in tables:
        finding.add(key, {"n": 1})
    finding.says.append("It does.")
    return finding


def test_an_earlier_finding_is_replaced_and_files_of_the_user_stay(tmp_path: Path) -> None:
    folder = write(finding("ranking", "pairs"), {}, tmp_path)
    names = {"finding.json", "finding.md", "metrics-by-win-rate.csv", "how-often-the-better-summary-wins.csv"}
    assert {path.name for path in folder.iterdir()} == names
    (folder / "ratings.csv").write_text("mine")
    write(finding("ranking"), {}, tmp_path)
    kept = {"finding.json", "finding.md", "metrics-by-win-rate.csv", "ratings.csv"}
    assert {path.name for path in folder.iterdir()} == kept
    for text in ("[" * 100_000, '{"tables": [3]}', '{"tables": [{"title": 3}]}', ""):
        (folder / "finding.json").write_text(text)
        write(finding("ranking"), {"seed": 1}, tmp_path)
        assert json.loads((folder / "finding.json").read_text())["made_with"] == {"seed": 1}


def test_a_full_disk_costs_no_earlier_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = write(finding("ranking"), {}, tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr("selfreflect.validate.study.write_files", fail)
    with pytest.raises(StoreError, match="No space left"):
        write(finding("pairs"), {}, tmp_path)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    elsewhere, out = tmp_path / "elsewhere", tmp_path / "out"
    elsewhere.mkdir()
    out.mkdir()
    (elsewhere / "mine.csv").write_text("mine")
    (out / "ranked").symlink_to(elsewhere)
    with pytest.raises(StoreError, match="is a link"):
        write(finding("ranking"), {}, out)
    (out / "ranked").unlink()
    table = write(finding("ranking"), {}, out) / "metrics-by-win-rate.csv"
    table.unlink()
    table.symlink_to(elsewhere / "mine.csv")
    write(finding("ranking"), {}, out)
    assert (elsewhere / "mine.csv").read_text() == "mine"
