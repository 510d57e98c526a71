"""Commands that write files for a user leave the old files or the new ones when they are killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import run, written
from moments import Files, files_in, moments, place

from selfreflect.prompts import load_prompts
from selfreflect.records import AnswerSet, Question, Summary
from selfreflect.run.records import GOLD, run_items, run_questions, run_records
from selfreflect.store.run import Run
from selfreflect.train.rows import RowOptions, grpo_rows

ITEMS = [
    {
        "id": f"q{number}",
        "question": f"Which city is number {number}?",
        "answers": ["Paris"] * (1 + number % 4) + ["Lyon"] * (number % 3) + ["Nice"],
        "gold": "Paris" if number % 3 else "Lyon",
        "confidence": number / 60,
        "correct": number % 3 > 0,
    }
    for number in range(60)
]
WRITERS = {
    "published": "export RUN --output OUT/files",
    "items": "export RUN --format items --output OUT/files",
    "datasets": "export RUN --format datasets --output OUT/files",
    "training": "dataset grpo RUN --output OUT/files",
    "calibrate": "calibrate FILE --estimator stated --method platt --save OUT/saved.json",
    "convert": "convert FILE --output OUT/items.jsonl",
    "report": "report RUN --output OUT/table.md",
    "uncertainty": "uncertainty FILE --estimators modal_share --output OUT/page.html",
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    written(folder / "FILE", ITEMS).rename(folder / "FILE.json")
    with Run.open(folder / "RUN", {}) as stored:
        for number in range(3):
            stored.append(Question(id=f"q{number}", text="Why?" * (number + 1)))
            halves = {"masked_out": ("a", "b"), "conditioning": ("c",)}
            stored.append(AnswerSet(question_id=f"q{number}", model="m", **halves))
            stored.append(Summary(question_id=f"q{number}", name="mine", text="s"))
    return folder


def execute(writer: str, sources: Path, out: Path, *more: str) -> int:
    out.mkdir(exist_ok=True)
    names = {"RUN": str(sources / "RUN"), "FILE": str(sources / "FILE.json")}
    words = [names.get(word, word.replace("OUT", str(out))) for word in WRITERS[writer].split()]
    return run(*words, *more).code


def visible(files: Files) -> Files:
    return {name: data for name, data in files.items() if ".partial" not in name}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_kill_leaves_all_or_nothing(sources: Path, tmp_path: Path, writer: str) -> None:
    out = tmp_path / "out"
    with moments(out) as states:
        assert execute(writer, sources, out) == 0
    after = files_in(out)
    assert len(states) >= 3  # nothing, a file under another name, all
    assert [*map(visible, states)].count(after) >= 1
    for state in states:
        assert visible(state) in ({}, after), f"{writer} left {sorted(visible(state))}"
    assert visible(after) == after != {}  # no other file stays


@pytest.mark.parametrize("writer", ["published", "datasets", "training"])
def test_a_kill_in_a_folder_with_other_files_leaves_whole_files(
    sources: Path, tmp_path: Path, writer: str
) -> None:
    out = place({"files/notes.txt": b"mine"}, tmp_path / "out")
    with moments(out) as states:
        assert execute(writer, sources, out) == 0
    after = files_in(out)
    for state in states:
        assert visible(state).items() <= after.items(), f"{writer} left a part of a file"
    begun = [state for state in states if 1 < len(visible(state)) < len(after)]
    again = place(begun[0], tmp_path / "again")
    assert execute(writer, sources, again) == 2  # they may be older ones that somebody needs
    assert execute(writer, sources, again, "--overwrite") == 0
    assert visible(files_in(again)) == after


def test_files_elsewhere_are_safe_from_links_in_a_folder(sources: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert execute("datasets", sources, out) == 0
    names = [name.removeprefix("files/data/") for name in files_in(out)]
    elsewhere = place(dict.fromkeys(names, b"precious"), tmp_path / "elsewhere")
    before = files_in(elsewhere)
    hostile = tmp_path / "hostile"
    (hostile / "files").mkdir(parents=True)
    (hostile / "files" / "data").symlink_to(elsewhere)
    assert execute("datasets", sources, hostile, "--overwrite") == 2
    assert files_in(elsewhere) == before


@pytest.mark.parametrize("writer", ["published", "calibrate", "convert"])
def test_a_kill_never_damages_a_file_that_is_replaced(sources: Path, tmp_path: Path, writer: str) -> None:
    out = tmp_path / "out"
    assert execute(writer, sources, out) == 0
    after = files_in(out)
    old = dict.fromkeys(after, b"an older one")
    for name, data in old.items():
        (out / name).write_bytes(data)
        (out / name).chmod(0o640)
    with moments(out) as states:
        assert execute(writer, sources, out, *(["--overwrite"] if writer != "calibrate" else [])) == 0
    assert states[-1] == after
    assert any(visible(state) != state for state in states)  # written beside the old one
    for state in states:
        for name, data in visible(state).items():
            assert data in (old[name], after[name]), f"{writer} left a part of {name}"
    if writer != "published":
        assert {(out / name).stat().st_mode & 0o777 for name in after} == {0o640}


def test_what_is_read_does_not_depend_on_the_order_in_which_answers_were_drawn(tmp_path: Path) -> None:
    """A killed run ends with its answers in another order, but trains and tests the same."""
    results = []
    for step in (1, -1):
        with Run.open(tmp_path / str(step), {}) as stored:
            questions = [Question(id=f"q{number}", text="Why?" * number) for number in range(1, 9)]
            stored.append_all(questions)
            for question in questions[::step]:
                halves = {"masked_out": ("a", question.id), "conditioning": (question.id,)}
                stored.append(AnswerSet(question_id=question.id, model="m", **halves))
        records = run_records(stored)
        rows = grpo_rows(records, load_prompts(), RowOptions()).rows
        results.append((run_items(stored), run_questions(records, records, GOLD), rows))
    assert results[0] == results[1]
    assert [len(result) for result in results[0]] == [8, 8, 8]


def test_a_link_and_a_pipe_stay_what_they_are(sources: Path, tmp_path: Path) -> None:
    (tmp_path / "real.jsonl").write_bytes(b"")
    (tmp_path / "link.jsonl").symlink_to("real.jsonl")
    outcome = run("convert", sources / "FILE.json", "--output", tmp_path / "link.jsonl", "--overwrite")
    assert outcome.code == 0, outcome.stderr
    assert (tmp_path / "link.jsonl").is_symlink()
    assert (tmp_path / "real.jsonl").read_bytes().count(b"\n") == len(ITEMS)
