"""One run scored by several judges: scores are added beside others, and nothing of any judge is lost."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from command import COMMAND, environment, run, small, written

from selfreflect.run.resume import scoring_label, scoring_name
from selfreflect.store.run import Run

MADE = ("questions.jsonl", "answers.jsonl", "summaries.jsonl", "scores.jsonl", "information.jsonl")
TEXTS = ["What first?", "Who is it?"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    import tiny

    folders = [tmp_path_factory.mktemp(name) for name in ("model", "other")]
    return [
        tiny.save(folder, "llama", max_position_embeddings=400, seed=seed)
        for seed, folder in enumerate(folders)
    ]


@pytest.fixture(scope="module")
def scored(models: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run by the first model, scored by both; and estimated by the second."""
    folder = tmp_path_factory.mktemp("scored")
    questions = written(folder / "q.txt", "\n".join(TEXTS))
    out = folder / "r"
    assert run(*small(models[0], out, questions)).code == 0
    before = contents(out)
    assert run("score", "--out", out, "--judge", models[1], "--device", "cpu").code == 0
    estimated = ("--judge", models[1], "--budget", 1000, "--device", "cpu")
    assert run("score", "--out", out, *estimated).code == 0
    assert contents(out) == before
    return out


def contents(out: Path) -> dict[str, bytes]:
    return {name: (out / name).read_bytes() for name in (*MADE, "manifest.json")}


def test_each_judge_has_scores_of_its_own_and_the_first_loses_none(scored: Path, models: list[Path]) -> None:
    stored = Run.load(scored)
    values = []
    for name in stored.scorings:
        stored.select_scoring(name)
        values.append({key: score.value for key, score in stored.scores.items()})
        settings = stored.manifest.config["scores"]
        assert {score.judge for score in stored.scores.values()} == {settings["judge"]}
        assert {one.judge for one in stored.information.values()} == {settings["judge"]}
        assert stored.manifest.models["scores"]["name"] == settings["judge"]
        assert bool(stored.controls) == (settings["budget"] is None)
        assert stored.manifest.wall_time["scores"] > 0
        assert stored.manifest.finished["scores"]
    assert len(values) == 3
    assert values[0].keys() == values[1].keys() == values[2].keys()
    assert len(values[0]) == 2 * len(TEXTS)
    assert values[0] != values[1]


def test_scoring_again_does_nothing_and_later_summaries_are_scored_by_whom_one_names(
    scored: Path, models: list[Path]
) -> None:
    files = {path: path.read_bytes() for path in scored.rglob("*.json*")}
    for more in (
        (),
        ("--judge", models[0]),
        ("--judge", models[1]),
        ("--judge", models[1], "--budget", 1000),
    ):
        assert run("score", "--out", scored, *more, "--device", "cpu").code == 0
    now = {path: path.read_bytes() for path in scored.rglob("*.json*")}
    changed = {path.name for path in files if files[path] != now[path]}
    assert now.keys() == files.keys()
    assert changed <= {"manifest.json"}  # seconds


def test_a_budget_of_none_scores_every_word_beside_estimates(models: list[Path], tmp_path: Path) -> None:
    questions = written(tmp_path / "q.txt", TEXTS[0])
    out = tmp_path / "r"
    assert run(*small(models[0], out, questions), "--budget", 1000).code == 0
    assert run("score", "--out", out, "--budget", "none").code == 0
    stored = Run.load(out)
    assert not stored.controls  # which estimates go without
    stored.select_scoring(stored.scorings[1])
    assert stored.manifest.config["scores"]["budget"] is None
    assert len(stored.scores) == 2
    assert stored.controls


def test_scores_of_a_limit_that_is_gone_are_reported_and_get_others_beside_them(
    models: list[Path], tmp_path: Path
) -> None:
    questions = written(tmp_path / "q.txt", TEXTS[0])
    out = tmp_path / "r"
    assert run(*small(models[0], out, questions), "--budget", 1000).code == 0
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["config"]["scores"] |= {"budget": None, "standard_error": None, "race": 0.9}
    written(out / "manifest.json", manifest)
    scores = [json.loads(line) for line in (out / "scores.jsonl").read_text().splitlines()]
    for score in scores:
        score["estimate"] = {
            "stopped": "race",
            "race": 0.9,
            "ordered": ["basic"],
            "stderr": 0.01,
        } | dict.fromkeys(("words_scored", "words_total", "tokens_scored", "tokens_total"), 9)
    written(out / "scores.jsonl", "".join(json.dumps(score) + "\n" for score in scores))
    assert {score.estimate.race for score in Run.load(out).scores.values() if score.estimate} == {0.9}
    assert run("report", out).code == 0
    refused = run("score", "--out", out)
    assert refused.code == 2
    assert "race, which is no longer a setting" in refused.said
    assert run("answers", "--out", out).code == 0
    assert run("score", "--out", out, "--budget", "none").code == 0
    assert len(Run.load(out).scorings) == 2


def test_a_judge_that_cannot_be_loaded_leaves_no_trace(scored: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    names = sorted(path.name for path in scored.iterdir())
    scorings = Run.load(scored).scorings
    refused = run("score", "--out", scored, "--judge", empty)
    assert refused.code == 2
    assert "--fresh" not in refused.stderr
    assert sorted(path.name for path in scored.iterdir()) == names
    assert Run.load(scored).scorings == scorings


def test_a_dry_run_counts_what_the_judge_named_still_has_to_do(scored: Path, models: list[Path]) -> None:
    counts = []
    for more in ((), ("--judge", models[1]), ("--judge", models[1], "--budget", 99)):
        [line] = run("score", "--out", scored, *more, "--device", "cpu", "--dry-run", "--json").json
        counts.append(line["dry_run"][0]["to_do"])
    assert counts == [0, 0, 2 * len(TEXTS)]


def test_a_killed_second_judge_resumes_and_a_torn_line_is_cut_off(models: list[Path], tmp_path: Path) -> None:
    questions = written(tmp_path / "q.txt", "\n".join(TEXTS))
    out = tmp_path / "r"
    assert run(*small(models[0], out, questions)).code == 0
    score = ("score", "--out", out, "--judge", models[1], "--device", "cpu")
    assert run(*score).code == 0
    [folder] = (out / "judges").iterdir()
    whole = {path.name: path.read_bytes() for path in folder.glob("*.jsonl")}
    for name in ("scores.jsonl", "information.jsonl"):
        (folder / name).write_bytes(whole[name][: len(whole[name]) * 2 // 3])
    stored = Run.load(out)
    stored.select_scoring(folder.name)
    assert 0 < len(stored.scores) < 2 * len(TEXTS)
    assert run(*score).code == 0
    stored = Run.load(out)
    stored.select_scoring(folder.name)
    assert len(stored.scores) == len(stored.information) == 2 * len(TEXTS)
    assert all(data.endswith(b"\n") for data in (path.read_bytes() for path in folder.glob("*.jsonl")))
    with Run.open(out, {}):
        command = [*COMMAND, *map(str, score)]
        second = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=200)
    assert second.returncode == 2
    assert "is writing" in second.stderr


def test_a_failure_belongs_to_its_judge(models: list[Path], tmp_path: Path) -> None:
    questions = written(tmp_path / "q.txt", TEXTS[0])
    out = tmp_path / "r"
    assert run(*small(models[0], out, questions)).code == 0
    assert run("score", "--out", out, "--budget", 1).code == 1
    stored = Run.load(out)
    assert stored.failures == []
    stored.select_scoring(stored.scorings[1])
    assert {failure.kind for failure in stored.failures} == {"over_budget"}


@pytest.mark.parametrize(
    ("judge", "slug"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b-instruct"),
        ("../..", "judge"),
        ("/models/ÄÖ \\..\\x\x1b[31m/", "x-31m"),
        ("vllm:" + "a" * 300, "vllm-" + "a" * 35),
    ],
)
def test_the_name_of_a_scoring_is_safe_and_the_same_everywhere(judge: str, slug: str) -> None:
    name = scoring_name({"judge": judge})
    assert name.rpartition("-")[0] == slug
    elsewhere = {
        "judge": judge,
        "base_url": "http://x/v1",
        "reader": "blind",
        "budget": None,
        "dtype": "auto",
    }
    assert scoring_name(elsewhere) == name
    assert scoring_name({"judge": judge, "budget": "20000"}) != name
    assert scoring_label({**elsewhere, "budget": "20000"}) == f"{judge}, budget 20000"
