"""A backend of another package, which nothing but its entry point names, wherever a model is chosen."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import app_server
import httpx2
import pytest
from command import COMMAND, Outcome, environment, run, small, written
from installed import PLUGIN, installed

from selfreflect.store.run import Run

ITEM = {
    "question": "What does the coin show?",
    "answers": ["It is heads.", "It is tails.", "It is heads.", "It is heads."],
    "summaries": {"both": "It is heads or tails.", "neither": "Plant radishes."},
}
SIDES = {"It is heads.", "It is tails."}


def run_options(tmp_path: Path) -> list[str]:
    questions = written(tmp_path / "questions.jsonl", json.dumps({"question": ITEM["question"]}))
    return small(Path("coin:fair"), tmp_path / "run", questions, strategies="greedy")


@pytest.mark.usefixtures("plugin")
def test_a_run_draws_and_scores_with_it(tmp_path: Path) -> None:
    options = run_options(tmp_path)
    planned = run(*options, "--dry-run", "--json")
    assert planned.code == 0, planned.stderr
    [plan] = planned.json
    assert [stage["model"] for stage in plan["dry_run"]] == ["coin:fair"] * 3
    assert plan["dry_run"][2]["judge_tokens"]["most"] > 0
    done = run(*options)
    assert done.code == 0, done.stderr
    stored = Run.load(tmp_path / "run")
    [answers] = stored.answers.values()
    assert {*answers.answers} <= SIDES
    assert stored.manifest.models["answers"] == {"name": "coin:fair", "revision": ""}
    [score] = stored.scores.values()
    assert (score.judge, score.value > 0) == ("coin:fair", True)


@pytest.mark.usefixtures("plugin")
def test_it_judges_a_file_of_items(tmp_path: Path) -> None:
    items = written(tmp_path / "items.json", [ITEM])
    done = run("score", "--items", items, "--judge", "coin:fair", "--json")
    assert done.code == 0, done.stderr
    bits = {line["summary"]: line["bits"] for line in done.json}
    assert bits["both"] > bits["neither"]
    assert {line["judge"] for line in done.json} == {"coin:fair"}


def test_without_the_package_its_prefix_means_a_function(tmp_path: Path) -> None:
    items = written(tmp_path / "items.json", [ITEM])
    refused = run("score", "--items", items, "--judge", "coin:fair")
    assert (refused.code, refused.stdout) == (2, "")


@pytest.mark.usefixtures("plugin")
def test_the_endpoint_serves_and_judges_with_it(tmp_path: Path) -> None:
    command = "serve --model coin:fair --judge coin:fair --port 0 --num-answers 4".split()
    with subprocess.Popen(
        [*COMMAND, *command], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    ) as served:
        try:
            assert served.stderr is not None
            while (found := re.search(r"http://[^ ]*/v1", line := served.stderr.readline())) is None:
                assert line, "it ended"
            key = re.search(r"API key (\S+?)\.", line)
            headers = {"Authorization": f"Bearer {key[1]}"} if key else {}
            body: dict[str, Any] = {"model": "selfreflect/coin:fair"}
            body["messages"] = [{"role": "user", "content": ITEM["question"]}]
            options: dict[str, Any] = {"headers": headers, "trust_env": False, "timeout": 100}
            reply = httpx2.post(f"{found[0]}/chat/completions", json=body, **options).json()
        finally:
            served.kill()
    assert reply["choices"][0]["message"]["content"] in SIDES
    assert reply["selfreflect"]["score"] > 0
    assert {answers["text"] for answers in reply["selfreflect"]["classes"]} <= SIDES


@pytest.mark.usefixtures("plugin")
def test_the_app_offers_it_as_a_model_that_can_judge(tmp_path: Path) -> None:
    with app_server.process(tmp_path, "--model", "coin:fair") as (_, address):
        client = app_server.Client(address)
        offered = client.get("/api/options").json()
        job = client.ask(ITEM["question"], "coin:fair")
        assert client.finished(job)["status"] == "done"
    assert [model["name"] for model in offered["models"]] == ["coin:fair", "smollm2"]
    assert offered["defaults"]["judge"] == "coin:fair"


def test_a_broken_package_is_named_and_none_takes_a_prefix_of_ours(tmp_path: Path) -> None:
    facts = tmp_path / "other-1.dist-info"
    facts.mkdir()
    written(facts / "METADATA", "Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    rows = ("broken = nowhere:Nothing", "openai = nowhere:Nothing", "odd = fractions:Fraction")
    written(facts / "entry_points.txt", "\n".join(("[selfreflect.backends]", *rows)))
    items = written(tmp_path / "items.json", [ITEM])

    def refusal(judge: str) -> Outcome:
        return run("score", "--items", items, "--judge", judge)

    with installed(tmp_path):
        broken, odd, ours = refusal("broken:m"), refusal("odd:m"), refusal("openai:m")
    assert (broken.code, odd.code, ours.code) == (2, 2, 2)
    assert "nowhere" in broken.said
    assert "'odd'" in odd.said
    assert "nowhere" not in ours.said


def test_the_guide_for_contributors_shows_this_backend() -> None:
    guide = (PLUGIN.parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = (PLUGIN / "selfreflect_plugin" / "coin.py").read_text(encoding="utf-8")
    assert f"```python\n{code}```" in guide
