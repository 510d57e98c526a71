"""Stages in other processes of this machine: the same records as in this one, and errors that read as if they
had happened here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command import environment, run, small, written
from fault_server import FaultServer, silent

from selfreflect.config import Config, ExecutionOptions, load_config
from selfreflect.errors import BackendError
from selfreflect.pipeline.experiment import Experiment, open_experiment
from selfreflect.pipeline.models import Quiet
from selfreflect.pipeline.process_executor import ProcessExecutor, environment_of
from selfreflect.pipeline.stages import StageSpec
from selfreflect.pipeline.tasks import StageTask
from selfreflect.prompts import load_prompts
from selfreflect.records import STAGES, Question, Summary
from selfreflect.store.run import Run

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


class Listening(Quiet):
    """Remembers the notes."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)


SUICIDAL = """
import os, signal
from pathlib import Path


def ask(task):
    if task.question.text == 'When then?' and not Path('mended').exists():
        os.kill(os.getpid(), signal.SIGKILL)
    [reply] = yield task.request(task.messages(), 'summary')
    return reply.text or 'nothing'
"""


class Elsewhere(NamedTuple):
    """An open experiment whose three stages two processes did, with its records and what they said."""

    experiment: Experiment
    records: dict[str, Any]
    lines: list[str]


@pytest.fixture(scope="module")
def elsewhere(model: Path, questions: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    """The processes load their libraries once, which takes them longer than all of their work. They are in
    the directory of the strategy that kills one of them."""
    folder = tmp_path_factory.mktemp("elsewhere")
    written(folder / "suicidal.py", SUICIDAL)
    progress = Listening()
    options = ExecutionOptions(device="cpu", devices=("cpu", "cpu"), batch_questions=1)
    with (
        chdir(folder),
        open_experiment(
            folder / "r", settings(model, questions), STAGES, options=options, progress=progress
        ) as experiment,
    ):
        experiment.questions()
        experiment.answers()
        experiment.summaries(STRATEGIES)
        experiment.scores()
        yield Elsewhere(experiment, records(folder / "r"), progress.lines)


def test_two_processs_give_what_this_process_gives(
    model: Path, questions: Path, calm: Path, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    assert elsewhere.records == records(calm)
    out = elsewhere.experiment.run.path
    one, other = Run.load(out).manifest, Run.load(calm).manifest
    assert (one.config, one.models, one.prompts) == (other.config, other.models, other.prompts)
    assert elsewhere.lines.count(f"loading judge {model}") == 1, "what both processs say is said once"
    again = run(*small(model, shutil.copytree(out, tmp_path / "r"), questions))
    assert again.code == 1
    assert "to do" not in again.stderr, "a run is continued wherever it was begun"


def test_a_process_that_is_killed_ends_the_stage_with_what_was_done(
    model: Path, questions: Path, elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = elsewhere.experiment.run.path.parent
    monkeypatch.chdir(folder)
    name = "suicidal:ask"
    with pytest.raises(
        BackendError,
        match=r"process on cpu ended with status -9.* of 6 summaries saved, . to go. Run the same",
    ):
        elsewhere.experiment.summaries([name])
    saved = summaries_of(elsewhere.experiment.run, name)
    assert saved
    out = Path(shutil.copytree(folder / "r", tmp_path / "r"))
    written(folder / "mended", "")
    options = ExecutionOptions(device="cpu")  # in this process, where the model is loaded
    with open_experiment(out, settings(model, questions), STAGES, options=options) as experiment:
        experiment.summaries([name])
        resumed = summaries_of(experiment.run, name)
        assert len(resumed) == 5
        assert saved.items() <= resumed.items()
    with open_experiment(
        tmp_path / "here", settings(model, questions), STAGES, options=options
    ) as experiment:
        experiment.questions()
        experiment.summaries([name])
        assert saved.items() <= experiment.run.summaries.items(), "the same as without processes"


def summaries_of(run: Run, name: str) -> dict[tuple[str, str], Summary]:
    return {key: one for key, one in run.summaries.items() if one.name == name}


def test_an_error_in_a_process_is_raised_once_as_here(questions: Path, tmp_path: Path) -> None:
    nothing = str(tmp_path / "nothing")
    messages = {}
    for devices in ((), ("cpu", "cpu")):
        out = tmp_path / f"{len(devices)}"
        with open_experiment(
            out, settings(nothing, questions), STAGES, options=ExecutionOptions(device="cpu", devices=devices)
        ) as experiment:
            experiment.questions()
            with pytest.raises(BackendError) as caught:
                experiment.answers()
        messages[devices] = str(caught.value)
        assert "answers" not in Run.load(out).manifest.config, "a mistyped name does not stick"
    assert (
        messages["cpu", "cpu"]
        == f"{messages[()]}. 0 of 6 answers saved, 6 to go. Run the same command to resume."
    )
    assert "is not a directory with a model" in messages[()]


def test_an_interrupt_ends_the_processs() -> None:
    import psutil

    with FaultServer(lambda call: silent) as server:

        def interrupt() -> None:
            eventually(lambda: len(server.calls) > 1)
            os.kill(os.getpid(), signal.SIGINT)

        served = {"model": "openai:m", "base_url": server.url, "num_answers": 1}
        spec = StageSpec(
            "answers", load_config(None, {"answers": served}), load_prompts(), ExecutionOptions()
        )
        tasks = [StageTask(question=Question(id=f"{number}", text="?")) for number in range(2)]
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            list(ProcessExecutor(("cpu", "cpu")).outcomes(spec, tasks))
        processs = [
            child
            for child in psutil.Process().children()
            if any("spawn_main" in part for part in child.cmdline())
        ]
        assert [child for child in processs if child.status() != psutil.STATUS_ZOMBIE] == []


ABANDONED = """
import sys
from selfreflect.config import load_config
from selfreflect.config import ExecutionOptions
from selfreflect.prompts import load_prompts
from selfreflect.records import Question
from selfreflect.pipeline.process_executor import ProcessExecutor, environment_of
from selfreflect.pipeline.stages import StageSpec
from selfreflect.pipeline.tasks import StageTask

config = load_config(None, {"answers": {"model": "openai:m", "base_url": sys.argv[1], "num_answers": 1}})
task = StageTask(question=Question(id="q", text="?"))
spec = StageSpec("answers", config, load_prompts(), ExecutionOptions())
next(ProcessExecutor(("cpu",)).outcomes(spec, [task]))
"""


def test_a_process_at_work_ends_with_an_experiment_that_was_killed() -> None:
    import psutil

    command = [sys.executable, "-c", ABANDONED]
    with (
        FaultServer(lambda call: silent) as server,
        subprocess.Popen([*command, server.url], env=environment()) as child,
    ):
        try:
            eventually(lambda: bool(server.calls) or child.poll() is not None)
            processs = [
                one
                for one in psutil.Process(child.pid).children()
                if any("spawn_main" in part for part in one.cmdline())
            ]
        finally:
            child.kill()
        assert len(processs) == 1
        with suppress(psutil.NoSuchProcess):
            eventually(lambda: processs[0].status() == psutil.STATUS_ZOMBIE)  # where nobody asks for its end


def eventually(met: Callable[[], bool]) -> None:
    limit = time.monotonic() + 200  # less than the server is silent for
    while not met():
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_a_process_sees_its_own_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [environment_of(device) for device in ("cpu", "cuda:0", "cuda:3")] == [
        {},
        {"CUDA_VISIBLE_DEVICES": "0"},
        {"CUDA_VISIBLE_DEVICES": "3"},
    ]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8932f937, 5")
    assert environment_of("cuda:0") == {"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}
    assert environment_of("cuda:1") == {"CUDA_VISIBLE_DEVICES": "5"}
