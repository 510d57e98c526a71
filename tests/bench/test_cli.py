"""``selfreflect bench`` as people and scripts use it."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from command import Outcome, run, written
from msgspec.structs import replace

from selfreflect.bench import flops, measure, work
from selfreflect.models.judge import Judge
from selfreflect.sources.items import Item

ITEM = {
    "id": "i1",
    "question": "What first?",
    "answers": ["Radishes, quickly.", "Lettuce.", "Radishes.", "Tomatoes and basil."],
    "summaries": {"good": "Radishes or lettuce.", "bad": "It is not clear."},
}
pytestmark = pytest.mark.usefixtures("small_heap")

KEYS = {
    *(f"{kind}_{name}" for kind in ("seconds", "tokens") for name in ("requests", "batched", "engine")),
    *(f"memory_{name}_bytes" for name in ("requests", "batched", "engine")),
    *(
        "speedup_against_requests",
        "speedup_against_batched",
        "efficiency_of_gemm_peak",
        "efficiency_with_text",
        "tokens_tree",
        "requests",
    ),
    *(
        "flop_per_second_engine",
        "flop_per_second_gemm_peak",
        "flop_per_second_torch_gemm",
        "difference_largest",
    ),
    *(
        "seconds_information",
        "seconds_information_with_controls",
        "information_share_of_engine",
        "information_with_controls_share_of_engine",
    ),
    *("tolerance", "machine", "n_items", "batch_size", "batch_trials", "items", "scaling", "decoding"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("model"), "llama")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(flops, "SECONDS", 0.002)
    monkeypatch.setattr(measure, "DECODING_REPETITIONS", 1)
    monkeypatch.setattr(measure, "TOKENS", 3)
    values = {"answers": (1, 2), "words": (2,), "summaries": (1,), "context": (3, 1500)}
    for axis, points in values.items():
        monkeypatch.setitem(work.AXES, axis, work.AXES[axis]._replace(values=points))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


TITLES = (
    "Time per item",
    "(a)/(c)",
    "(b)/(c)",
    "i1",
    "median",
    "(b) runs",
    "Usable information of the same summaries takes",
    "Work",
    "of the peak",
    "How cost grows",
    "against transformers' generate",
)


def bench(model: Path, items: object, folder: Path, *more: object) -> Outcome:
    return run(
        "bench", "--items", written(folder / "items.json", items), "--judge", model, "--device", "cpu", *more
    )


def test_json_is_one_line_with_every_figure(model: Path, tmp_path: Path) -> None:
    outcome = bench(model, [ITEM, {**ITEM, "id": "i2"}], tmp_path, "--no-scaling", "--json")
    assert outcome.code == 0
    [figures] = outcome.json
    assert figures.keys() == KEYS
    assert [item["id"] for item in figures["items"]] == ["i1", "i2"]
    assert figures["n_items"] == 2
    assert figures["seconds_information"] > 0
    for item in figures["items"]:
        for name in ("information", "information_with_controls"):
            share = item[f"seconds_{name}"] / item["seconds_engine"]
            assert item[f"{name}_share_of_engine"] == pytest.approx(share)
    assert figures["tokens_engine"] == figures["tokens_tree"] > 0
    assert figures["speedup_against_requests"] > 0
    assert figures["speedup_against_batched"] > 0
    assert 0 < figures["efficiency_with_text"] < 1
    assert 0 <= figures["difference_largest"] <= figures["tolerance"] == 1e-5
    assert figures["batch_size"] in [trial["size"] for trial in figures["batch_trials"]]
    assert figures["machine"]["dtype"] == "float32"
    assert {"cores", "threads", "torch", "processor", "device"} <= figures["machine"].keys()
    for sampling, count in zip(figures["decoding"], (20, 50), strict=True):
        assert sampling["samples"] == count
        rates = sampling["tokens_per_second"], sampling["tokens_per_second_transformers"]
        assert sampling["ratio"] == pytest.approx(rates[0] / rates[1])
    assert "1e-05 is allowed" in outcome.said


@pytest.mark.slow
def test_people_get_tables_and_curves_are_written(model: Path, tmp_path: Path) -> None:
    outcome = bench(model, [ITEM], tmp_path, "--output", tmp_path / "new" / "out")
    assert outcome.code == 0
    words = " ".join(outcome.stdout.split())
    assert all(text in words for text in TITLES)
    out = tmp_path / "new" / "out"
    assert sorted(path.name for path in out.iterdir()) == [
        "bench.json",
        "scaling.csv",
        "scaling.png",
        "scaling.svg",
    ]
    rows = list(csv.DictReader((out / "scaling.csv").open(encoding="utf-8")))
    assert [(row["what grows"].split()[0], row["to"]) for row in rows] == [
        *(("answers", "1"), ("answers", "2"), ("words", "2"), ("summaries", "1"), ("words", "3"))
    ]  # 1500 words of context do not fit the judge
    assert "<svg" in (out / "scaling.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("only", ["c", "b,a", " c , a "])
def test_only_some_schedules_run(model: Path, tmp_path: Path, only: str) -> None:
    outcome = bench(model, [ITEM], tmp_path, "--no-scaling", "--json", "--only", only)
    assert outcome.code == 0
    [figures] = outcome.json
    ran = {
        letter
        for letter, name in (("a", "requests"), ("b", "batched"), ("c", "engine"))
        if figures[f"seconds_{name}"] is not None
    }
    assert ran == {letter.strip() for letter in only.split(",")}
    assert (figures["speedup_against_requests"] is not None) is ({"a", "c"} <= ran)
    assert (figures["difference_largest"] is None) is (len(ran) == 1)


def test_distances_that_differ_are_an_error(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = measure.one_by_one
    monkeypatch.setattr(
        measure, "one_by_one", lambda *arguments: [values + 2e-5 for values in right(*arguments)]
    )
    outcome = bench(model, [ITEM], tmp_path, "--no-scaling", "--json")
    assert outcome.code == 1
    assert outcome.json[0]["difference_largest"] > 1e-5
    assert "error: Distances of the schedules differ by at most 2.0e-05, and 1e-05 is allowed" in outcome.said
    assert "'i1' (2.0e-05)" in outcome.said


def test_distances_that_are_no_numbers_end_it_and_keep_what_there_is(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = measure.one_by_one
    calls: list[int] = []

    def sometimes(*arguments: Any) -> Any:
        calls.append(1)
        # the first call only warms up
        return [values * (float("nan") if len(calls) > 2 else 1) for values in right(*arguments)]

    monkeypatch.setattr(measure, "one_by_one", sometimes)
    outcome = bench(
        model, [ITEM, {**ITEM, "id": "i2"}], tmp_path, "--no-scaling", "--json", "--output", tmp_path / "out"
    )
    assert outcome.code == 2
    assert [item["id"] for item in outcome.json[0]["items"]] == ["i1"]
    assert "item 'i2' cannot be timed: (a) gives distances that are not finite numbers" in outcome.said
    assert (tmp_path / "out" / "bench.json").exists()


def test_progress_counts_items_and_the_points_that_fit(tiny_judge: Callable[..., Judge]) -> None:
    item = Item(id="i1", question="What?", masked_out=("a b",), conditioning=("c",), summaries={"s": "d"})
    long = replace(item, conditioning=("c " * 3000,))
    points = [work.ScalingPoint("context", 1, item), work.ScalingPoint("context", 3000, long)]
    for only in (["c"], ["a", "b", "c"]):
        bench = measure.Bench(tiny_judge("llama"), [item, item], points, only)
        assert [figures["id"] for figures in bench.run()] == ["i1"] * 3
        assert len(bench) == 3
        assert (len(bench.result.items), len(bench.result.scaling)) == (2, 1)


def test_an_interrupted_run_shows_what_it_has(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = measure.Bench._measure

    def stopped(self: measure.Bench, timed: work.Work) -> Any:
        if timed.item.id == "i2":
            raise KeyboardInterrupt
        return whole(self, timed)

    monkeypatch.setattr(measure.Bench, "_measure", stopped)
    outcome = bench(model, [ITEM, {**ITEM, "id": "i2"}], tmp_path, "--json", "--only", "c")
    assert outcome.code == 130
    assert [item["id"] for item in outcome.json[0]["items"]] == ["i1"]
    outcome = bench(model, [{**ITEM, "id": "i2"}], tmp_path, "--only", "c")
    assert (outcome.code, outcome.stdout) == (130, "")
    assert "before the first item" in outcome.said


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ("", "is empty"),
        ([], "items.json"),
        ([{**ITEM, "summaries": {}}], "holds answers and no summaries"),
        ([ITEM, {**ITEM, "id": "blank", "answers": ["", " ", "a", "b"]}], "item 'blank' cannot be timed"),
    ],
)
def test_bad_items_are_refused_before_anything_is_timed(
    model: Path, tmp_path: Path, items: object, reason: str
) -> None:
    outcome = bench(model, items, tmp_path, "--json")
    assert (outcome.code, outcome.stdout) == (2, "")
    assert reason in outcome.said


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--only", "a,d"], "--only takes some of a, b, c, not 'd'"),
        (["--random-model", "huge"], "unknown shape 'huge'"),
        (["--random-model", "tiny", "--judge", "smollm2"], "--random-model takes the place of --judge"),
        (["--limit", "0"], "--limit must be at least 1"),
        (["--column", "answer=text"], "--column and --split belong to a file of items"),
        (["--output", "/dev/null/here"], "cannot be made"),
        (["--device", "abacus"], "abacus"),
    ],
)
def test_bad_options_are_refused(arguments: list[str], reason: str) -> None:
    outcome = run("bench", *arguments)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert reason in outcome.said


def test_items_of_any_file_that_score_reads_are_timed(tmp_path: Path) -> None:
    rows = "frage,antworten,zusammenfassung\nWhat first?,Radishes;Lettuce;Peas;Beans,Radishes or lettuce.\n"
    path = written(tmp_path / "mine.csv", rows)
    arguments = [
        "bench",
        "--items",
        path,
        "--random-model",
        "tiny",
        "--no-scaling",
        "--only",
        "b,c",
        "--json",
    ]
    refused = run(*arguments)
    assert (refused.code, "the field 'question' is missing" in refused.said) == (2, True)
    for role in ("question=frage", "answers=antworten", "summary=zusammenfassung"):
        arguments += ["--column", role]
    [figures] = run(*arguments, "--split", ";").json
    assert len(figures["items"]) == 1


def test_a_random_model_times_the_bundled_items() -> None:
    arguments = [
        "--random-model",
        "tiny",
        "--device",
        "cpu",
        "--limit",
        1,
        "--num-answers",
        2,
        "--no-scaling",
        "--json",
        "--only",
        "b,c",
    ]
    outcome = run("bench", *arguments)
    assert outcome.code == 0
    assert outcome.json[0]["machine"]["judge"] == "tiny, random weights"
    assert outcome.json[0]["items"][0]["id"] == "first-vegetable"
