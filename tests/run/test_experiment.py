"""A run directory being filled: nothing is done twice, nothing is lost, and what it was made with cannot
change behind one's back."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from command import run, small, written
from measured import controls, information
from scripted import Scripted

from selfreflect.errors import BackendError, StoreError
from selfreflect.logprobs import AnswerTokens
from selfreflect.models.local import pretrained
from selfreflect.prompts import load_prompts
from selfreflect.records import STAGES, Question
from selfreflect.run.experiment import Experiment, open_experiment
from selfreflect.run.models import ConfiguredModels, Progress, Quiet
from selfreflect.run.records import run_records
from selfreflect.run.stages import Outcome
from selfreflect.settings import Config, ExecutionOptions, load_config
from selfreflect.store.run import Run

DATA = ("questions.jsonl", "answers.jsonl", "summaries.jsonl", "scores.jsonl")
TEXTS = ["What first?", "Who is it?", "Which pot?", "Why not?"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tiny

    return tiny.save(tmp_path_factory.mktemp("model"), "llama", max_position_embeddings=400)


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("questions") / "q.txt", "\n".join(TEXTS))


def contents(out: Path) -> dict[str, bytes]:
    return {name: (out / name).read_bytes() for name in DATA}


def times(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in out.iterdir() if path.name != ".lock"}


def test_a_strategy_added_later_costs_only_itself(model: Path, questions: Path, tmp_path: Path) -> None:
    assert run(*small(model, tmp_path / "a", questions)).code == 0
    before, earlier = contents(tmp_path / "a"), Run.load(tmp_path / "a").manifest.wall_time
    added = run(*small(model, tmp_path / "a", questions, strategies="greedy,basic,concatenated_answers"))
    assert [line for line in added.stderr.splitlines() if "to do" in line] == [
        "summaries: 4 to do",
        "scores: 4 to do",
    ]
    after = contents(tmp_path / "a")
    assert [name for name in DATA if after[name] == before[name]] == ["questions.jsonl", "answers.jsonl"]
    assert all(after[name].startswith(before[name]) for name in DATA)
    later = Run.load(tmp_path / "a").manifest.wall_time
    assert [stage for stage in later if later[stage] > earlier[stage]] == ["summaries", "scores"]
    assert min(later.values()) > 0


def test_what_a_measure_left_out_is_completed_later(model: Path, questions: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    assert run(*small(model, out, questions), "--measures", "information", "--no-controls").code == 0
    first = Run.load(out)
    assert (len(first.scores), len(first.information), len(first.controls)) == (0, 8, 0)
    shown = run("score", "--out", out)
    assert "8 summaries, measured: 8 by information" in shown.stderr
    assert {one.reader for one in first.information.values()} == {"blind"}  # the judge gave the answers
    inherited = run("score", "--out", out)
    assert "to do" not in inherited.stderr
    both = run("score", "--out", out, "--measures", "selfreflect,information", "--controls")
    assert "scores: 8 to do" in both.stderr
    assert both.code == 0
    whole = Run.load(out)
    assert (len(whole.scores), len(whole.controls)) == (8, 4)
    assert whole.information == first.information
    assert "to do" not in run("score", "--out", out, "--measures", "selfreflect").stderr
    # another reader measures again what the first one has measured, and nothing else
    scores = (out / "scores.jsonl").read_bytes()
    assert (
        run("score", "--out", out, "--reader", "informed", "--measures", "information", "--controls").code
        == 0
    )
    informed = Run.load(out)
    assert {one.reader for one in informed.information.values()} == {"informed"}
    assert {one.reader for one in informed.controls.values()} == {"informed"}
    assert (out / "scores.jsonl").read_bytes() == scores
    assert "to do" not in run("score", "--out", out, "--measures", "information").stderr


def test_information_that_another_try_may_measure_is_tried_again_and_none_at_all_is_a_failure(
    model: Path, questions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "r"
    assert run(*small(model, out, questions), "--measures", "information", "--no-controls").code == 0
    file = out / "information.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()]
    for kind, code in ((None, 1), ("too_long", 1), ("backend", 0)):
        why = {"undefined": "unmeasured", "why": "it failed", "bits": None, "bits_available": None}
        failed = [{**record, **why, "kind": kind, "recovered": None, "interval": None} for record in records]
        file.write_text("".join(json.dumps(record) + "\n" for record in failed))
        again = run("score", "--out", out)
        assert again.code == code
        assert ("scores: 8 to do" in again.stderr) == (kind == "backend")
    assert {one.kind for one in Run.load(out).information.values()} == {None}


def test_the_scores_of_an_older_directory_get_their_information(
    model: Path, questions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "r"
    assert run(*small(model, out, questions), "--measures", "selfreflect", "--no-controls").code == 0
    manifest = json.loads((out / "manifest.json").read_text())
    for key in ("measures", "reader", "controls"):  # as before there were these settings
        del manifest["config"]["scores"][key]
    (out / "manifest.json").write_text(json.dumps(manifest))
    scores = (out / "scores.jsonl").read_bytes()
    assert run("score", "--out", out).code == 0
    assert (out / "scores.jsonl").read_bytes() == scores
    completed = Run.load(out)
    assert (len(completed.information), len(completed.controls)) == (8, 4)
    for unnamed in (["anchor"], ["anchor", "zero"]):  # as before records named their ends
        for name in ("information.jsonl", "controls.jsonl"):
            lines = (out / name).read_text().splitlines()
            records = [{**json.loads(line), "bits_available": 77.0} for line in lines]
            for record in records:
                for end in unnamed:
                    record.pop(end, None)
            (out / name).write_text("".join(json.dumps(record) + "\n" for record in records))
        again = run("score", "--out", out)
        assert "scores: 8 to do" in again.stderr
        assert Run.load(out).information == completed.information
        assert Run.load(out).controls == completed.controls
        assert (out / "scores.jsonl").read_bytes() == scores


@pytest.mark.parametrize("scale", [{"zero": "question", "anchor": "pasted"}, {"anchor": "pasted"}])
def test_bits_on_different_scales_never_stand_in_one_table(scale: dict[str, str]) -> None:
    old = information("q0", "greedy", 5.0, **scale)
    run = Run.in_memory("r")
    new = information("q1", "greedy", 6.0), information("q2", "greedy", 6.0, reader="blind", zero="repeated")
    run.add_in_memory([old, controls("q0", **scale), *new])
    mixed = run_records(run)
    assert [key for key, _ in mixed.information] == ["q1", "q2"]
    assert not mixed.controls
    run.add_in_memory([controls("q0", **scale, temperature=5.0)])
    [empty, pasted] = run_records(run).controls["q0"].controls  # the anchors of SelfReflect scores stay
    assert (empty.score, empty.bits, pasted.score, pasted.bits) == (0.086, None, 0.068, None)
    run = Run.in_memory("r")
    run.add_in_memory([old, controls("q0", **scale)])
    assert run_records(run).information == {("q0", "greedy"): old}
    assert [*run_records(run).controls] == ["q0"]


def test_one_measure_after_the_other_keeps_the_controls_of_both(
    model: Path, questions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "r"
    assert run(*small(model, out, questions), "--measures", "selfreflect").code == 0
    scored = Run.load(out).controls
    assert run("score", "--out", out, "--measures", "information").code == 0
    for id_, of_question in Run.load(out).controls.items():
        assert of_question.reader is not None
        assert {control.bits is None for control in of_question.controls} == {False}
        assert [one.score for one in of_question.controls] == [one.score for one in scored[id_].controls]
        assert of_question.find("empty").score is not None
    assert "to do" not in run("score", "--out", out, "--measures", "selfreflect,information").stderr


def test_other_settings_are_refused_and_shown(model: Path, questions: Path, tmp_path: Path) -> None:
    command = small(model, tmp_path / "r", questions)
    assert run(*command).code == 0
    before = times(tmp_path / "r")
    refused = run(*command, "--num-answers", 3, "--seed", 7)
    assert refused.code == 2
    for part in (
        "answers.num_answers: 2 -> 3",
        "summaries.seed: 0 -> 7",
        "add --fresh to the complete run command",
    ):
        assert part in refused.stderr
    assert times(tmp_path / "r") == before
    assert run(*command, "--num-answers", 3, "--fresh", "--yes").code == 0
    assert {len(drawn.masked_out) for drawn in Run.load(tmp_path / "r").answers.values()} == {3}


def test_log_probabilities_are_not_added_to_answers_that_lack_them(
    model: Path, questions: Path, tmp_path: Path
) -> None:
    sizes = ("--num-answers", 2, "--max-new-tokens", 6, "--device", "cpu")
    common = ("answers", "--questions", questions, "--model", model, *sizes, "--out", tmp_path / "r")
    assert run(*common).code == 0
    before = times(tmp_path / "r")
    refused = run(*common, "--logprobs")
    assert refused.code == 2
    assert "sampled without log-probabilities, which cannot be added" in refused.said
    assert times(tmp_path / "r") == before
    assert run(*common[:-1], tmp_path / "new", "--logprobs").code == 0
    plain, rich = (Run.load(tmp_path / name).answers for name in ("r", "new"))
    assert {one.logprobs for one in plain.values()} == {()}
    for key, drawn in rich.items():
        assert drawn.answers == plain[key].answers
        assert all(isinstance(tokens, AnswerTokens) for tokens in drawn.logprobs)
    again = run("answers", "--out", tmp_path / "new")
    assert again.code == 0, again.said  # the directory remembers it


def test_limits_are_settings_and_their_estimates_are_completed_with_the_same_words(
    model: Path, questions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "r"
    command = small(model, out, questions, strategies="greedy,basic")
    assert run(*command, "--budget", 1, "--seed", 5).code == 1
    failures = Run.load(out).failures
    assert {failure.kind for failure in failures} == {"over_budget"}
    enough = max(int(failure.message.split()[-1]) for failure in failures)
    assert run(*command, "--budget", enough, "--seed", 5, "--fresh", "--yes").code == 0
    assert run("summarize", "--out", out, "--strategies", "concatenated_answers").code == 0
    assert run("score", "--out", out).code == 0
    stored = Run.load(out)
    assert stored.manifest.config["scores"]["seed"] == 5
    for question in stored.questions:
        greedy, basic, added = (
            stored.scores[question, name] for name in ("greedy", "basic", "concatenated_answers")
        )
        assert greedy.estimate is not None
        places = [(word.answer, word.word) for word in greedy.words]
        assert places == [(word.answer, word.word) for word in basic.words]
        assert [(word.answer, word.word) for word in added.words] == places


def test_failures_that_would_only_repeat_are_recorded_and_left_alone(model: Path, tmp_path: Path) -> None:
    questions = written(tmp_path / "q.txt", "What first?\n" + "long " * 500 + "?\n")
    command = small(model, tmp_path / "r", questions, strategies="greedy")
    first = run(*command)
    assert first.code == 1
    stored = Run.load(tmp_path / "r")
    assert {(failure.stage, failure.kind) for failure in stored.failures} >= {
        ("answers", "too_long"),
        ("summaries", "too_long"),
    }
    assert len({failure.question_id for failure in stored.failures}) == 1
    assert [len(records) for records in (stored.answers, stored.summaries, stored.scores)] == [1, 1, 1]
    before = contents(tmp_path / "r")
    again = run(*command)
    assert again.code == 1
    assert [line for line in again.stderr.splitlines() if "to do" in line] == []
    assert Run.load(tmp_path / "r").failures == stored.failures
    assert contents(tmp_path / "r") == before


def test_failures_that_may_mend_are_tried_again(
    model: Path, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(
        tmp_path / "flaky_strategy.py",
        "from pathlib import Path\n\n\n"
        "def ask(task):\n"
        "    if Path('broken').exists():\n"
        "        raise OSError('no service')\n"
        "    [reply] = yield task.request(task.messages(), 'summary')\n    return reply.text or 'nothing'\n",
    )
    written(tmp_path / "broken", "")
    command = small(model, tmp_path / "r", questions, strategies="flaky_strategy:ask")
    assert run(*command).code == 1
    assert {failure.kind for failure in Run.load(tmp_path / "r").failures} == {"strategy"}
    (tmp_path / "broken").unlink()
    assert run(*command).code == 0
    stored = Run.load(tmp_path / "r")
    assert (stored.failures, len(stored.scores)) == ([], len(stored.questions))


def test_the_manifest_says_what_the_run_was_made_with(
    model: Path, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-verysecret")
    assert run(*small(model, tmp_path / "r", questions, strategies="greedy")).code == 0
    manifest = Run.load(tmp_path / "r").manifest
    assert set(manifest.config) == set(manifest.wall_time) == {"questions", "answers", "summaries", "scores"}
    for part in ("answers", "summaries", "scores"):
        facts = manifest.models[part]
        assert (facts["name"], facts["dtype"], facts["device"], "revision" in facts) == (
            str(model),
            "float32",
            "cpu",
            True,
        )
    assert {
        "python",
        "selfreflect",
        "torch",
        "transformers",
        "tokenizers",
        "numpy",
    } <= manifest.packages.keys()
    assert {name: len(value) for name, value in manifest.prompts.items()} == {"answers": 64, "summaries": 64}
    assert manifest.prompt_texts[manifest.prompts["answers"]]["answers"]["user"] == "{question}"
    assert manifest.finished.keys() == {"questions", "answers", "summaries", "scores"}
    source = manifest.sources["questions"]
    assert (source["source"], source["total"], source["count"], len(source["sha256"])) == (
        str(questions),
        4,
        4,
        64,
    )
    assert "verysecret" not in (tmp_path / "r" / "manifest.json").read_text(encoding="utf-8")


# --- models


class Workers:
    """Executors that give prepared outcomes."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self.prepared = outcomes

    def outcomes(self, *_: object) -> Generator[Outcome, None, None]:
        yield from self.prepared


def answers_by(workers: Workers, run: Run, progress: Progress) -> None:
    """The answers stage of an experiment with other executors."""
    options, prompts = ExecutionOptions(), load_prompts()
    Experiment(run, Config(), prompts, options, progress, workers).fill("answers")  # type: ignore[arg-type]


def test_workers_must_have_one_model_wherever_it_runs(tmp_path: Path) -> None:
    facts = {"name": "m", "revision": "1", "device": "cuda:0", "dtype": "float32"}
    lines: list[str] = []

    class Listening(Quiet):
        def note(self, line: str) -> None:
            lines.append(line)

    same = [Outcome(facts={**facts, "device": f"cuda:{number}"}, notes=["loading m"]) for number in range(2)]
    with Run.open(tmp_path / "r", {}) as run:
        run.append(Question(id="q", text="What first?"))
        answers_by(Workers(same), run, Listening())
        assert lines.count("loading m") == 1
        for key, value in (("revision", "2"), ("dtype", "bfloat16")):
            other = Outcome(facts={**facts, key: value})
            with pytest.raises(BackendError, match=rf"{value}"):
                answers_by(Workers([*same, other]), run, Quiet())


class ScriptedModels:
    """A provider of a generator that needs no model, and of a judge; remembers who asked."""

    def __init__(self, judge: Any) -> None:
        self.asked: list[str] = []
        self._judge = judge

    def generator(self, stage: str) -> Any:
        self.asked.append(stage)
        scripted: Any = Scripted("Radishes, or lettuce.")
        scripted.facts = {"name": "scripted", "revision": ""}
        return scripted

    def judge(self) -> Any:
        self.asked.append("judge")
        return self._judge


def test_an_experiment_loads_the_models_of_its_stages_under_one_lock(
    questions: Path, tmp_path: Path, tiny_judge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = ScriptedModels(tiny_judge("llama"))
    monkeypatch.setattr("selfreflect.run.experiment.ConfiguredModels", lambda *_, **__: models)
    config = load_config(
        None,
        {"questions": {"source": str(questions)}, "answers": {"num_answers": 2}, "scores": {"judge": "tiny"}},
    )
    with open_experiment(tmp_path / "r", config, STAGES) as experiment:
        settled = []
        experiment.questions()
        for stage in (None, "answers", "summaries", "scores", "answers"):
            if stage is not None:
                experiment.fill(stage, ["greedy", "basic"])
            settled.append(len(Run.load(tmp_path / "r").manifest.config))
            with pytest.raises(StoreError, match="Another process"):
                Run.open(tmp_path / "r", {})
    assert settled == [1, 2, 3, 4, 4]
    assert models.asked == ["answers", "summaries", "judge"]
    stored = Run.load(tmp_path / "r")
    assert {summary.text for summary in stored.summaries.values()} == {"Radishes, or lettuce."}
    assert len(stored.scores) == 8


def test_the_generator_is_let_go_before_a_judge_is_put_on_the_same_gpus(
    model: Path, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --device-map auto both may need all the memory there is. Here the parts are all on the CPU."""
    import tiny

    generators: list[weakref.ref[Any]] = []
    alive: list[int] = []

    class Remembered(ConfiguredModels):
        def generator(self, stage: Any) -> Any:
            generator: Any = super().generator(stage)
            generators.append(weakref.ref(generator.lm.model))
            return generator

    def placement(parts: object, device: str) -> dict[str, Any]:
        alive.append(sum(generator() is not None for generator in generators))
        return {}

    monkeypatch.setattr(pretrained, "placement", placement)
    judge = tiny.save(tmp_path / "judge", "llama")
    config = load_config(
        None,
        {
            "questions": {"source": str(questions), "limit": 2},
            "answers": {"model": str(model), "num_answers": 2, "max_new_tokens": 6},
            "summaries": {"model": str(model), "max_new_tokens": 8},
            "scores": {"judge": str(judge)},
        },
    )
    options = ExecutionOptions(device="cpu", device_map="auto")
    monkeypatch.setattr("selfreflect.run.experiment.ConfiguredModels", Remembered)
    with open_experiment(tmp_path / "r", config, STAGES, options=options) as experiment:
        experiment.questions()
        experiment.fill("answers")
        experiment.fill("summaries", ["greedy"])
        assert alive == [0], "answers and summaries share their model"
        assert generators[-1]() is not None
        experiment.fill("scores")
        assert alive == [0, 0]
        assert len(experiment.run.scores) == 2


def test_a_directory_from_before_a_setting_existed_goes_on_with_its_default(
    model: Path, questions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "r"
    command = (*small(model, out, questions, strategies="greedy"), "--seed", 7)
    assert run(*command).code == 0
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    for key in ("budget", "seed"):
        del manifest["config"]["scores"][key]
    written(out / "manifest.json", manifest)
    assert run(*command).code == 0
    assert run("score", "--out", out).code == 0
    assert Run.load(out).scorings == [""]
