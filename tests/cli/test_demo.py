"""The demo: its questions, what a newcomer reads, and that it is reused; with a tiny model in place of the
embedded one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
from command import run

from selfreflect.cli import ask as ask_command
from selfreflect.errors import DataError
from selfreflect.run import models
from selfreflect.settings import Config
from selfreflect.store.run import Run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("model"), "llama")


@pytest.fixture
def tiny_demo(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo with fewer questions, and the tiny model under the name of the embedded one."""
    demo = {name: dict(section) for name, section in ask_command.DEMO.items()}
    demo["questions"]["part"] = "2/5"
    demo["answers"] |= {"num_answers": 2, "max_new_tokens": 4}
    demo["summaries"] |= {"num_samples": 2, "sample_max_new_tokens": 4, "max_new_tokens": 4}
    monkeypatch.setattr(ask_command, "DEMO", demo)
    monkeypatch.setattr(ask_command, "SHOWN", "fair")
    spec = models.ModelSpec

    def tiny_instead(name: Any, **fields: Any) -> Any:
        return spec(str(model) if name == "smollm2" else name, **fields)

    monkeypatch.setattr(models, "ModelSpec", tiny_instead)


def test_a_newcomer_reads_evidence_summaries_and_where_the_report_is(tiny_demo: None, tmp_path: Path) -> None:
    out = tmp_path / "demo"
    outcome = run("demo", "--out", out)
    assert outcome.code == 0, outcome.stderr
    text = " ".join(outcome.stdout.split())
    by_hand, _, own = text.partition("2. The model's own summaries.")
    assert "Emma says that the cat broke the vase." in by_hand
    assert "written by hand" in by_hand
    for words in ("The cat broke the vase, or perhaps the wind broke it.", "A football broke the vase."):
        assert words in by_hand
    assert "One poster says that the fair is in May." in own
    for strategy in ask_command.DEMO["summaries"]["strategies"]:
        assert own.count(strategy) >= 3, "explained, in the table, and for the question in full"
    assert f"open {out}/report.html in a browser." in outcome.stdout, "whole, to be copied"
    assert "<html" in (out / "report.html").read_text("utf-8")
    answers = Run.load(out).answers["fair"]
    assert (answers.temperature, answers.top_p) == (0.7, 0.9)

    before = {path.name: path.read_bytes() for path in out.glob("*.jsonl")}
    again = run("demo", "--out", out)
    assert again.stdout == outcome.stdout
    assert before == {path.name: path.read_bytes() for path in out.glob("*.jsonl")}
    lines = run("demo", "--out", out, "--json").json
    assert [line["strategy"] for line in lines] == ask_command.DEMO["summaries"]["strategies"]


def test_a_directory_of_an_earlier_demo_is_refused_in_words(
    tiny_demo: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "demo"
    assert run("questions", "--questions", "bundled", "--limit", 8, "--out", out).code == 0
    outcome = run("demo", "--out", out, "--json")
    assert outcome.code == 2
    assert 'questions.source: "bundled" -> "demo"' in outcome.said
    assert "--fresh" in outcome.said


@pytest.mark.parametrize(
    ("arguments", "strategies"),
    [
        ((), ("greedy", "basic")),
        (("--strategies", "cot"), ("cot",)),
        (("--model", "openai:gpt"), ("sample_and_summarize",)),
    ],
)
def test_the_embedded_model_is_not_asked_to_merge_answers_unless_that_is_wanted(
    arguments: tuple[str, ...], strategies: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = []

    def keep(path: Path, config: Config, *_: object, **__: object) -> None:
        configs.append(config)
        raise DataError("enough")

    monkeypatch.setattr(ask_command, "fill_run", keep)
    assert "default: sample_and_summarize" not in " ".join(run("ask", "--help").stdout.split())
    assert "enough" in run("ask", "Which pot?", *arguments).said
    assert tuple(configs[0].summaries.strategies) == strategies
