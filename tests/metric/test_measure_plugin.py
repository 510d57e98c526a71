"""A measure of another package, which nothing but its entry point and ``--measures`` names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import process, run, small, written
from installed import PLUGIN, installed, plugin_folder

from selfreflect.errors import ConfigError
from selfreflect.metric.measure import MEASURES, Measure, MeasureItem, Tools, Work, measure_named
from selfreflect.records import AnswerSet, Measurement, Question, Summary
from selfreflect.store.run import Run

ITEM = {
    "question": "What should I plant?",
    "answers": ["A radish.", "Some radish, or peas.", "Peas.", "A radish"],
    "summaries": {"good": "radish", "bad": "Oak.", "blank": ". "},
}


def test_it_measures_a_file_alone_without_loading_a_judge(tmp_path: Path) -> None:
    options = ["--items", written(tmp_path / "items.json", [ITEM]), "--judge", "nowhere/none"]
    changes = {"PYTHONPATH": str(plugin_folder())}
    done = process("score", *options, "--measures", "contained", "--json", changes=changes)
    assert done.code == 0, done.stderr
    lines = {line["summary"]: line["contained"] for line in done.json}
    parts = lines["good"]["parts"]
    assert lines["good"]["value"] == parts["answers"] / parts["of"] > 0
    assert (lines["bad"]["value"], lines["bad"]["unit"]) == (0, "%")
    assert (lines["blank"]["value"], lines["blank"]["undefined"]) == (None, "blank")
    assert lines["blank"]["why"] == "a blank summary is in every answer"


def test_it_is_in_a_run_beside_ours(tmp_path: Path) -> None:
    questions = written(tmp_path / "questions.jsonl", json.dumps({"question": ITEM["question"]}))
    out = tmp_path / "run"
    options = small(Path("coin:fair"), out, questions, strategies="greedy")
    with installed(plugin_folder()):
        planned = run(*options, "--measures", "contained", "--dry-run", "--json")
        assert planned.json[0]["dry_run"][2]["judge_tokens"]["most"] == 0
        first = run(*options)
        assert first.code == 0, first.stderr
        scored = (out / "scores.jsonl").read_bytes()
        done = run("score", "--out", out, "--measures", "contained", "--json")
        assert done.code == 0, done.stderr
        assert 0 <= done.json[0]["contained"]["mean"] <= 1
        assert done.json[0]["contained"]["n"] == done.json[0]["n"] == 1
        assert (out / "scores.jsonl").read_bytes() == scored
        kept = json.loads((out / "measurements.jsonl").read_text())
        assert (kept["measure"], kept["summary"]) == ("contained", "greedy")
        assert run("score", "--out", out, "--measures", "contained,selfreflect").code == 0
        assert len((out / "measurements.jsonl").read_text().splitlines()) == 1
        frame = json.loads(Run.load(out).to_pandas().to_json())
        assert frame["contained"] == {"0": kept["value"]}
        assert frame["contained_undefined"] == {"0": None}
    without = run("report", out, "--json")
    assert without.code == 0, without.stderr  # where the package is not installed, the rest is still shown


def test_an_unknown_measure_is_refused_with_the_names_there_are(tmp_path: Path) -> None:
    items = written(tmp_path / "items.json", [ITEM])
    refused = run("score", "--items", items, "--measures", "contained")
    assert refused.code == 2
    assert all(name in refused.said for name in ("contained", *MEASURES))
    with pytest.raises(ConfigError, match="nothing"):
        measure_named("nothing")


def test_what_a_measure_raises_makes_its_value_undefined_and_is_tried_again() -> None:
    class Broken(Measure):
        name = "broken"

        def score(self, item: MeasureItem) -> Measurement:
            raise KeyError("peas")

    answers = AnswerSet(question_id="q", masked_out=("A",), conditioning=("B",))
    summary = Summary(question_id="q", name="s", text="A")
    work = Work(Question(id="q", text="Q?"), answers, [summary])
    [record] = Broken().open(Tools())(work).records
    assert (record.measure, record.question_id, record.summary) == ("broken", "q", "s")
    assert (record.value, record.undefined, "peas" in record.why) == (None, "failed", True)
    assert not Broken().is_current(record, {})


@pytest.mark.parametrize(("value", "undefined"), [(None, ""), (0.5, "blank")])
def test_a_measurement_has_a_value_or_a_reason(value: float | None, undefined: str) -> None:
    with pytest.raises(ValueError, match="either"):
        Measurement(value=value, undefined=undefined)


def test_the_guide_for_contributors_shows_this_measure() -> None:
    guide = (PLUGIN.parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = (PLUGIN / "selfreflect_plugin" / "contained.py").read_text(encoding="utf-8")
    assert f"```python\n{code}```" in guide


def package(folder: Path, package: str, measure: str, target: str = "json:JSONDecoder") -> None:
    """Install a package that adds a measure."""
    info = folder / f"{package}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[selfreflect.measures]\n{measure} = {target}\n")


def test_one_name_in_two_packages_is_refused(tmp_path: Path) -> None:
    package(tmp_path, "first", "twice")
    package(tmp_path, "second", "twice")
    items = written(tmp_path / "items.json", [ITEM])
    with installed(tmp_path):
        done = run("score", "--items", items, "--measures", "twice")
    assert (done.code, done.stdout) == (2, "")
    assert "'first' and 'second'" in done.stderr


@pytest.mark.parametrize("name", ["score", "question_id", "recovered", "means", "../x", "\x1b[31m", "Upper"])
def test_a_name_that_results_use_already_is_refused(tmp_path: Path, name: str) -> None:
    package(tmp_path, "rude", name)
    items = written(tmp_path / "items.json", [ITEM])
    with installed(tmp_path):
        done = run("score", "--items", items, "--measures", name, "--json")
    assert (done.code, done.stdout) == (2, "")
    assert "package 'rude'" in done.stderr
    assert "\x1b" not in done.stderr


def test_its_texts_control_no_terminal(tmp_path: Path) -> None:
    package(tmp_path, "rude", "rude", "rude:Rude")
    code = (
        "from selfreflect.metric.measure import Measure\nfrom selfreflect.records import Measurement\n"
        "class Rude(Measure):\n    title = heading = short = 'red\\x1b[31m'\n"
        "    def score(self, item):\n        return Measurement(value=1.0)\n"
    )
    (tmp_path / "rude.py").write_text(code)
    items = written(tmp_path / "items.json", [ITEM])
    with installed(tmp_path):
        done = run("score", "--items", items, "--measures", "rude")
    assert done.code == 0, done.stderr
    assert "red" in done.stdout
    assert "\x1b" not in done.stdout
