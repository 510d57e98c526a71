"""Layouts: which one each file has, and one that an installed package adds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
from command import run, written
from installed import PLUGIN, installed, plugin_folder
from round_trip import assert_converted_alike

from selfreflect.sources.items import read_item_file

LOGS = Path(__file__).parents[2] / "data" / "logs"
UQLM = {"prompts": ["Oz?"], "responses": ["a"], "sampled_responses": [["a", "b"]]}
HALVES = {"masked_out_task_answers": ["a", "b"], "conditioning_answers": ["a", "b"]}
CHOICES = [{"message": {"role": "assistant", "content": text}} for text in "ab"]
RECORD = {"question": "Oz?", "answers": ["a", "b"]}
FILES: dict[str, tuple[str, Any]] = {
    "our rows": ("items", [RECORD]),
    "texts in objects": ("items", {"question": "Oz?", "answers": [{"text": "a"}, {"text": "b"}]}),
    "a list in a text": ("items", {"question": "Oz?", "answers": "['a', 'b']"}),
    "our halves": ("items", [{"question": "Oz?", "id": "q", **HALVES}]),
    "published": ("published", [{"question": "Oz?", **HALVES}]),
    "uqlm": ("uqlm", {"data": UQLM, "metadata": {}}),
    "frame": ("uqlm", [{"prompt": "Oz?", "response": "a", "sampled_responses": ["a", "b"]}]),
    "frame of its data": (
        "uqlm-data",
        [{"prompts": "Oz?", "responses": "a", "sampled_responses": ["a", "b"]}],
    ),
    "lists": ("columns", {"question": ["Oz?"], "answers": [["a", "b"]]}),
    "pandas": ("pandas", {"question": {"0": "Oz?"}, "answers": {"0": ["a", "b"]}}),
    "split frame": ("pandas", {"columns": [*RECORD], "index": [0], "data": [[*RECORD.values()]]}),
    "table": ("pandas", {"schema": {"fields": []}, "data": [{"index": 0, **RECORD}]}),
    "by id": ("records", {"q": RECORD}),
    "id of a frame": ("items", {**RECORD, "id": 1.0}),
    "choices": ("responses", {"question": "Oz?", "choices": CHOICES}),
    "batch": (
        "responses",
        {"custom_id": "q", "response": {"body": {"choices": CHOICES}}, "question": "Oz?"},
    ),
    "judged": ("judged", {"q": {**RECORD, "judge_response": {"correct": "yes", "confidence": 85}}}),
}


def layout(path: Path) -> str:
    return str(run("convert", path, "--json").json[0]["layout"])


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
@pytest.mark.parametrize("name", FILES)
def test_each_file_has_its_layout(name: str, suffix: str, tmp_path: Path) -> None:
    expected, content = FILES[name]
    [record] = content if isinstance(content, list) else [content]
    [found] = run("convert", written(tmp_path / f"f.{suffix}", record), "--json").json
    assert (found["layout"], found["questions"], found["summaries"]) == (expected, 1, "uqlm" in expected)
    [item] = read_item_file(tmp_path / f"f.{suffix}").items
    halves = name in ("our halves", "published")
    assert (item.question, sorted(item.answer_set.answers)) == ("Oz?", sorted("ab" * (1 + halves)))
    assert_converted_alike(tmp_path / f"f.{suffix}")


def test_logs_have_theirs_also_where_their_format_differs(tmp_path: Path) -> None:
    assert layout(LOGS / "kitchen.eval") == layout(LOGS / "kitchen.json") == "inspect"
    assert layout(LOGS / "samples_kitchen.jsonl") == "lm-eval"
    one_line = json.dumps(json.loads((LOGS / "kitchen.json").read_text(encoding="utf-8")))
    [piped] = run("convert", "-", "--json", stdin=one_line).json
    assert (piped["layout"], piped["questions"]) == ("inspect", 2)


POLL = [{"ask": "Capital of Oz?", "votes": {"Emerald": 2, "Ruby": 2}, "topic": "towns", "summary": "Ruby."}]


def test_a_package_adds_a_layout_to_every_command_that_reads_answers(tmp_path: Path) -> None:
    path = written(tmp_path / "poll.json", POLL)
    assert run("convert", path).code == 2, "nobody knows it without the package"
    judge = tiny.save(tmp_path / "judge", "llama")
    with installed(plugin_folder()):
        [found] = run("convert", path, "--json").json
        assert (found["layout"], found["answers"]) == ("polls", 4)
        [scored] = run("score", "--items", path, "--judge", judge, "--json").json
        assert (scored["question"], scored["summary_text"]) == ("Capital of Oz?", "Ruby.")
        assert scored["metadata"]["topic"] == "towns"
        [judged] = run("uncertainty", path, "--estimators", "modal_share", "--json").json
        assert judged["values"] == {"modal_share": 0.5}
        ours = written(tmp_path / "ours.json", [RECORD])
        assert run("convert", ours, "--json").json[0]["layout"] == "items"


def test_the_guide_shows_the_code_of_that_package() -> None:
    guide = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert (PLUGIN / "selfreflect_plugin" / "polls.py").read_text(encoding="utf-8") in guide
    assert '[project.entry-points."selfreflect.layouts"]' in guide


POLLS = """
class Polls:
    name, is_log, notes = "polls", False, ()
    def matches(self, rows): return {matches}
    def items(self, rows): return {items}
    def explain(self): return "polls"
"""
BROKEN = {
    "import": "import no_such_module",
    "class": "",
    "matches": POLLS.format(matches="1 / 0", items="rows"),
    "items": POLLS.format(matches="True", items="[row.fields for row in rows]"),
    "no class": "def Polls(): raise SystemExit",
    "explain": POLLS.format(matches="True", items="rows").replace('"polls"\n', "1 / 0\n"),
    "notes": POLLS.format(matches="True", items="rows").replace(", ()", ", 1"),
    "no items": POLLS.format(matches="True", items="[]"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_layout_that_fails_is_named(fault: str, tmp_path: Path) -> None:
    metadata = tmp_path / "broken_polls-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-polls\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[selfreflect.layouts]\npolls = broken_polls:Polls\n")
    (tmp_path / "broken_polls.py").write_text(BROKEN[fault])
    with installed(tmp_path):
        outcome = run("convert", written(tmp_path / "f.json", [RECORD]))
    assert (outcome.code, outcome.stdout) == (2, "")
    assert "polls" in outcome.said
    assert "Traceback" not in outcome.said
