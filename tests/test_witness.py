"""A witness from before the package was rebuilt: what the earlier code wrote, today's code must still open,
continue and reproduce.

``data/witness`` holds a run directory, a validation folder, a report, and the output of every command that
speaks JSON, all made by the code of the commit that added them. People have such folders and scripts, and a
rebuilt house must not lock them out. So this proves, on copies, that

- the run directory opens in Python and on the command line, and a command whose work is done redoes nothing,
to the byte;
- what was cut out of it (a question, all scores, half of the validation) is computed again with the same
result to 1e-6;
- today's measures are added to an earlier run without touching what it has;
- scores of a file of items, exact, by the word and estimated, are the same;
- reports, findings, imports and exports state the same numbers in the same columns;
- no key of any JSON output and no flag of any command is lost. New ones are welcome, and wording may improve.

Only the command line and names that the README shows are used; ``witness.py`` says what counts as equal.
Times, package versions and measured speeds do not count. Answers and summaries are sampled again, which gives
the same text on processors that round alike.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
import witness as w

from selfreflect import Run


def kept(name: str) -> Any:
    return json.loads((w.WITNESS / name).read_text(encoding="utf-8"))


class Work:
    """What the commands did, each in a folder of its own."""

    def __init__(self, root: Path, done: dict[str, w.Done]) -> None:
        self.done, self._root = done, root

    def folder(self, name: str) -> Path:
        return self._root / name


FEWER = {"answers": 2, "summaries": 4, "scores": 4}
"""Lines that remain of a run without all of the last of its three questions."""
VALUES = 31
"""Lines that remain of the validation."""


def cut(path: Path, keep: int) -> None:
    """Leave only the first lines of a record file."""
    lines = path.read_bytes().splitlines(keepends=True)
    assert keep < len(lines)
    path.write_bytes(b"".join(lines[:keep]))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    root = tmp_path_factory.mktemp("witness")
    commands = {
        "resumed": f"{w.RUN} {w.SCORES_ALONE}",
        "measured": "score --out run --device cpu --json",
        **w.JUDGED,
        **w.CHEAP,
    }
    places = {name: w.workplace(root / name) for name in commands}
    for name, lines in FEWER.items():
        cut(places["resumed"] / "run" / f"{name}.jsonl", lines)
    for name in FEWER:  # the first question alone
        cut(places["measured"] / "run" / f"{name}.jsonl", 1)
    cut(places["validate"] / "validation" / "values.jsonl", VALUES)
    return Work(root, w.calls({name: (command, places[name]) for name, command in commands.items()}))


def test_the_run_directory_opens_in_python(tmp_path: Path) -> None:
    run = Run.load(w.workplace(tmp_path / "work") / "run")
    lines = w.records(w.WITNESS / "run")
    assert list(run.questions) == [line["id"] for line in lines["questions.jsonl"]]
    assert [(*one.masked_out, *one.conditioning) for one in run.answers.values()] == [
        (*line["masked_out"], *line["conditioning"]) for line in lines["answers.jsonl"]
    ]
    summaries = {(line["question_id"], line["name"]): line["text"] for line in lines["summaries.jsonl"]}
    assert {key: one.text for key, one in run.summaries.items()} == summaries
    scores = {(line["question_id"], line["summary"]): line["value"] for line in lines["scores.jsonl"]}
    assert {key: one.value for key, one in run.scores.items()} == scores
    assert run.failures == []
    assert run.manifest.config == lines["manifest.json"]["config"]
    assert len(run.to_pandas()) == len(run.scores)


@pytest.mark.parametrize("name", ["run", "run, dry", "answers", "summarize", "score", "report", "compare"])
def test_a_command_whose_work_is_done_redoes_nothing(work: Work, name: str) -> None:
    assert work.done[name].code == 0, work.done[name].stderr
    for path in (w.WITNESS / "run").glob("*.jsonl"):
        assert (work.folder(name) / "run" / path.name).read_bytes() == path.read_bytes(), path.name
    assert not w.differences(
        kept("run/manifest.json"), json.loads((work.folder(name) / "run" / "manifest.json").read_text())
    )


def test_what_was_cut_out_of_a_run_comes_back_the_same(work: Work) -> None:
    old, now = kept("outputs.json")["run"], work.done["resumed"].lines
    assert not w.differences(without_intervals(old), without_intervals(now))
    assert not w.differences(in_order(w.WITNESS / "run"), in_order(work.folder("resumed") / "run"))


def in_order(run: Path) -> dict[str, Any]:
    """The records of a run, its scores by question and summary, in whatever order they were made."""
    found = w.records(run)
    found["scores.jsonl"].sort(key=lambda line: (line["question_id"], line["summary"]))
    return found


def test_todays_measures_are_added_to_an_earlier_run(work: Work) -> None:
    assert work.done["measured"].code == 0, work.done["measured"].stderr
    old, new = w.records(w.WITNESS / "run"), w.records(work.folder("measured") / "run")
    for name in FEWER:
        assert new[f"{name}.jsonl"] == old[f"{name}.jsonl"][:1]
    assert [(line["question_id"], line["summary"]) for line in new["information.jsonl"]] == [
        (line["question_id"], line["summary"]) for line in new["scores.jsonl"]
    ]
    assert [line["question_id"] for line in new["controls.jsonl"]] == [old["answers.jsonl"][0]["question_id"]]


def test_a_resumed_run_keeps_what_it_had(work: Work) -> None:
    for name, lines in FEWER.items():
        old, new = (folder / "run" / f"{name}.jsonl" for folder in (w.WITNESS, work.folder("resumed")))
        assert old.read_bytes().splitlines()[:lines] == new.read_bytes().splitlines()[:lines]


def test_a_validation_goes_on_and_finds_the_same(work: Work) -> None:
    now = work.folder("validate") / "validation"
    old, new = (
        (folder / "values.jsonl").read_bytes().splitlines() for folder in (w.WITNESS / "validation", now)
    )
    assert old[:VALUES] == new[:VALUES]  # not measured again
    # ranked measures more control texts and has more columns on purpose; tables keep rows and cells
    kept_tables, tables = (
        {name: rows for name, rows in w.records(folder).items() if name.endswith(".csv")}
        for folder in (w.WITNESS / "validation", now)
    )
    assert kept_tables
    assert not w.differences(kept_tables, tables)


@pytest.mark.parametrize("name", [*w.JUDGED, *(name for name in w.CHEAP if name not in ("import", "export"))])
def test_json_output_says_the_same(work: Work, name: str) -> None:
    now = work.done[name].lines
    if name == "metrics":  # there may be more of them
        known = {line["name"] for line in kept("outputs.json")[name]}
        now = [line for line in now if line["name"] in known]
    shape = kept("shapes.json")[name]
    old = kept("outputs.json")[name]
    if name == "metrics":  # some went on purpose
        old = [line for line in old if line["name"] in {line["name"] for line in now}]
    if name in WITH_INTERVALS:
        shape["[].low"], shape["[].high"] = ["NoneType"], ["NoneType"]
        old = without_intervals(old)
    assert not w.lost(shape, w.shape(now))
    if name == "validate":  # its sentences are worded anew, and fewer
        old, now = ([line for line in lines if "says" not in line] for lines in (old, now))
    assert not w.differences(old, without_intervals(now) if name in WITH_INTERVALS else now)


WITH_INTERVALS = ("answers", "summarize", "score", "run", "report", "compare")


def without_intervals(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out what three questions are too few for now: the ends of intervals, and sentences with them."""
    kinds = ("low", "high", "sentence")
    return [{name: value for name, value in line.items() if name not in kinds} for line in lines]


def rows(report: str) -> str:
    """The lines of a report's table, without its interval, which three questions have no more."""
    lines = [line.split("|") for line in report.splitlines() if line.startswith("|")]
    return "\n".join("|".join([*cells[:3], *cells[5:]]) for cells in lines)


def test_a_report_states_the_same_numbers(work: Work) -> None:
    folder = work.folder("report")
    old, new = ((place / "report.csv").read_text(encoding="utf-8") for place in (w.WITNESS, folder))
    assert not w.differences(w.table(old), w.table(new))
    old, new = ((place / "report.md").read_text(encoding="utf-8") for place in (w.WITNESS, folder))
    assert w.numbers(rows(old)) == pytest.approx(w.numbers(rows(new)))  # there may be more notes
    page = w.page_data((folder / "page.html").read_text(encoding="utf-8"))
    kept_page = kept("page.json")
    for csv in (kept_page["index"]["csv"], page["index"]["csv"]):
        for name in [name for name in csv if name.startswith(("differences-", "overview-"))]:
            for row in (table := w.table(csv[name])):  # three questions have no interval now
                row.pop("95% low"), row.pop("95% high")
            csv[name] = table
    for run in page["index"]["runs"]:  # numbers stand beside each other by judge and measure now
        [scoring] = run["scorings"]
        scores = [[score for score, _ in cells[-1]] for cells in scoring["cells"]]
        # the id of a question came later
        run["questions"] = [[*row[:3], *more] for row, more in zip(run["questions"], scores, strict=True)]
        run["strategies"] = scoring["strategies"]
    for run in kept_page["index"]["runs"]:
        run["questions"] = [[*row[:3], *row[3]] for row in run["questions"]]
    for view in kept_page["chunk-0-0"]:
        for summary in view["summaries"]:  # numbers were packed as characters
            codes = map(ord, summary["distances"])
            summary["distances"] = [[next(codes) - 0x5D for _ in words] for words in view["words"]]
    assert not w.differences(kept_page, page)


def test_imports_and_exports_write_the_same(work: Work) -> None:
    assert work.done["import"].code == work.done["export"].code == 0
    assert not w.differences(kept("imported.json"), w.records(work.folder("import") / "imported"))
    assert not w.differences(kept("published.json"), w.records(work.folder("export") / "published"))


def test_no_flag_is_lost(tmp_path: Path) -> None:
    done = w.calls({name: (f"{name} --help", tmp_path) for name in w.NAMES})
    for name, flags in kept("flags.json").items():
        now = w.flags(done[name].stdout)
        kept_flags = {flag for flag in flags if (name, flag) not in w.REMOVED}
        assert {w.RENAMED.get((name, flag), flag) for flag in kept_flags} <= {*now}, name
    old = {(name, flag): (f"{name} {flag}", tmp_path) for name, flag in (*w.RENAMED, *w.REMOVED)}
    done = w.calls(old, translate=False)
    for removed, advice in w.REMOVED.items():
        assert done[removed].code == 2, removed
        assert advice in done[removed].stderr, removed
    for (name, flag), new in w.RENAMED.items():
        told = done[name, flag].stderr
        assert new in told or "No such option" not in told, (
            f"{name} {flag} is neither taken nor answered with {new}"
        )


@pytest.mark.slow
def test_estimated_scores_are_the_same(tmp_path: Path) -> None:
    [(name, command)] = w.ESTIMATED.items()
    now = w.call(command, w.workplace(tmp_path / "work")).lines
    assert not w.lost(kept("shapes.json")[name], w.shape(now))
    assert not w.differences(kept("outputs.json")[name], now)


@pytest.mark.slow
@pytest.mark.parametrize("name", w.COSTLY)
def test_costly_commands_keep_the_keys_of_their_json(tmp_path: Path, name: str) -> None:
    old = kept("shapes.json")[name]
    if "[].dry_run" in old:
        # Estimates without earlier work were dropped on purpose: they are null now.
        for path, kinds in old.items():
            if path.endswith((".expected", ".seconds.most")):
                kinds.append("NoneType")
    if name == "bench":  # schedule (b), made-up items and some columns went on purpose
        gone = ("batch", "scaling", "efficiency_with_text", "torch_gemm")
        old = {path: kinds for path, kinds in old.items() if not any(word in path for word in gone)}
    if name == "demo":  # it measures usable information alone on purpose: its scores are null
        for path in ("[].score", "[].low", "[].high"):
            old[path].append("NoneType")
    place = w.workplace(tmp_path / "work")
    tiny.save(place / "tiny", "llama")
    assert not w.lost(old, w.shape(w.call(w.COSTLY[name], place).lines))


def test_the_witness_can_accuse() -> None:
    """A number off by 1e-5, a lost key, a retyped one, a lost entry: each is seen."""
    old = kept("outputs.json")["score items"]
    changed = [json.loads(json.dumps(old)) for _ in range(4)]
    changed[0][0]["score"] += 1e-5
    del changed[1][-1]["words"][0]["mean"]
    changed[2][0]["token_tasks"] = "many"
    del changed[3][0]["words"][-1]
    assert not w.differences(old, old)
    assert all(w.differences(old, one) for one in changed)
    assert [bool(w.lost(w.shape(old), w.shape(one))) for one in changed] == [False, False, True, False]
    assert w.lost(
        w.shape(old),
        w.shape([{key: value for key, value in line.items() if key != "stderr"} for line in old]),
    )
