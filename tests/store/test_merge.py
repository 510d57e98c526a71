"""Run directories of one question set as one: nothing doubled, nothing of another experiment, all of it or
nothing at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import run
from msgspec.structs import replace

from selfreflect.records import (
    AnswerSample,
    AnswerSet,
    Failure,
    Guess,
    Question,
    Record,
    Score,
    Summary,
    WordDistance,
)
from selfreflect.run.resume import scoring_label, scoring_name
from selfreflect.store.journal import REPLIES, ModelReplies, open_replies
from selfreflect.store.merge import MergeResult, merge_runs
from selfreflect.store.run import Run

FILES = ("questions.jsonl", "answers.jsonl", "summaries.jsonl", "scores.jsonl", "failures.jsonl")
SOURCE = {"source": "q.txt", "total": 6, "limit": None, "sha256": "c0ffee", "revision": ""}
JUDGE = {"name": "judge", "revision": "r1", "dtype": "float32", "device": "cpu"}
SERVED = {"model": "openai:m", "base_url": "http://node-1:8000/v1"}


def records(number: int, text: str = "yes", answers: int = 1) -> list[Record]:
    id_ = f"q-{number}"
    guesses = ((Guess("no", 0.1, 0.2, 0.3, 0.4),),)
    words = tuple(
        WordDistance(answer=place, word=0, text=text, distances=(1 / 3,), guesses=guesses)
        for place in range(answers)
    )
    return [
        Question(id=id_, text=f"{text}?"),
        AnswerSet(question_id=id_, masked_out=(text,) * answers, conditioning=("no",)),
        Summary(question_id=id_, name="greedy", text=text),
        Score(
            question_id=id_,
            summary="greedy",
            value=0.001 * number,
            stderr=None,
            token_tasks=answers,
            judge="judge",
            words=words,
        ),
    ]


def directory(path: Path, numbers: list[int], *more: Record, part: str | None = None, **changes: Any) -> Path:
    """A run directory with these questions; ``changes`` replace entries of its settings, its source or its
    judge."""

    def changed(section: dict[str, Any]) -> dict[str, Any]:
        return {**section, **{key: value for key, value in changes.items() if key in section}}

    config = {
        "questions": {"source": "q.txt", "limit": None, "part": part},
        "answers": changed(SERVED),
        "scores": {"judge": "judge"},
    }
    with Run.open(path, config) as made:
        source = {**changed(SOURCE), "part": part or "", "count": len(numbers)}
        packages, prompts = {"torch": changes.get("torch", "2")}, {"answers": "p"}
        made.update_manifest(
            sources={"questions": source},
            models={"scores": changed(JUDGE)},
            packages=packages,
            prompts=prompts,
            wall_time={"scores": 2.0},
        )
        made.append_all([*(record for number in numbers for record in records(number)), *more])
    return path


def join(paths: list[Path], out: Path) -> MergeResult:
    return merge_runs(paths, out, name_scoring=scoring_name)


def contents(run: Run) -> tuple[Any, ...]:
    return run.questions, run.answers, run.summaries, run.scores, run.failures


def test_every_record_is_there_once_and_the_manifest_is_that_of_the_whole(tmp_path: Path) -> None:
    paths = [
        directory(
            tmp_path / f"{k}", [k, k + 3], part=f"{k}/3", torch=f"2.{k}", base_url=f"http://node-{k}:1/v1"
        )
        for k in (1, 2, 3)
    ]
    joined = join(paths, tmp_path / "deep" / "all")
    assert (
        joined.records[Question],
        joined.records[Score],
        joined.repeated,
        joined.total_questions,
        joined.absent,
    ) == (6, 6, {}, 6, ())
    found = Run.load(tmp_path / "deep" / "all")
    directory(tmp_path / "whole", [1, 4, 2, 5, 3, 6])
    assert contents(found) == contents(Run.load(tmp_path / "whole"))
    manifest = found.manifest
    assert manifest.config["questions"] == {"source": "q.txt", "limit": None, "part": None}
    assert manifest.sources["questions"] == {**SOURCE, "part": "", "count": 6}
    assert manifest.packages == {"torch": "2.1, 2.2, 2.3"}
    assert manifest.wall_time == {"scores": 6.0}
    assert sorted(entry.name for entry in (tmp_path / "deep").iterdir()) == ["all"]


def test_what_the_directories_found_out_and_were_asked_for_stays(tmp_path: Path) -> None:
    paths = [
        directory(tmp_path / f"{k}", [k], part=f"{k}/2", base_url=f"http://node-{k}:1/v1") for k in (1, 2)
    ]
    check = {"model": "openai:m", "temperature": 1.0, "top_p": 1.0, "replies": "differ"}
    stuck = {**check, "replies": "identical", "questions": 1, "identical_questions": 1, "accepted": True}
    later = {"strategies": ["greedy"], "seed": 3}
    for path, entry, names in zip(paths, (check, stuck), (["greedy"], ["basic", "greedy"]), strict=True):
        with Run.open(path, {}) as opened:
            opened.update_manifest(checks={"answers": entry}, plan={"strategies": names})
            opened.update_manifest(asked={"summaries": later, "scores": {"judge": "other"}})
            opened.append(Question(id="open", text="Open?"))
            opened.append(AnswerSample(question_id="open", index=0, request="d", text="half", finish="stop"))
    outcome = run("import", *paths, "--out", tmp_path / "all")
    manifest = Run.load(tmp_path / "all").manifest
    assert (manifest.checks["answers"]["replies"], manifest.checks["answers"]["accepted"]) == (
        "identical",
        True,
    )
    assert manifest.plan == {"strategies": ["greedy", "basic"]}
    assert manifest.asked == {"summaries": later}  # scores have settings
    assert "1 question had only some of their answers" in outcome.said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "openai:other"}, 'answers.model: "openai:m" -> "openai:other"'),
        ({"sha256": "beef"}, 'source of questions.sha256: "c0ffee" -> "beef"'),
        ({"total": 7}, "source of questions.total: 6 -> 7"),
        ({"revision": "r2"}, 'model of scores.revision: "r1" -> "r2"'),
        ({"dtype": "bfloat16"}, 'model of scores.dtype: "float32" -> "bfloat16"'),
    ],
)
def test_what_was_made_otherwise_is_refused_and_nothing_is_made(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    paths = [directory(tmp_path / "a", [1], part="1/2"), directory(tmp_path / "b", [2], part="2/2", **change)]
    outcome = run("import", *paths, "--out", tmp_path / "all")
    assert outcome.code == 2
    assert f"{tmp_path / 'b'} was created with different settings" in outcome.said
    assert said in outcome.said
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a", "b"]


def test_directories_may_have_been_measured_in_turn(tmp_path: Path) -> None:
    paths = [directory(tmp_path / "a", [1]), directory(tmp_path / "b", [2])]
    for path, measures in zip(paths, ("selfreflect", "selfreflect,information"), strict=True):
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["config"]["scores"] |= {"measures": measures, "controls": measures == "selfreflect"}
        if measures == "selfreflect":
            manifest["config"]["scores"]["reader"] = "auto"  # the other one is older than this setting
        (path / "manifest.json").write_text(json.dumps(manifest))
    assert run("import", *paths, "--out", tmp_path / "all").code == 0
    assert len(Run.load(tmp_path / "all").scores) == 2


def test_a_question_of_several_directories_is_taken_whole_from_the_first_and_reported(tmp_path: Path) -> None:
    lost = Failure(question_id="q-2", stage="answers", kind="backend", message="down")
    first = directory(tmp_path / "a", [1], records(2)[0], lost)
    second = directory(
        tmp_path / "b", [2, 1, 3], Summary(question_id="q-1", name="basic", text="of the second")
    )
    outcome = run("import", first, second, first, "--out", tmp_path / "all")
    assert outcome.code == 0
    assert f"2 questions are in several directories, such as 'q-2' in {first} and {second};" in outcome.said
    found = Run.load(tmp_path / "all")
    assert list(found.questions) == ["q-1", "q-2", "q-3"]
    assert list(found.answers) == ["q-1", "q-3"]
    assert list(found.summaries) == [("q-1", "greedy"), ("q-3", "greedy")]
    assert found.failures == [lost]


def score_again(path: Path, number: int, judge: str, value: float, *, failed: bool = False) -> None:
    """Add a scoring by another judge: a score, or the failure of one."""
    settings = {"judge": judge}
    with Run.open(path, {}) as made:
        made.select_scoring(scoring_name(settings))
        facts = {**JUDGE, "name": judge}
        made.update_manifest(config={"scores": settings}, models={"scores": facts}, wall_time={"scores": 5.0})
        score = records(number)[3]
        assert isinstance(score, Score)
        if failed:
            made.append(
                Failure(
                    question_id=score.question_id, stage="scores", kind="too_long", message="!", name="greedy"
                )
            )
        else:
            made.append(replace(score, judge=judge, value=value))


def by_judge(path: Path) -> dict[str, tuple[dict[str, float], list[str], float]]:
    """Of each scoring, the main one first: values and failures by question, and its seconds."""
    stored = Run.load(path)
    scorings = {}
    for name in stored.scorings:
        stored.select_scoring(name)
        values = {id_: score.value for (id_, _), score in stored.scores.items()}
        failures = [failure.question_id for failure in stored.failures]
        label = scoring_label(stored.manifest.config["scores"])
        scorings[label] = (values, failures, stored.manifest.wall_time["scores"])
        assert {score.judge for score in stored.scores.values()} <= {label}
        assert stored.manifest.models["scores"]["name"] == label
    return scorings


def turned(path: Path, number: int, value: float, *, failed: bool = False) -> Path:
    """A directory that was scored by "big" first, and then by "judge"."""
    scored = records(number)
    lost = Failure(question_id=f"q-{number}", stage="scores", kind="too_long", message="!", name="greedy")
    config = {"questions": {"source": "q.txt", "limit": None, "part": None}, "answers": SERVED}
    with Run.open(path, {**config, "scores": {"judge": "big"}}) as made:
        made.update_manifest(
            sources={"questions": {**SOURCE, "part": "", "count": 1}},
            models={"scores": {**JUDGE, "name": "big"}},
            wall_time={"scores": 5.0},
        )
        score = scored.pop()
        assert isinstance(score, Score)
        made.append_all([*scored, lost if failed else replace(score, judge="big", value=value)])
        made.select_scoring(scoring_name({"judge": "judge"}))
        made.update_manifest(
            config={"scores": {"judge": "judge"}}, models={"scores": JUDGE}, wall_time={"scores": 2.0}
        )
        made.append(score)
    return path


def test_scorings_are_joined_by_judge_whichever_is_first(tmp_path: Path) -> None:
    first, second = directory(tmp_path / "a", [1]), directory(tmp_path / "b", [2])
    score_again(first, 1, "big", 0.5)
    score_again(second, 2, "big", 0.6, failed=True)
    third = turned(tmp_path / "c", 3, 0.7)
    fourth = turned(tmp_path / "d", 4, 0.8, failed=True)
    outcome = run("import", third, first, second, fourth, first, "--out", tmp_path / "all")
    assert outcome.code == 0
    assert "Incomplete" not in outcome.said
    joined = by_judge(tmp_path / "all")
    assert list(joined) == ["big", "judge"]
    assert joined["big"] == ({"q-3": 0.7, "q-1": 0.5}, ["q-2", "q-4"], 20.0)
    assert joined["judge"] == ({f"q-{n}": 0.001 * n for n in (3, 1, 2, 4)}, [], 8.0)
    assert list(by_judge_of(first, second, third, out=tmp_path / "most")) == ["judge", "big"]


def by_judge_of(*paths: Path, out: Path) -> dict[str, Any]:
    assert run("import", *paths, "--out", out).code == 0
    return by_judge(out)


def test_what_only_some_directories_have_is_kept_and_called_incomplete(tmp_path: Path) -> None:
    other = turned(tmp_path / "b", 2, 0.7)
    paths = [directory(tmp_path / "a", [1]), other, directory(tmp_path / "c", [3])]
    outcome = run("import", *paths, "--out", tmp_path / "all")
    assert (
        "Scores are incomplete: judge big scored in 1 of 3 directories. Add the rest with: selfreflect "
        "score --out "
        f"{tmp_path / 'all'} --judge big" in outcome.said
    )
    assert by_judge(tmp_path / "all")["big"][0] == {"q-2": 0.7}
    lines = run("report", tmp_path / "all", "--json").json
    assert [(line["judge"], line["n"]) for line in lines] == [("judge", 3), ("big", 1)]
    unscored = tmp_path / "d"
    with Run.open(unscored, {}) as made:
        made.append_all(records(4)[:3])
    outcome = run("import", unscored, other, "--out", tmp_path / "both")
    assert "Scores are incomplete: judge big scored in 1 of 2 directories" in outcome.said
    assert list(by_judge(tmp_path / "both")) == ["big", "judge"]


def test_a_torn_last_line_is_passed_over_and_a_damaged_one_stops_everything(tmp_path: Path) -> None:
    good, bad = directory(tmp_path / "a", [1]), directory(tmp_path / "b", [2, 3])
    whole = (bad / "scores.jsonl").read_bytes()
    (bad / "scores.jsonl").write_bytes(b"{}\n" + whole)
    refused = run("import", good, bad, "--out", tmp_path / "all")
    assert refused.code == 2
    assert f"{bad / 'scores.jsonl'}, line 1" in refused.said
    assert not (tmp_path / "all").exists()
    (bad / "scores.jsonl").write_bytes(whole[:-5])
    joined = join([good, bad], tmp_path / "all")
    assert joined.records[Score] == 2, "what the first try left behind is not in the way"
    assert list(Run.load(tmp_path / "all").scores) == [("q-1", "greedy"), ("q-2", "greedy")]
    assert not (tmp_path / "all.joining").exists()


def test_an_existing_directory_is_not_touched(tmp_path: Path) -> None:
    path = directory(tmp_path / "a", [1])
    before = {name: (path / name).read_bytes() for name in FILES if (path / name).exists()}
    for out in (path, path / "questions.jsonl"):
        assert run("import", path, "--out", out).code == 2
    assert {name: (path / name).read_bytes() for name in before} == before
    (tmp_path / "empty").mkdir()
    assert run("import", path, "--out", tmp_path / "empty").code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["RUN", "--items", "x.json"], "Give --items"),
        (["RUN", "--limit", 3], "belong to --items"),
        (["RUN", "--leave-out", "words"], "--leave-out"),
    ],
)
def test_options_of_another_form_are_refused(tmp_path: Path, arguments: list[Any], said: str) -> None:
    path = directory(tmp_path / "a", [1])
    outcome = run(
        "import",
        *(path if argument == "RUN" else argument for argument in arguments),
        "--out",
        tmp_path / "all",
    )
    assert outcome.code == 2
    assert said in outcome.said
    assert not (tmp_path / "all").exists()


def test_replies_of_all_directories_are_kept(tmp_path: Path) -> None:
    def reply(request: str, **fields: Any) -> ModelReplies:
        return ModelReplies(step="p_true", request=request, model="m", **fields)

    said = {"texts": ("True",), "finishes": ("stop",)}
    given_ = [[reply("a", **said), reply("b", failure="backend")], [reply("b", **said)], []]
    for number, replies in enumerate(given_):
        Run.open(tmp_path / str(number), {}).close()
        with open_replies(tmp_path / str(number)) as store:
            store.append_all(replies)
    paths = [tmp_path / str(number) for number in range(3)]
    merge_runs(paths, tmp_path / "all", name_scoring=scoring_name)
    with open_replies(tmp_path / "all") as store:
        assert store.records == {"a": reply("a", **said), "b": reply("b", **said)}
    merge_runs(paths[2:], tmp_path / "none", name_scoring=scoring_name)
    assert not (tmp_path / "none" / REPLIES).exists()


def test_two_joins_do_not_write_the_same_directory(tmp_path: Path) -> None:
    path = directory(tmp_path / "a", [1])
    with Run.open(tmp_path / "all.joining", {}):
        outcome = run("import", path, "--out", tmp_path / "all")
    assert outcome.code == 2
    assert "Another process" in outcome.said
