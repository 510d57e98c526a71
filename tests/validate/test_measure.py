"""What a study's folder keeps, and what it leaves alone."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from selfreflect.errors import StoreError
from selfreflect.validate.measure import write
from selfreflect.validate.study import Finding, TableLayout


def finding(*titles: str) -> Finding:
    finding = Finding("ranked")
    for title in titles:
        finding.add(TableLayout(title, ""), {"n": 1})
    finding.says.append("It does.")
    return finding


def test_an_earlier_finding_is_replaced_and_files_of_the_user_stay(tmp_path: Path) -> None:
    folder = write(finding("First", "Second"), {}, tmp_path)
    names = {"finding.json", "finding.md", "first.csv", "second.csv"}
    assert {path.name for path in folder.iterdir()} == names
    kept = json.loads((folder / "finding.json").read_text())  # earlier versions drew plots
    (folder / "finding.json").write_text(json.dumps(kept | {"plots": [{"name": "choice-tv_t1"}]}))
    (folder / "choice-tv-t1.svg").write_text("<svg/>")
    for name in ("ratings.csv", "drawing.svg"):
        (folder / name).write_text("mine")
    write(finding("First"), {}, tmp_path)
    assert {path.name for path in folder.iterdir()} == names - {"second.csv"} | {"ratings.csv", "drawing.svg"}


def test_a_damaged_finding_is_replaced(tmp_path: Path) -> None:
    for text in (
        "[" * 100_000,
        '{"tables": [3], "plots": []}',
        '{"tables": [{"title": 3}], "plots": []}',
        "",
    ):
        folder = write(finding("First"), {}, tmp_path)
        (folder / "finding.json").write_text(text)
        assert write(finding("First"), {"seed": 1}, tmp_path)
        assert '"seed": 1' in (folder / "finding.json").read_text()


def test_a_full_disk_costs_no_earlier_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = write(finding("First"), {}, tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr("selfreflect.validate.measure.write_files", fail)
    with pytest.raises(StoreError, match="No space left"):
        write(finding("Second"), {}, tmp_path)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    elsewhere, out = tmp_path / "elsewhere", tmp_path / "out"
    elsewhere.mkdir()
    out.mkdir()
    (elsewhere / "first.csv").write_text("mine")
    (out / "ranked").symlink_to(elsewhere)
    with pytest.raises(StoreError, match="is a link"):
        write(finding("First"), {}, out)
    assert (elsewhere / "first.csv").read_text() == "mine"
    (out / "ranked").unlink()
    write(finding("First"), {}, out)
    (out / "ranked" / "first.csv").unlink()
    (out / "ranked" / "first.csv").symlink_to(elsewhere / "first.csv")
    write(finding("First"), {}, out)
    assert (elsewhere / "first.csv").read_text() == "mine"
