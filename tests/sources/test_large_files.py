"""Files that are read in parts: the same questions as of rows in memory, in little memory."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from command import run
from hypothesis import given, settings
from hypothesis import strategies as st

from selfreflect.errors import DataError
from selfreflect.sources.items import Item, ItemFile, read_item_file, to_plain
from selfreflect.uncertainty.reading import read_answered_questions

LABEL = st.sampled_from(["C", "I", "", None, 1, True])
ROW = st.fixed_dictionaries(
    {"question": st.sampled_from(["Oz?", "Nod?", "Uz?"]), "answer": st.sampled_from(["a", "b", "", None])},
    optional={
        "correct": LABEL,
        "topic": st.sampled_from(["x", "y", 1, True]),
        "id": st.sampled_from([1, "1", "z"]),
        "grades": st.sampled_from([{"g": "C"}, {"g": ["I"]}]),
        "logprobs": st.sampled_from([[-0.1], [[-0.1]]]),
        "summary": st.sampled_from(["S", "T", "7"]),
        "answers": st.just(["c", None]),
    },
)


def understood(path: Path) -> Any:
    """All that is made of a file, or why nothing is; without the places of rows."""
    try:
        items = read_item_file(path, allow_few=True)
        questions = read_answered_questions(path)
    except DataError as error:
        return "DataError", error.code
    found = [to_plain(item) for item in items.items]
    notes = [note.partition("'/")[0] for note in (*items.notes, *questions.notes)]
    return found, items.counts, items.columns, notes, questions.questions


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=6))
def test_rows_that_are_read_anew_are_understood_as_those_in_memory(
    rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("same")
    (folder / "f.json").write_text(json.dumps(rows), encoding="utf-8")
    (folder / "f.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert understood(folder / "f.jsonl") == understood(folder / "f.json")


def table(path: Path, answers: int, *, are_scattered: bool = False, size: int = 2000) -> Path:
    """Write 2,000 questions with long answers."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["question", "answer", "correct"])
        for number in range(2000 * answers):
            question = number % 2000 if are_scattered else number // answers
            writer.writerow([f"Town {question}?", f"{number} " * (size // 6), "CI"[number % 3 == 0]])
    return path


@pytest.mark.parametrize("kind", ["file", "standard input", "gz", "utf-16"])
def test_a_large_file_takes_little_memory(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table(tmp_path / "f.csv", 4)
    source: str | Path = path
    if kind == "standard input":
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(path.open("rb")))
        source = "-"
    elif kind == "gz":
        source = tmp_path / "f.csv.gz"
        source.write_bytes(gzip.compress(path.read_bytes(), 1))
    elif kind == "utf-16":
        path.write_bytes(path.read_text(encoding="utf-8").encode("utf-16"))
    count = 0

    def keep(item: Item) -> None:
        nonlocal count
        count += 1

    tracemalloc.start()
    file = read_item_file(source, keep=keep)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (count, len(file.items), file.sizes) == (2000, 1, {4: 2000})
    assert peak < path.stat().st_size / 2


def plain(file: ItemFile) -> dict[str, Any]:
    return {item.question: sorted(item.answer_set.answers) for item in file.items}


def test_scattered_rows_of_a_large_file_are_joined(tmp_path: Path) -> None:
    together = read_item_file(table(tmp_path / "a.csv", 2, size=60))
    scattered = read_item_file(table(tmp_path / "b.csv", 2, are_scattered=True, size=60))
    assert list(plain(scattered)) == list(plain(together))
    assert {len(answers) for answers in plain(scattered).values()} == {2}
    grades = [verdict for item in scattered.items for verdict in item.grades["correct"]]
    assert (grades.count(True), grades.count(False)) == (2666, 1334)


def test_wrong_bytes_far_into_a_table_are_named_by_their_offset(tmp_path: Path) -> None:
    path = table(tmp_path / "f.csv", 2)
    data = path.read_bytes()
    path.write_bytes(data + b"Oz?,\xff,C\n")
    outcome = run("convert", path, "--output", tmp_path / "out.jsonl")
    assert (outcome.code, f"offset {len(data) + 4}" in outcome.said) == (2, True)
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("problem", ["half", "checksum"])
def test_a_damaged_gzip_file_is_refused(problem: str, tmp_path: Path) -> None:
    data = gzip.compress(table(tmp_path / "f.csv", 2, size=600).read_bytes(), 1)
    path = tmp_path / "f.csv.gz"
    path.write_bytes(data[: len(data) // 2] if problem == "half" else data[:-8] + bytes(8))
    assert (run("convert", path).code, "unpacked" in run("convert", path).said) == (2, True)


def test_an_error_in_the_last_row_leaves_no_output(tmp_path: Path) -> None:
    path = table(tmp_path / "f.csv", 2, size=60)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(",a,C\n")
    outcome = run("convert", path, "--output", tmp_path / "out.jsonl")
    assert (outcome.code, "line 4002" in outcome.said) == (2, True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["f.csv"]


@pytest.mark.parametrize("change", ["gone", "longer", "replaced"])
def test_a_file_that_changes_while_it_is_read_is_refused(change: str, tmp_path: Path) -> None:
    path = table(tmp_path / "f.csv", 4, size=60)
    other = table(tmp_path / "other.csv", 4, size=60)

    def keep(item: Item) -> None:
        raise AssertionError("no item is made of a changed file")

    def changed(share: float) -> None:
        if share > 0.34 and other.exists():  # the first of three passes is over
            data = path.read_bytes()
            path.unlink()
            if change == "longer":
                path.write_bytes(data + data[100:])
            elif change == "replaced":
                other.rename(path)
            other.unlink(missing_ok=True)

    with pytest.raises(DataError) as refused:
        read_item_file(path, progress=changed, keep=keep)
    assert refused.value.code == "changed"
