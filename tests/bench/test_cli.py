"""``selfreflect bench`` as people and scripts use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
from command import Outcome, run, written

from selfreflect import bench

ITEM = {
    "id": "i1",
    "question": "What first?",
    "answers": ["Radishes, quickly.", "Lettuce.", "Radishes.", "Tomatoes and basil."],
    "summaries": {"good": "Radishes or lettuce.", "bad": "It is not clear."},
}
pytestmark = pytest.mark.usefixtures("small_heap")

KEYS = {
    *(f"{kind}_{name}" for kind in ("seconds", "tokens") for name in ("requests", "engine")),
    *("memory_requests_bytes", "memory_engine_bytes", "speedup_against_requests"),
    *("efficiency_of_gemm_peak", "flop_per_second_engine", "flop_per_second_gemm_peak"),
    *("tokens_tree", "requests"),
    *("difference_largest", "tolerance", "machine", "n_items", "items", "decoding"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("model"), "llama")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SECONDS", 0.002)
    monkeypatch.setattr(bench, "DECODING_REPETITIONS", 1)
    monkeypatch.setattr(bench, "TOKENS", 3)


def timed(model: Path, items: object, folder: Path, *more: object) -> Outcome:
    return run(
        "bench", "--items", written(folder / "items.json", items), "--judge", model, "--device", "cpu", *more
    )


def test_json_is_one_line_with_every_figure(model: Path, tmp_path: Path) -> None:
    outcome = timed(model, [ITEM, {**ITEM, "id": "i2"}], tmp_path, "--json")
    assert outcome.code == 0
    [figures] = outcome.json
    assert figures.keys() == KEYS
    assert [item["id"] for item in figures["items"]] == ["i1", "i2"]
    assert figures["n_items"] == 2
    assert figures["tokens_engine"] == figures["tokens_tree"] > 0
    assert figures["speedup_against_requests"] > 0
    assert figures["efficiency_of_gemm_peak"] > 0
    assert 0 <= figures["difference_largest"] <= figures["tolerance"] == 1e-5
    assert figures["machine"]["dtype"] == "float32"
    assert {"cores", "threads", "torch", "processor", "device"} <= figures["machine"].keys()
    for sampling, count in zip(figures["decoding"], (20, 50), strict=True):
        assert sampling["samples"] == count
        rates = sampling["tokens_per_second"], sampling["tokens_per_second_transformers"]
        assert sampling["ratio"] == pytest.approx(rates[0] / rates[1])
    assert "1e-05 is allowed" in outcome.said


@pytest.mark.parametrize("only", ["c", "a", " c , a "])
def test_only_some_schedules_run(model: Path, tmp_path: Path, only: str) -> None:
    outcome = timed(model, [ITEM], tmp_path, "--json", "--only", only)
    assert outcome.code == 0
    [figures] = outcome.json
    ran = {
        letter
        for letter, name in (("a", "requests"), ("c", "engine"))
        if figures[f"seconds_{name}"] is not None
    }
    assert ran == {letter.strip() for letter in only.split(",")}
    assert (figures["speedup_against_requests"] is not None) is ({"a", "c"} <= ran)
    assert (figures["difference_largest"] is None) is (len(ran) == 1)


def test_distances_that_differ_are_an_error(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = bench.one_by_one
    monkeypatch.setattr(
        bench, "one_by_one", lambda *arguments: [values + 2e-5 for values in right(*arguments)]
    )
    outcome = timed(model, [ITEM], tmp_path, "--json")
    assert outcome.code == 1
    assert outcome.json[0]["difference_largest"] > 1e-5
    assert (
        "error: Distances of the schedules differ by at most 2.0e-05, but at most 1e-05 is allowed"
        in outcome.said
    )
    assert "'i1' (2.0e-05)" in outcome.said


def test_distances_that_are_no_numbers_end_it_and_keep_what_there_is(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = bench.one_by_one
    calls: list[int] = []

    def sometimes(*arguments: Any) -> Any:
        calls.append(1)
        # the first call only warms up
        return [values * (float("nan") if len(calls) > 2 else 1) for values in right(*arguments)]

    monkeypatch.setattr(bench, "one_by_one", sometimes)
    outcome = timed(model, [ITEM, {**ITEM, "id": "i2"}], tmp_path, "--json", "--output", tmp_path / "out")
    assert outcome.code == 2
    assert [item["id"] for item in outcome.json[0]["items"]] == ["i1"]
    assert "item 'i2' cannot be timed: (a) gives distances that are not finite numbers" in outcome.said
    assert (tmp_path / "out" / "bench.json").exists()


def test_ratios_are_taken_item_by_item_before_their_median_and_float32_is_held_to_the_tolerance() -> None:
    def item(a: float, c: float, difference: float) -> bench.Figures:
        ratio = {"speedup_against_requests": a / c, "tokens_engine": 100}
        return {"id": "i", "seconds_requests": a, "seconds_engine": c, "difference": difference, **ratio}

    items = [item(10, 1, 1e-7), item(12, 3, 9e-6), item(100, 10, 1.1e-5)]
    result = bench.BenchResult(machine={"dtype": "float32"}, only=("a", "c"), items=items[:2])
    figures = bench.to_json(result)
    assert (figures["speedup_against_requests"], figures["tokens_engine"]) == (7, 200)
    assert (figures["memory_engine_bytes"], result.disagreeing) == (None, [])
    result.items.append(items[2])
    assert result.disagreeing == [items[2]]
    assert bench.BenchResult(machine={"dtype": "bfloat16"}, only=("a", "c"), items=items).disagreeing == []
    assert bench.BenchResult(machine={"dtype": "float32"}, only=("c",), items=items).difference is None


def test_an_interrupted_run_shows_what_it_has(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = bench.Bench._measure

    def stopped(self: bench.Bench, work: bench.ItemWork) -> Any:
        if work.item.id == "i2":
            raise KeyboardInterrupt
        return whole(self, work)

    monkeypatch.setattr(bench.Bench, "_measure", stopped)
    outcome = timed(model, [ITEM, {**ITEM, "id": "i2"}], tmp_path, "--json", "--only", "c")
    assert outcome.code == 130
    assert [item["id"] for item in outcome.json[0]["items"]] == ["i1"]
    outcome = timed(model, [{**ITEM, "id": "i2"}], tmp_path, "--only", "c")
    assert (outcome.code, outcome.stdout) == (130, "")
    assert "before the first item" in outcome.said


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ("", "is empty"),
        ([], "items.json"),
        ([{**ITEM, "summaries": {}}], "has answers but no summaries"),
        ([ITEM, {**ITEM, "id": "blank", "answers": ["", " "]}], "item 'blank' cannot be timed"),
    ],
)
def test_bad_items_are_refused_before_anything_is_timed(
    model: Path, tmp_path: Path, items: object, reason: str
) -> None:
    outcome = timed(model, items, tmp_path, "--json")
    assert (outcome.code, outcome.stdout) == (2, "")
    assert reason in outcome.said


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--only", "a,d"], "no schedule 'd'"),
        (["--only", "a,b"], "schedule b is no longer timed. Compare (a) with (c)"),
        (["--random-model", "tiny"], "benchmarks/gpu.py"),
        (["--limit", "0"], "--limit"),
        (["--column", "answer=text"], "Leave out --column and --separator"),
        (["--output", "/dev/null/here"], "cannot be made"),
        (["--device", "abacus"], "abacus"),
    ],
)
def test_bad_options_are_refused(arguments: list[str], reason: str) -> None:
    outcome = run("bench", *arguments)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert reason in outcome.said


def test_items_of_any_file_that_score_reads_are_timed(model: Path, tmp_path: Path) -> None:
    rows = "frage,antworten,zusammenfassung\nWhat first?,Radishes;Lettuce;Peas;Beans,Radishes or lettuce.\n"
    path = written(tmp_path / "mine.csv", rows)
    arguments: list[object] = ["bench", "--items", path, "--judge", model, "--only", "c", "--json"]
    assert run(*arguments).code == 2
    for role in ("question=frage", "answers=antworten", "summary=zusammenfassung"):
        arguments += ["--column", role]
    [figures] = run(*arguments, "--separator", ";").json
    assert len(figures["items"]) == 1
