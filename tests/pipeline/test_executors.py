"""StageFn in other processes of this machine: the same records as in this one, and errors that read as if
they had happened here."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command import environment, run, small, written
from fault_server import Action, Call, FaultServer, answers, silent, status
from hypothesis import given
from hypothesis import strategies as st
from pooling import pooling

from selfreflect.config import Config, load_config
from selfreflect.errors import BackendError, ConfigError, JudgeError, MissingExtraError, StoreError
from selfreflect.pipeline.executors import Executors, LocalExecutor, ProcessExecutor, environment_of
from selfreflect.pipeline.experiment import open_experiment
from selfreflect.pipeline.models import ConfiguredModels
from selfreflect.pipeline.options import ExecutionOptions, Quiet
from selfreflect.pipeline.stages import StageSpec, StageTask
from selfreflect.pipeline.wire import Batch, Outcome, StageWorker, each_once, split_into_batches
from selfreflect.prompts import load_prompts
from selfreflect.records import STAGES, AnswerSet, Failure, Question, Score, Summary, WordDistance
from selfreflect.store.run import Run
from selfreflect.strategies.greedy import greedy

TEXTS = ["What first?", "Who is it?", "Which pot?", "Why not?", "When then?", "long " * 500 + "?"]
STRATEGIES = ["greedy", "basic"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tiny

    return tiny.save(tmp_path_factory.mktemp("model"), "llama", max_position_embeddings=400)


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("questions") / "q.txt", "\n".join(TEXTS))


@pytest.fixture(scope="module")
def calm(model: Path, questions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in this process."""
    out = tmp_path_factory.mktemp("calm") / "r"
    assert run(*small(model, out, questions)).code == 1  # the long question fails
    return out


def settings(model: Path | str, questions: Path | str) -> Config:
    tokens = {"model": str(model), "max_new_tokens": 6}
    return load_config(
        None,
        {
            "questions": {"source": str(questions)},
            "answers": {**tokens, "num_answers": 2},
            "summaries": {**tokens, "max_new_tokens": 8, "sample_max_new_tokens": 6, "num_samples": 2},
            "scores": {"judge": str(model)},
        },
    )


def records(out: Path) -> dict[str, Any]:
    """All records of a run, by their keys."""
    run = Run.load(out)
    failures = {(one.stage, one.question_id, one.name): one for one in run.failures}
    return {"answers": run.answers, "summaries": run.summaries, "scores": run.scores, "failures": failures}


class Noted(Quiet):
    """Remembers what was said, and calls back at every step."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)


# --- replicas


def test_two_replicas_give_what_one_process_gives(
    model: Path, questions: Path, calm: Path, tmp_path: Path
) -> None:
    out, noted = tmp_path / "r", Noted()
    options = ExecutionOptions(device="cpu", devices=("cpu", "cpu"))
    with open_experiment(out, settings(model, questions), STAGES, options=options, progress=noted) as opened:
        opened.questions()
        opened.answers()
        opened.summaries(STRATEGIES)
        opened.scores()
    assert records(out) == records(calm)
    one, other = Run.load(out).manifest, Run.load(calm).manifest
    assert (one.config, one.models, one.prompts) == (other.config, other.models, other.prompts)
    assert noted.lines.count(f"loading judge {model}") == 1, "what both replicas say is said once"
    again = run(*small(model, out, questions))
    assert again.code == 1
    assert "to do" not in again.stderr, "a run is continued wherever it was begun"


def test_a_replica_that_is_killed_ends_the_stage_with_what_was_done(
    model: Path, questions: Path, calm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(
        tmp_path / "suicidal.py",
        "import os, signal\nfrom pathlib import Path\n\n\ndef ask(task):\n"
        "    if task.question.text == 'When then?' and not Path('mended').exists():\n        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    [reply] = yield task.request(task.messages(), 'summary')\n    return reply.text or 'nothing'\n",
    )
    out, options = tmp_path / "r", ExecutionOptions(device="cpu", devices=("cpu", "cpu"), batch_questions=1)
    with open_experiment(out, settings(model, questions), STAGES, options=options) as opened:
        opened.questions()
        with pytest.raises(
            BackendError,
            match=r"process on cpu ended with status -9.* of 6 summaries saved, . to go. Run the same command to resume",
        ):
            opened.summaries(["suicidal:ask"])
        made = dict(opened.run.summaries)
    written(tmp_path / "mended", "")
    options = ExecutionOptions(device="cpu")  # in this process, where the model is loaded
    with open_experiment(out, settings(model, questions), STAGES, options=options) as opened:
        opened.summaries(["suicidal:ask"])
        assert len(opened.run.summaries) == 5
        assert made.items() <= opened.run.summaries.items()


def test_an_error_in_a_replica_is_raised_once_as_here(questions: Path, tmp_path: Path) -> None:
    nothing = str(tmp_path / "nothing")
    found = {}
    for devices in ((), ("cpu", "cpu")):
        out = tmp_path / f"{len(devices)}"
        with open_experiment(
            out, settings(nothing, questions), STAGES, options=ExecutionOptions(device="cpu", devices=devices)
        ) as opened:
            opened.questions()
            with pytest.raises(BackendError) as caught:
                opened.answers()
        found[devices] = str(caught.value)
        assert "answers" not in Run.load(out).manifest.config, "a mistyped name does not stick"
    assert (
        found["cpu", "cpu"] == f"{found[()]}. 0 of 6 answers saved, 6 to go. Run the same command to resume."
    )
    assert "is not a directory with a model" in found[()]


def test_an_interrupt_ends_the_replicas() -> None:
    import psutil

    with FaultServer(lambda call: silent) as server:

        def interrupt() -> None:
            eventually(lambda: len(server.calls) > 1)
            os.kill(os.getpid(), signal.SIGINT)

        served = {"model": "openai:m", "base_url": server.url, "num_answers": 1}
        job = StageSpec("answers", load_config(None, {"answers": served}), load_prompts(), ExecutionOptions())
        tasks = [StageTask(question=Question(id=f"{number}", text="?")) for number in range(2)]
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            list(ProcessExecutor(("cpu", "cpu")).outcomes(job, tasks))
        replicas = [
            child
            for child in psutil.Process().children()
            if any("spawn_main" in part for part in child.cmdline())
        ]
        assert [child for child in replicas if child.status() != psutil.STATUS_ZOMBIE] == []


ABANDONED = """
import sys
from selfreflect.config import load_config
from selfreflect.pipeline.executors import ProcessExecutor
from selfreflect.pipeline.options import ExecutionOptions
from selfreflect.prompts import load_prompts
from selfreflect.records import Question
from selfreflect.pipeline.stages import StageSpec, StageTask

config = load_config(None, {"answers": {"model": "openai:m", "base_url": sys.argv[1], "num_answers": 1}})
task = StageTask(question=Question(id="q", text="?"))
next(ProcessExecutor(("cpu",)).outcomes(StageSpec("answers", config, load_prompts(), ExecutionOptions()), [task]))
"""


def test_a_replica_at_work_ends_with_an_experiment_that_was_killed() -> None:
    import psutil

    command = [sys.executable, "-c", ABANDONED]
    with (
        FaultServer(lambda call: silent) as server,
        subprocess.Popen([*command, server.url], env=environment()) as child,
    ):
        try:
            eventually(lambda: bool(server.calls) or child.poll() is not None)
            replicas = [
                one
                for one in psutil.Process(child.pid).children()
                if any("spawn_main" in part for part in one.cmdline())
            ]
        finally:
            child.kill()
        assert len(replicas) == 1
        with suppress(psutil.NoSuchProcess):
            eventually(lambda: replicas[0].status() == psutil.STATUS_ZOMBIE)  # where nobody asks for its end


def eventually(met: Callable[[], bool]) -> None:
    limit = time.monotonic() + 50  # less than the server is silent for
    while not met():
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_a_replica_sees_its_own_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [environment_of(device) for device in ("cpu", "cuda:0", "cuda:3")] == [
        {},
        {"CUDA_VISIBLE_DEVICES": "0"},
        {"CUDA_VISIBLE_DEVICES": "3"},
    ]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8932f937, 5")
    assert environment_of("cuda:0") == {"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}
    assert environment_of("cuda:1") == {"CUDA_VISIBLE_DEVICES": "5"}


# --- where a job is done


def job(
    stage: Any = "answers", model: str = "smollm2", strategies: tuple[Any, ...] = (), **options: Any
) -> StageSpec:
    part = {"judge": model} if stage == "scores" else {"model": model}
    if model.startswith("vllm+http:"):
        part["base_url"] = "http://localhost:1/v1"
    return StageSpec(
        stage, load_config(None, {stage: part}), load_prompts(), ExecutionOptions(**options), strategies
    )


@pytest.mark.parametrize(
    ("options", "wanted", "tasks", "elsewhere"),
    [
        ({"devices": None}, job(), 2, True),
        ({"devices": None, "device": "cuda"}, job("scores"), 9, True),
        ({"devices": ("cuda:0", "cuda:1")}, job(), 2, True),
        ({"devices": ("cuda:1",)}, job(), 2, False),
        ({"devices": None}, job(), 1, False),
        ({}, job(), 9, False),
        ({"devices": None, "device": "cpu"}, job(), 9, False),
        ({"devices": None, "device_map": "auto"}, job(), 9, False),
        ({"devices": None}, job(model="openai:gpt"), 9, False),
        ({"devices": None}, job(model="vllm:smollm2"), 9, False),
        ({"devices": None}, job("scores", model="vllm+http:m"), 9, False),
        ({"devices": None}, job("summaries", strategies=(("mine", greedy),)), 9, False),
    ],
)
def test_several_gpus_are_used_for_several_questions_to_a_local_model(
    options: dict[str, Any], wanted: StageSpec, tasks: int, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    wanted = replace(wanted, options=ExecutionOptions(**options))
    executors = executors_for(wanted)
    assert isinstance(executors.choose(wanted, tasks), LocalExecutor) is not elsewhere
    executors.close()


def test_a_function_as_strategy_is_refused_where_it_cannot_go() -> None:
    wanted = job("summaries", strategies=(("mine", greedy),), executor="ray")
    with pytest.raises(
        ConfigError, match=r"strategy 'mine' is a function; with Ray name it as package.module:function"
    ):
        executors_for(wanted).choose(wanted, 2)


def executors_for(spec: StageSpec) -> Executors:
    models = ConfiguredModels(spec.config, spec.options, Quiet())
    return Executors(spec.options, models, Quiet())


# --- what crosses the boundary

# lone surrogates too: files may hold them
TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)
UNIT = st.floats(0, 1)


@given(TEXT, TEXT, st.lists(UNIT, min_size=1, max_size=5))
def test_records_arrive_as_they_were_sent(first: str, second: str, values: list[float]) -> None:
    question = Question(id="q", text=first, gold=(second,))
    answers = AnswerSet(
        question_id="q", masked_out=(first,), conditioning=(second, first), temperature=values[0]
    )
    summary = Summary(question_id="q", name=second, text=first)
    words = (WordDistance(answer=0, word=1, text=second, distances=tuple(values)),)
    score = Score(
        question_id="q", summary=second, value=values[0], stderr=None, token_tasks=3, judge="j", words=words
    )
    batch = Batch(
        number=3,
        tasks=(
            StageTask(
                question=question,
                answers=answers,
                summaries=(summary,),
                earlier_scores=(score,),
                strategies=(first,),
            ),
        ),
    )
    assert pickle.loads(pickle.dumps(batch)) == batch
    failure = Failure(question_id="q", stage="scores", kind="backend", message=second)
    outcome = Outcome(3, [score, failure], facts={"name": first}, notes=[second])
    assert pickle.loads(pickle.dumps(outcome)) == outcome


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 9))
def test_batches_hold_every_task_once_and_go_round_all_workers(
    count: int, workers: int, at_most: int
) -> None:
    tasks = [StageTask(question=Question(id=f"{number}", text="")) for number in range(count)]
    found = split_into_batches(tasks, workers, at_most)
    assert [task for batch in found for task in batch.tasks] == tasks
    assert [batch.number for batch in found] == list(range(len(found)))
    assert max(len(batch.tasks) for batch in found) <= at_most
    assert len(found) >= min(workers, count)
    assert max(len(batch.tasks) for batch in found) - min(len(batch.tasks) for batch in found) <= 1


def outcomes(*numbers: int) -> Iterator[Outcome]:
    return (Outcome(number) for number in numbers)


def test_a_batch_that_was_repeated_counts_once_and_a_lost_one_is_told() -> None:
    assert [outcome.number for outcome in each_once(outcomes(2, 0, 2, 1, 0), 3)] == [2, 0, 1]
    found = each_once(outcomes(2, 0, 2), 3)
    assert [next(found).number, next(found).number] == [2, 0]
    with pytest.raises(BackendError, match="gave back 2 of 3 batches"):
        next(found)


def test_an_error_of_a_worker_keeps_its_class_its_message_and_what_was_done_before(
    model: Path, tmp_path: Path
) -> None:
    missing = Outcome(number=0, error=("MissingExtraError", str(MissingExtraError("A model", "openai"))))
    with pytest.raises(
        MissingExtraError,
        match=r"^A model needs an optional package. Install it with: pip install 'selfreflect\[openai\]'$",
    ):
        missing.raise_error()
    Outcome(number=0).raise_error()
    worker = StageWorker(
        StageSpec(
            "answers", settings(tmp_path / "none", "bundled"), load_prompts(), ExecutionOptions(device="cpu")
        )
    )
    failed = worker(Batch(number=7, tasks=(StageTask(question=Question(id="q", text="?")),)))
    assert (failed.number, failed.results, failed.facts) == (7, [], None)
    with pytest.raises(BackendError, match="is not a directory with a model"):
        failed.raise_error()


def test_a_server_that_gives_up_halfway_costs_no_answer_that_was_there(tmp_path: Path) -> None:
    def script(call: Call) -> Action:
        return answers() if call.number < 2 else status(401, "no such key")

    with FaultServer(script) as server:
        config = load_config(
            None, {"answers": {"model": "openai:m", "base_url": server.url, "num_answers": 1}}
        )
        worker = StageWorker(
            StageSpec("answers", config, load_prompts(), ExecutionOptions(max_connections=1))
        )
        tasks = tuple(StageTask(question=Question(id=f"{number}", text=f"{number}?")) for number in range(4))
        outcome = worker(Batch(number=0, tasks=tasks))
    assert [result.question_id for result in outcome.results] == ["0", "1"]
    with pytest.raises(BackendError, match="401"):
        outcome.raise_error()


# --- options


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"executor": "rai"}, "--executor must be local or ray, not 'rai'"),
        ({"ray_address": "auto"}, "--ray-address needs --executor ray"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        ExecutionOptions(**options)


def test_a_file_of_items_is_scored_here(tmp_path: Path) -> None:
    refused = run("score", "--items", tmp_path / "none.json", "--executor", "ray")
    assert refused.code == 2
    assert "--executor and --ray-address belong to --out DIR" in refused.said


def test_a_judge_behind_a_server_has_the_timeout_that_was_asked_for(tiny_judge: Any) -> None:
    judge = tiny_judge("llama")
    answered = pooling(judge, name="m")
    with FaultServer(lambda call: silent if call.path.endswith("/embeddings") else answered(call)) as server:
        config = load_config(None, {"scores": {"judge": "vllm+http:m", "base_url": server.url}})
        with pytest.raises(JudgeError, match="no complete response came in time"):
            ConfiguredModels(config, ExecutionOptions(device="cpu", timeout=0.2), Quiet()).judge()


class Here:
    """An executor with its one worker in this process."""

    def __init__(self, devices: Sequence[str]) -> None:
        pass

    def outcomes(self, job: StageSpec, tasks: Sequence[StageTask]) -> Iterator[Outcome]:
        worker = StageWorker(job)
        for batch in split_into_batches(tasks, 1, job.batch_size):
            yield worker(batch)

    def close(self) -> None:
        pass


def test_replicas_of_a_model_that_changed_under_its_name_are_found_out(
    model: Path, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selfreflect.pipeline.executors.ProcessExecutor", Here)
    out = tmp_path / "r"
    options = ExecutionOptions(device="cpu", devices=("cpu", "cpu"))
    with open_experiment(out, settings(model, questions), STAGES, options=options) as opened:
        opened.questions()
        opened.run.update_manifest(models={"answers": {"name": "m", "revision": "old"}})
        with pytest.raises(StoreError, match="began with revision 'old'"):
            opened.answers()
        assert opened.run.answers == {}
