"""A run directory that is used again: what its question file has become, which strategies it goes on with,
and how it is started over without losing anything."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny
from command import Outcome, run, small, written

from selfreflect.errors import StoreError
from selfreflect.records import AnswerSet, Question
from selfreflect.run.resume import _check_revision, settings_of
from selfreflect.settings import load_config
from selfreflect.sources.questions import QuestionSet
from selfreflect.store.run import Run

TEXTS = ["What first?", "Who is it?", "Which pot?"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("model"), "llama", max_position_embeddings=400)


@pytest.fixture(scope="module")
def finished(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with one strategy, to be copied."""
    folder = tmp_path_factory.mktemp("finished")
    questions = written(folder / "q.txt", "\n".join(TEXTS[:2]))
    assert run(*small(model, folder / "r", questions, strategies="basic")).code == 0
    return folder / "r"


def lines(*texts: str) -> str:
    return "\n".join(texts)


def stored(file: Path, out: Path, *more: object) -> Outcome:
    """Store the questions of a file, which takes no model."""
    return run("questions", "--questions", file, "--out", out, *more)


def texts(out: Path) -> list[str]:
    return [question.text for question in Run.load(out).questions.values()]


def bytes_of(out: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in out.iterdir() if file.is_file() and file.name != ".lock"}


# --- a question file that has changed


@pytest.mark.parametrize(
    ("now", "parts"),
    [
        ([*TEXTS, "Why not?"], ["1 new, 0 gone, 0 edited", "new: 'Why not?'"]),
        (TEXTS[:2], ["0 new, 1 gone, 0 edited", "gone: 'Which pot?'"]),
        (
            [TEXTS[0], "Who was it?", "A quite different matter"],
            ["2 new, 2 gone, 0 edited", "gone: 'Who is it?'", "gone: 'Which pot?'", "new: 'Who was it?'"],
        ),
    ],
)
def test_a_changed_file_is_an_error_that_says_what_changed(
    now: list[str], parts: list[str], tmp_path: Path
) -> None:
    file = written(tmp_path / "q.txt", lines(*TEXTS))
    assert stored(file, tmp_path / "r").code == 0
    before = bytes_of(tmp_path / "r")
    written(file, lines(*now))
    refused = stored(file, tmp_path / "r")
    assert refused.code == 2
    for part in (*parts, str(file), "--add-questions", "Leave out --questions", "another --out"):
        assert part in refused.stderr
    assert bytes_of(tmp_path / "r") == before


def test_an_edited_question_with_an_id_of_its_own_is_found_and_not_added(tmp_path: Path) -> None:
    file = written(tmp_path / "q.csv", "id,question\n1,What first?\n2,Who is it?\n")
    assert stored(file, tmp_path / "r").code == 0
    before = bytes_of(tmp_path / "r")
    written(file, "id,question\n1,Something else entirely\n2,Who is it?\n")
    refused = stored(file, tmp_path / "r")
    assert "0 new, 0 gone, 1 edited" in refused.said
    added = stored(file, tmp_path / "r", "--add-questions")
    assert added.code == 2
    assert "it has the id '1' of 'What first?'" in added.said
    assert bytes_of(tmp_path / "r") == before


def test_a_file_in_another_place_or_with_other_columns_still_resumes(tmp_path: Path) -> None:
    file = written(tmp_path / "q.csv", "question\nWhat first?\nWho is it?\n")
    assert stored(file, tmp_path / "r").code == 0
    before = bytes_of(tmp_path / "r")
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    assert stored(file.rename(moved / "other.csv"), tmp_path / "r").code == 0
    more = written(tmp_path / "more.csv", "question,topic\nWhat first?,a\nWho is it?,b\n")
    assert stored(more, tmp_path / "r").code == 0
    assert bytes_of(tmp_path / "r") == before
    missing = run("questions", "--questions", "bundled", "--out", tmp_path / "r")
    assert "questions.source: " in missing.said


def test_changed_gold_answers_and_columns_are_named_and_taken_over_without_drawing_again(
    tmp_path: Path,
) -> None:
    file, out = (
        written(tmp_path / "q.csv", "question,gold,topic\nWhat first?,a,x\nWho is it?,b,x\n"),
        tmp_path / "r",
    )
    assert stored(file, out).code == 0
    with Run.open(out, {}) as opened:
        [first, second] = opened.questions
        opened.append(AnswerSet(question_id=first, masked_out=("a",), conditioning=("b",)))
    before = bytes_of(out)
    written(file, "question,gold,topic\nWhat first?,c,x\nWho is it?,b,y\n")
    kept = stored(file, out)
    assert kept.code == 0
    assert "2 questions now have different values in 'gold', 'topic'" in kept.said
    assert bytes_of(out) == before
    assert stored(file, out, "--add-questions").code == 0
    now = Run.load(out)
    assert list(now.questions) == [first, second]
    assert [one.gold for one in now.questions.values()] == [("c",), ("b",)]
    assert [one.metadata["topic"] for one in now.questions.values()] == ["x", "y"]
    assert list(now.answers) == [first]
    assert now.manifest.sources["questions"]["count"] == 2
    assert "different values" not in stored(file, out).said


def test_another_text_never_takes_the_place_of_a_question_that_is_stored(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", {}) as opened:
        opened.append(Question(id="q", text="What first?"))
        with pytest.raises(StoreError, match="belong to a different text"):
            opened.replace_questions([Question(id="q", text="What last?")])
        opened.replace_questions([Question(id="q", text="What first?", kind="fact")])
        opened.append(Question(id="p", text="Who?"))
    assert [(one.id, one.kind) for one in Run.load(tmp_path / "r").questions.values()] == [
        ("q", "fact"),
        ("p", ""),
    ]


def test_a_data_set_at_another_revision_is_refused(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", {}) as opened:
        opened.append(Question(id="q", text="What first?"))
        recorded = {"dataset": "some/set", "revision": "a" * 40, "count": 2}
        fields: Any = {"source": "hf:some/set", "total": 1, "limit": None, "seed": 0, "question_column": "q"}
        now = QuestionSet(questions=(), dataset="some/set", revision="b" * 40, **fields)
        with pytest.raises(StoreError, match=r"'some/set' has changed since .*revision 'aaaa"):
            _check_revision(opened, recorded, now)
        _check_revision(opened, {**recorded, "revision": ""}, now)


def test_new_questions_are_added_when_that_is_asked_for(tmp_path: Path) -> None:
    file, out = written(tmp_path / "q.txt", lines(*TEXTS)), tmp_path / "r"
    assert stored(file, out).code == 0
    written(file, lines(*TEXTS[1:], "Why not?", "Who else?"))
    assert stored(file, out, "--add-questions").code == 0
    assert texts(out) == [*TEXTS, "Why not?", "Who else?"]
    source = Run.load(out).manifest.sources["questions"]
    assert source["count"] == 5
    assert [earlier["count"] for earlier in source["earlier"]] == [3]
    before = bytes_of(out)
    for more in ([], ["--add-questions"]):  # nothing is new any more, and what was removed is no surprise
        assert stored(file, out, *more).code == 0
    assert bytes_of(out) == before
    written(file, lines(*TEXTS, "One more?"))
    assert "1 new, 0 gone, 0 edited" in stored(file, out).said


# --- going on


def test_a_run_goes_on_with_its_questions_and_strategies_and_adds_none(
    finished: Path, tmp_path: Path
) -> None:
    out = shutil.copytree(finished, tmp_path / "r")
    before = bytes_of(out)
    done = run("run", "--out", out)
    assert done.code == 0
    assert "to do" not in done.stderr
    assert bytes_of(out) == before
    summaries = (out / "summaries.jsonl").read_bytes().splitlines(keepends=True)
    (out / "summaries.jsonl").write_bytes(summaries[0])
    (out / "scores.jsonl").unlink()
    again = run("run", "--out", out)
    assert again.code == 0
    assert "summaries: 1 to do" in again.stderr
    assert {name for _, name in Run.load(out).summaries} == {"basic"}
    added = run("run", "--out", out, "--strategies", "greedy")
    assert "summaries: 2 to do" in added.stderr
    assert {name for _, name in Run.load(out).summaries} == {"basic", "greedy"}
    assert Run.load(out).manifest.plan == {"strategies": ["basic", "greedy"]}


@pytest.fixture
def halt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model during whose first call somebody interrupts the command."""
    written(tmp_path / "halt.py", "def generate(messages):\n    raise KeyboardInterrupt\n")
    monkeypatch.chdir(tmp_path)
    return "halt:generate"


def test_a_strategy_that_is_gone_does_not_stop_a_run_that_has_its_summaries(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = written(tmp_path / "own_strategy_of_the_user.py", "def one(task):\n    return 'A.'\n    yield\n")
    questions = written(tmp_path / "q.txt", TEXTS[0])
    out = tmp_path / "r"
    assert run(*small(model, out, questions, strategies="own_strategy_of_the_user:one")).code == 0
    code.unlink()
    monkeypatch.delitem(__import__("sys").modules, "own_strategy_of_the_user")
    assert run("run", "--out", out).code == 0


def test_an_imported_directory_gets_no_questions_and_no_strategies_unasked(
    model: Path, tmp_path: Path
) -> None:
    item = {"question": "What?", "answers": ["Radishes.", "Lettuce."], "summaries": {"mine": "Radishes."}}
    assert run("import", "--items", written(tmp_path / "i.json", [item]), "--out", tmp_path / "r").code == 0
    done = run("run", "--out", tmp_path / "r", "--judge", model, "--model", tmp_path / "none")
    assert done.code == 0
    whole = Run.load(tmp_path / "r")
    assert (len(whole.questions), list(whole.summaries)) == (1, list(whole.scores))


def test_a_new_run_wants_its_questions_named(tmp_path: Path) -> None:
    refused = run("run", "--out", tmp_path / "r")
    assert refused.code == 2
    assert "--questions FILE, or --questions bundled" in refused.said
    assert not (tmp_path / "r").exists()


# --- starting over


def test_fresh_wants_yes_and_moves_the_records_aside(finished: Path, model: Path, tmp_path: Path) -> None:
    out = shutil.copytree(finished, tmp_path / "r")
    before = bytes_of(out)
    command = small(model, out, finished.parent / "q.txt", strategies="greedy")
    nowhere = run(*small(model, out, tmp_path / "no.txt", strategies="greedy"), "--fresh", "--yes")
    assert "there is no such file" in nowhere.said
    assert bytes_of(out) == before
    refused = run(*command, "--fresh")
    assert refused.code == 2
    assert f"{out} holds 2 questions, 2 answers, 2 summaries, 2 scores" in refused.said
    assert "--yes" in refused.said
    assert bytes_of(out) == before
    again = run(*command, "--fresh", "--yes")
    assert again.code == 0
    [backup] = out.glob("backup-*")
    assert f"{backup} keeps the earlier records" in again.stderr
    assert bytes_of(backup) == before
    assert {name for _, name in Run.load(out).summaries} == {"greedy"}
    assert {name for _, name in Run.load(backup).summaries} == {"basic"}
    assert run("report", backup).code == 0
    assert run(*command, "--fresh", "--yes").code == 0
    assert len(list(out.glob("backup-*"))) == 2


@pytest.mark.parametrize(("reply", "kept"), [("n\n", True), ("\n", True), ("y\n", False)])
def test_fresh_asks_at_a_terminal(
    reply: str, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = written(tmp_path / "q.txt", lines(*TEXTS)), tmp_path / "r"
    assert stored(file, out).code == 0
    monkeypatch.setattr("selfreflect.cli.stages.can_ask", lambda: True)
    asked = run("questions", "--questions", file, "--out", out, "--fresh", stdin=reply)
    assert "holds 3 questions" in asked.said
    assert asked.code == (2 if kept else 0)
    assert bool(list(out.glob("backup-*"))) is not kept


# --- samples of strategies


def test_strategies_sample_as_the_answers_were(model: Path, tmp_path: Path) -> None:
    """At temperature 0 all answers are one text, and so is what a strategy draws."""
    settings = written(tmp_path / "s.toml", "[answers]\ntemperature = 0\nmax_new_tokens = 6\n")
    file, out = written(tmp_path / "q.txt", TEXTS[0]), tmp_path / "r"
    common = ["--model", model, "--out", out]
    answers = run("answers", "--questions", file, "--config", settings, "--num-answers", 3, *common)
    assert answers.code == 0, answers.stderr
    assert run("summarize", "--strategies", "concatenated_answers", "--num-samples", 3, *common).code == 0
    whole = Run.load(out)
    [drawn] = whole.answers.values()
    [summary] = whole.summaries.values()
    assert len({*drawn.answers}) == 1
    assert summary.text.count(drawn.answers[0]) == 3
    recorded = whole.manifest.config["summaries"]
    assert (recorded["sample_temperature"], recorded["sample_max_new_tokens"]) == (0.0, 6)
    assert "to do" not in run("summarize", "--out", out).stderr


def test_summaries_are_by_the_model_that_answered_unless_another_is_named(
    model: Path, tmp_path: Path
) -> None:
    file, out = written(tmp_path / "q.txt", TEXTS[0]), tmp_path / "r"
    drawn = run("answers", "--questions", file, "--out", out, "--model", model, "--num-answers", 2)
    assert drawn.code == 0, drawn.stderr
    assert run("summarize", "--strategies", "greedy", "--out", out).code == 0
    [summary] = Run.load(out).summaries.values()
    assert summary.model == str(model)
    config = load_config(None, {"summaries": {"model": "openai:m"}}, {"answers": {"model": "org/a"}})
    assert (config.summaries.model, config.summaries.revision) == ("openai:m", None)


def test_a_run_that_stopped_before_its_first_result_goes_on_as_it_was_asked(
    halt: str, model: Path, tmp_path: Path
) -> None:
    questions = written(tmp_path / "q.txt", lines(*TEXTS))
    out, whole = tmp_path / "stopped", tmp_path / "whole"
    assert run(*small(model, out, questions), "--model", halt).code == 130
    assert not Run.load(out).answers
    outcome = run("run", "--out", out, "--model", model, "--device", "cpu")
    assert outcome.code == 0, outcome.stderr
    assert run(*small(model, whole, questions), "--device", "cpu").code == 0
    stopped, calm = Run.load(out), Run.load(whole)
    assert stopped.manifest.config == calm.manifest.config
    assert stopped.answers == calm.answers
    assert stopped.summaries == calm.summaries


# --- a directory that anybody may have made


@pytest.mark.parametrize(
    ("section", "values", "words"),
    [
        ("plan", {"strategies": ["basic", "r.own:f"]}, "--strategies 'basic,r.own:f'"),
        ("answers", {"model": "r.own:f"}, "--model 'r.own:f'"),
        (
            "answers",
            {"model": "openai:m", "base_url": "https://example.com/v1"},
            "--base-url 'https://example.com/v1'",
        ),
    ],
)
def test_a_directory_runs_no_code_and_sends_nothing_elsewhere_of_its_own_accord(
    section: str,
    values: dict[str, object],
    words: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    out = Path("r")
    assert run(*small(model, out, written(Path("q.txt"), TEXTS[0]), strategies="basic")).code == 0
    written(out / "own.py", "raise SystemExit('ran')\ndef f(task): yield\n")
    manifest = json.loads((out / "manifest.json").read_text())
    part = manifest if section == "plan" else manifest["config"]
    part[section] |= values
    written(out / "manifest.json", json.dumps(manifest))
    for name in ("answers", "summaries", "scores"):
        (out / f"{name}.jsonl").unlink()
    refused = run("run", "--out", out)
    assert words in refused.said
    assert refused.code == 2


def test_an_older_directory_goes_on_with_the_strategies_in_its_records(
    finished: Path, tmp_path: Path
) -> None:
    out = shutil.copytree(finished, tmp_path / "r")
    manifest = json.loads((out / "manifest.json").read_text())
    del manifest["plan"]
    written(out / "manifest.json", manifest)
    done = run("run", "--out", out)
    assert (done.code, "to do" in done.stderr) == (0, False)


def test_an_older_directory_goes_on_sampling_as_it_did(finished: Path, tmp_path: Path) -> None:
    out = shutil.copytree(finished, tmp_path / "r")
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["config"]["answers"]["temperature"] = 0.5
    for key in ("sample_temperature", "sample_top_p"):
        del manifest["config"]["summaries"][key]
    written(out / "manifest.json", manifest)
    base = settings_of(out, {})
    assert load_config(None, {}, base).summaries.sample_temperature == 1.0
    assert load_config(None, {}, {"answers": base["answers"]}).summaries.sample_temperature == 0.5
    assert run("summarize", "--out", out).code == 0
