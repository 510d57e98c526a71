"""The stages on a real Ray cluster of this machine: the same records as here, whatever happens to its
actors."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from command import COMMAND, Outcome, environment, run, small, written
from fault_server import Action, Call, FaultServer, answers, status

from selfreflect.run.ray_executor import TRIES
from selfreflect.store.run import Run

pytestmark = pytest.mark.timeout(
    600
)  # every actor and every command loads its libraries anew, and the first test waits for the cluster too

KEY = "sk-verysecret"
TEXTS = ["What first?", "Who is it?", "Which pot?", "Why not?", "When then?", "long " * 500 + "?"]
TWO = "[ray.summaries]\nactors = 2\ncpus = 0.5\nbatch_questions = 1\n"
ONE = "".join(f"[ray.{stage}]\nactors = 1\ncpus = 0.5\n" for stage in ("answers", "summaries", "scores"))

STRATEGY = """
import os, time
from pathlib import Path


def ask(task):
    with Path("asked").open("a") as file:
        file.write(f"{os.getpid()} {task.question.id}\\n")
    time.sleep(SECONDS)
    [reply] = yield task.request(task.messages(), "summary")
    return reply.text or "nothing"
"""
"""Slow enough to be met at work; tells who it is."""


class RayExecutor(NamedTuple):
    address: str
    session: Path


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayExecutor]:
    """A cluster as its users start it, with the key in its environment. Its paths are short, as its sockets
    want them."""
    folder = Path(tempfile.mkdtemp(prefix="sr-", dir="/tmp"))
    port = free_port()
    command = [
        *(str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", f"--port={port}"),
        *(
            "--num-cpus=4",
            "--include-dashboard=false",
            "--disable-usage-stats",
            "--object-store-memory=100000000",
        ),
        f"--temp-dir={folder}",
    ]
    changes = {
        "RAY_memory_monitor_refresh_ms": "0",
        "RAY_prestart_worker_first_driver": "0",  # else each command starts four processes that no actor uses
        "RAY_AUTH_MODE": "disabled",
        "HF_MODULES_CACHE": str(folder / "modules"),
    }
    settings = environment(SELFREFLECT_API_KEY=KEY, **changes)
    said = folder / "said"
    with said.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file, env=settings) as head:
        try:
            wait_for(lambda: "will now block" in said.read_text(encoding="utf-8"), head)
            yield RayExecutor(f"127.0.0.1:{port}", folder)
        finally:
            end(psutil.Process(head.pid))
    shutil.rmtree(folder)


def free_port() -> int:
    """A port that nobody is given who takes any: Linux hands out those from 32768."""
    for port in random.sample(range(20_000, 30_000), 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


def end(process: psutil.Process) -> None:
    """Kill a process and all that it started."""
    family = [process, *process.children(recursive=True)]
    for one in family:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(family, timeout=30)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tiny

    return tiny.save(tmp_path_factory.mktemp("model"), "llama", max_position_embeddings=400)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with questions, and settings of one or two actors."""
    folder = tmp_path_factory.mktemp("work")
    written(folder / "q.txt", "\n".join(TEXTS))
    written(folder / "one.toml", ONE)  # each actor loads its libraries, which takes seconds
    written(folder / "two.toml", TWO)
    return folder


@pytest.fixture(scope="module")
def calm(work: Path, model: Path) -> Path:
    """A run that was made here."""
    assert run(*small(model, work / "calm", work / "q.txt")).code == 1  # the long question fails
    return work / "calm"


def elsewhere(*arguments: object, cwd: Path | None = None) -> Outcome:
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=280,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def on(cluster: RayExecutor) -> tuple[str, ...]:
    return ("--executor", "ray", "--ray-address", cluster.address)


def records(out: Path) -> dict[str, Any]:
    found = Run.load(out)
    failures = {(one.stage, one.question_id, one.name): one for one in found.failures}
    return {
        "questions": found.questions,
        "answers": found.answers,
        "summaries": found.summaries,
        "failures": failures,
    }


def scores(out: Path) -> dict[Any, float]:
    return {key: score.value for key, score in Run.load(out).scores.items()}


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def content(path: Path) -> bytes:
    """Empty where the file is gone: those of a live cluster come and go."""
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return b""


def wait_for(met: Callable[[], bool], child: subprocess.Popen[Any]) -> None:
    limit = time.monotonic() + 200
    while not met():
        assert child.poll() is None, "it ended before"
        assert time.monotonic() < limit
        time.sleep(0.02)


def slow(calm: Path, folder: Path, seconds: float) -> list[str]:
    """A run that was begun here, in ``folder``, and the command that adds a slow summary to each question on
    a cluster."""
    shutil.copytree(calm, folder / "r")
    written(folder / "slow.py", STRATEGY.replace("SECONDS", str(seconds)))
    words = f"summarize --out r --strategies slow:ask --executor ray --config {calm.with_name('two.toml')}"
    return words.split()


@pytest.fixture(scope="module")
def expected(calm: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The records of such a run when it stays here."""
    folder = tmp_path_factory.mktemp("expected")
    slow(calm, folder, 0)
    with chdir(folder):
        assert run("summarize", "--out", "r", "--strategies", "slow:ask").code == 1
    found = records(folder / "r")
    assert len(found["summaries"]) == 15
    return found


def asked(folder: Path) -> list[list[str]]:
    """(process, question) of each call of the slow strategy."""
    path = folder / "asked"
    return [line.split() for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


@pytest.mark.slow  # CI runs it by name
def test_a_run_on_a_cluster_equals_one_that_was_made_here(
    work: Path, calm: Path, model: Path, cluster: RayExecutor, tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = tmp_path_factory.mktemp("made") / "r"
    done = elsewhere(
        *small(model, out, work / "q.txt"),
        *on(cluster),
        "--config",
        work / "one.toml",
        "--json",
    )
    assert done.code == 1, done.stderr
    assert records(out) == records(calm)
    assert scores(out) == pytest.approx(scores(calm), abs=1e-6)
    one, other = Run.load(out).manifest, Run.load(calm).manifest
    assert (one.config, one.models, one.prompts) == (other.config, other.models, other.prompts)
    assert done.json, "only JSON lines on stdout"
    assert [line for line in done.stderr.splitlines() if "to do" in line] == [
        "answers: 6 to do",
        "summaries: 12 to do",
        "scores: 10 to do",
    ]
    assert "ray" not in done.stderr.lower().replace(str(tmp_path_factory.getbasetemp()).lower(), ""), (
        "Ray itself says nothing"
    )
    again = run(*small(model, out, work / "q.txt"))
    assert (again.code, "to do" in again.stderr) == (1, False)


@pytest.mark.slow
def test_an_actor_that_is_killed_costs_nothing(work: Path, cluster: RayExecutor, tmp_path: Path) -> None:
    """With a served model, so that actors are at work at once. Where they load one, see the slow tests."""
    written(tmp_path / "slow.py", STRATEGY.replace("SECONDS", "1.5"))
    made = tmp_path / "r" / "summaries.jsonl"
    with FaultServer() as server, chdir(tmp_path):
        served = ["--model", "openai:m", "--base-url", server.url]
        answered = ["answers", "--questions", work / "q.txt", "--num-answers", 1, *served, "--out"]
        summarize = ["summarize", "--strategies", "slow:ask", *served]
        assert run(*answered, "r").code == 0
        there = [*on(cluster), "--config", str(work / "two.toml")]
        with subprocess.Popen(
            [*COMMAND, *summarize, "--out", "r", *there, "--json"],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            wait_for(lambda: lines(made) > 0, child)
            known = len(asked(tmp_path))
            wait_for(lambda: len(asked(tmp_path)) > known, child)  # so that one has just begun
            process, question = asked(tmp_path)[-1]
            os.kill(int(process), signal.SIGKILL)
            stdout, stderr = child.communicate(timeout=280)
        assert child.returncode == 0, stderr
        assert Outcome(0, stdout, stderr).json, "only JSON lines on stdout, though Ray has something to tell"
        assert [one for _, one in asked(tmp_path)].count(question) == 2, (
            "the killed one's question was asked again"
        )
        assert "Traceback" not in stderr
        written(tmp_path / "slow.py", STRATEGY.replace("SECONDS", "0"))
        assert run(*answered, "here").code == run(*summarize, "--out", "here").code == 0
    assert len(Run.load(tmp_path / "r").summaries) == len(TEXTS)
    assert records(tmp_path / "r") == records(tmp_path / "here")


@pytest.mark.slow
def test_an_interrupted_cluster_of_its_own_is_gone_and_the_run_goes_on_here(
    calm: Path, expected: dict[str, Any], tmp_path: Path
) -> None:
    command = [*COMMAND, *slow(calm, tmp_path, 1.5)]  # whose cluster leaves a token in the home directory
    made = tmp_path / "r" / "summaries.jsonl"
    before = made.read_bytes()
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(HOME=str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        wait_for(lambda: len(made.read_bytes()) > len(before), child)
        family = psutil.Process(child.pid).children(recursive=True)
        assert any("raylet" in process.name() for process in family)
        child.send_signal(signal.SIGINT)
        stdout, stderr = child.communicate(timeout=200)
    assert (child.returncode, stdout) == (130, ""), stderr
    assert "Interrupted" in stderr
    assert "Traceback" not in stderr
    assert psutil.wait_procs(family, timeout=60)[1] == [], "the cluster is gone"
    kept = made.read_bytes()
    assert kept.startswith(before)
    assert kept.endswith(b"\n")
    assert before.count(b"\n") < kept.count(b"\n") < 15
    assert elsewhere("summarize", "--out", "r", "--strategies", "slow:ask", cwd=tmp_path).code == 1
    assert made.read_bytes().startswith(kept)
    assert records(tmp_path / "r") == expected


@pytest.mark.slow
def test_a_killed_command_leaves_no_cluster_behind(calm: Path, tmp_path: Path) -> None:
    made = tmp_path / "r" / "summaries.jsonl"
    command = [*COMMAND, *slow(calm, tmp_path, 1.5)]
    before = lines(made)
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(HOME=str(tmp_path)), stderr=subprocess.DEVNULL
    ) as child:
        wait_for(lambda: lines(made) > before, child)
        family = psutil.Process(child.pid).children(recursive=True)
        child.kill()
    assert psutil.wait_procs(family, timeout=60)[1] == []


@pytest.mark.slow
def test_a_question_that_ends_every_actor_ends_the_stage_with_what_was_done(
    work: Path, cluster: RayExecutor, tmp_path: Path
) -> None:
    deadly = "    if task.question.text == 'When then?':\n        os.kill(os.getpid(), signal.SIGKILL)\n"
    written(
        tmp_path / "deadly.py",
        STRATEGY.replace("import os", "import os, signal").replace("    time.sleep(SECONDS)\n", deadly),
    )
    command = ["summarize", "--out", "r", "--strategies", "deadly:ask", *on(cluster)]
    with FaultServer() as server:
        served = ["--model", "openai:m", "--base-url", server.url]
        assert (
            run(
                "answers", "--questions", work / "q.txt", "--num-answers", 1, "--out", tmp_path / "r", *served
            ).code
            == 0
        )
        failed = elsewhere(*command, *served, "--config", work / "two.toml", cwd=tmp_path)
    assert failed.code == 2, failed.stderr
    assert f"{TRIES} actors in a row ended while working on the same questions" in failed.said
    assert "All machines need the same selfreflect" in failed.said
    assert "worker process has died" in failed.said
    found = Run.load(tmp_path / "r")
    [question] = [key for key, one in found.questions.items() if one.text == "When then?"]
    assert [one for _, one in asked(tmp_path)].count(question) == TRIES
    assert found.summaries
    assert f"{len(found.summaries)} of 6 summaries saved" in failed.said


@pytest.mark.slow  # CI runs it by name
def test_an_actors_error_is_one_line_here(work: Path, cluster: RayExecutor, tmp_path: Path) -> None:
    common = ["--questions", work / "q.txt", "--num-answers", 1, "--out", tmp_path / "r", "--device", "cpu"]
    failed = elsewhere("answers", *common, "--model", tmp_path / "none", *on(cluster))
    assert failed.code == 2, failed.stderr
    [error] = [line for line in failed.stderr.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in failed.stderr
    assert str(tmp_path / "none")[:40] in error
    assert "0 of 6 answers saved, 6 to go" in error
    assert "answers" not in Run.load(tmp_path / "r").manifest.config, "a mistyped name does not stick"


@pytest.mark.slow
def test_keys_come_from_the_environment_of_the_actors_and_stay_there(
    work: Path, cluster: RayExecutor, tmp_path: Path
) -> None:
    refused = True

    def script(call: Call) -> Action:
        return status(401, f"{call.headers['authorization']} is no key") if refused else answers()

    with FaultServer(script) as server:
        command = [
            "answers",
            "--questions",
            work / "q.txt",
            "--num-answers",
            1,
            "--out",
            tmp_path / "r",
            "--model",
            "openai:m",
        ]
        command += ["--base-url", server.url, *on(cluster), "--config", work / "two.toml"]
        failed = elsewhere(*command)
        refused = False
        done = elsewhere(*command)
        assert {call.headers["authorization"] for call in server.calls} == {f"Bearer {KEY}"}, (
            "though the command itself has no key"
        )
    assert failed.code == 2, failed.stderr
    assert "401" in failed.stderr
    assert done.code == 0, done.stderr
    assert len(Run.load(tmp_path / "r").answers) == 6
    said = "".join(outcome.stdout + outcome.stderr for outcome in (failed, done))
    written(tmp_path / "said.txt", said)
    searched = [
        path
        for folder in (tmp_path, cluster.session)
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    ]
    assert any("worker" in path.name and path.suffix == ".err" for path in searched), (
        "logs of actors are among them"
    )
    assert [path for path in searched if KEY.encode() in content(path)] == []


def refused(work: Path, model: Path, out: Path, address: str, capfd: pytest.CaptureFixture[str]) -> Outcome:
    """What a command and the process that drives Ray for it say of an address."""
    common = ["--questions", work / "q.txt", "--model", model, "--num-answers", 1, "--out", out]
    failed = run("answers", *common, "--executor", "ray", "--ray-address", address)
    driver = capfd.readouterr()
    assert (failed.code, failed.stdout, driver.out, driver.err) == (2, "", "", ""), failed.stderr
    return failed


def test_no_cluster_at_an_address_is_told(
    work: Path, model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    failed = refused(work, model, tmp_path / "r", "127.0.0.1:1", capfd)
    [error] = [line for line in failed.stderr.splitlines() if line.startswith("error: ")]
    assert error.startswith("error: Ray finds no cluster at '127.0.0.1:1'")


@pytest.mark.slow
def test_a_token_that_is_missing_is_told_with_where_it_belongs(
    work: Path,
    model: Path,
    cluster: RayExecutor,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("HOME", str(tmp_path))  # where there is no token, and no embedded model either
    failed = refused(work, model, tmp_path / "r", cluster.address, capfd)
    assert f"error: Ray finds no cluster at '{cluster.address}'" in failed.said
    assert "put its token into ~/.ray/auth_token or RAY_AUTH_TOKEN" in failed.said
    assert "Traceback" not in failed.stderr
