"""Jobs that never end, as a chat template may want it, and processes that end under a job."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import tiny
from app_server import Client, process
from command import COMMAND, environment, written

ENDLESS = "{{ [1] | slice(10**11) | max }}"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("models") / "model", "llama")


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny.save(tmp_path_factory.mktemp("models") / "endless", "llama")
    template = folder / "chat_template.jinja"
    assert template.exists()
    template.write_text(ENDLESS + template.read_text())
    return folder


def children(pid: int) -> list[int]:
    """The processes that the threads of a process have started, and theirs."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, file.read_text().split())
    return [*found, *(grandchild for child in found for grandchild in children(child))]


def burning(pid: int) -> list[int]:
    """The processes of an app that have used two seconds of processor time since they were first seen."""
    first: dict[int, int] = {}
    for _ in range(600):
        for child in children(pid):
            now = used(child)
            if now - first.setdefault(child, now) > 2 * os.sysconf("SC_CLK_TCK"):
                return [child]
        time.sleep(0.05)
    raise AssertionError("no process of the app works")


def used(pid: int) -> int:
    """The processor time of a process, in ticks of the clock."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody waits for leaves its entry."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def begun(client: Client, name: str) -> str:
    job = client.ask(model=name)
    client.until(job, lambda state: state["status"] != "waiting")
    return job


def test_a_job_that_never_ends_is_stopped_and_the_next_one_runs(
    good: Path, endless: Path, tmp_path: Path
) -> None:
    with process(tmp_path, "--model", endless, "--model", good) as (app, address):
        client = Client(address)
        job = begun(client, "endless")
        [worker] = burning(app.pid)
        client.post(f"/api/jobs/{job}/cancel", json={})
        assert client.finished(job)["status"] == "cancelled"
        assert not is_alive(worker)
        job = begun(client, "model")
        assert client.finished(job)["status"] == "done"
        [worker] = [child for child in children(app.pid) if not_tracker(child)]
        again = begun(client, "model")
        assert client.finished(again)["status"] == "done"
        assert is_alive(worker), "the models stay loaded from job to job"
        begun(client, "endless")
        burning(app.pid)
        app.send_signal(signal.SIGTERM)
        app.wait(30)
        assert not is_alive(worker)


def not_tracker(pid: int) -> bool:
    return b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_process_that_ends_costs_its_job_alone(good: Path, endless: Path, tmp_path: Path) -> None:
    with process(tmp_path, "--model", endless, "--model", good) as (app, address):
        client = Client(address)
        job = begun(client, "endless")
        [worker] = burning(app.pid)
        os.kill(worker, signal.SIGKILL)
        state = client.finished(job)
        assert (state["status"], state["error"]["code"]) == ("failed", "backend")
        job = begun(client, "model")
        assert client.finished(job)["status"] == "done"
        left = children(app.pid)
        app.kill()
        app.wait()
        deadline = time.monotonic() + 20
        while any(map(is_alive, left)):
            assert time.monotonic() < deadline, "a process outlives the app"
            time.sleep(0.05)


def test_an_interrupt_ends_a_command_whose_template_never_ends(endless: Path, tmp_path: Path) -> None:
    item = {"question": "What first?", "answers": ["Radishes.", "Lettuce."], "summaries": {"a": "Radishes."}}
    items = written(tmp_path / "items.json", [item])
    command = [*COMMAND, "score", "--items", str(items), "--judge", str(endless), "--device", "cpu"]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as started:
        while "model.safetensors" not in Path(f"/proc/{started.pid}/maps").read_text():
            assert started.poll() is None
            time.sleep(0.05)
        before = used(started.pid)  # with its weights there, a command that ends would in a tenth of a second
        while used(started.pid) < before + 1.5 * os.sysconf("SC_CLK_TCK") and started.poll() is None:
            time.sleep(0.05)
        started.send_signal(signal.SIGINT)
        assert started.wait(20) == 130
