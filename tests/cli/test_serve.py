"""The command `serve`: what it refuses, and its life as a process."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from command import COMMAND, environment, run, written

from selfreflect.cli.servers import _name_for_clients
from selfreflect.store.run import Run

MODEL = """
import time
from pathlib import Path


def cities(messages, n):
    while "slow" in messages[0]["content"] and not Path("go").exists():
        time.sleep(0.05)
    if "Think of" in messages[0]["content"]:
        Path("proposal").write_text(messages[0]["content"])
    return ["Ankara", "Ankara.", "Istanbul", "ankara"][:n]
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--keep-texts", "--out"),
        ("--at-least 30", "--num-answers"),
        ("--num-answers 1", "serve.num_answers must be from 2 to 200"),
        ("--measures information", "--judge"),
        ("--when-unsure ask --confidence none", "Leave out --confidence"),
        ("--ask-candidates 0", "serve.ask_candidates must be from 1 to 50"),
        ("--proxies example.com", "--proxies"),
        ("--below 2", "serve.below must be in (0, 1]"),
        ("--when-unsure abstain --classes exact", "Leave out --classes"),
        ("--host 0.0.0.0", "Add --allow-remote"),
        ("--calibrator nothing.json", "cannot be read"),
        ("--model openai:gpt-4o", "needs a key"),
        ("--base-url nonsense", "--base-url"),
        ("--confidence p_true", "no confidence 'p_true'"),
        ("--strategies gredy", "Did you mean 'greedy'"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_served(
    arguments: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SELFREFLECT_API_KEY", "OPENAI_API_KEY", "SELFREFLECT_SERVE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    model = () if "--model" in arguments or "--base-url" in arguments else ("--model", "json:dumps")
    outcome = run("serve", "--port", 0, *model, *arguments.split())
    assert outcome.code == 2
    assert said in outcome.said


@pytest.mark.parametrize(
    ("out", "said"), [("notes", "not a run directory"), ("notes/mine.txt", "This is not a directory")]
)
def test_a_folder_of_something_else_is_refused_before_a_model_is_loaded(
    tmp_path: Path, out: str, said: str
) -> None:
    (tmp_path / "notes").mkdir()
    mine = written(tmp_path / "notes" / "mine.txt", "mine")
    outcome = run("serve", "--port", 0, "--out", tmp_path / out)
    assert (outcome.code, said in outcome.said) == (2, True), outcome.said
    assert "loading" not in outcome.said
    assert mine.read_text() == "mine"


def test_fields_of_requests_need_no_name_of_a_model(tmp_path: Path) -> None:
    written(tmp_path / "mine.txt", "mine")
    server = ("--port", 0, "--base-url", "http://127.0.0.1:1/v1", "--extra-body")
    outcome = run("serve", *server, '{"service_tier": "flex"}', "--out", tmp_path)
    assert (outcome.code, "not a run directory" in outcome.said) == (2, True), outcome.said
    for command in ("serve", "app"):
        refused = run(command, *server, '{"n": 3}')
        assert (refused.code, "cannot set n" in refused.said) == (2, True), refused.said


def test_a_run_directory_stays_free_if_no_model_can_be_loaded(tmp_path: Path) -> None:
    for _ in range(2):  # the second time it must not be in use
        outcome = run("serve", "--port", 0, "--out", tmp_path / "r", "--model", "nowhere.at_all:answer")
        assert outcome.code == 2
        assert "nowhere" in outcome.said


def test_a_directory_has_one_name_for_clients(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert _name_for_clients(str(tmp_path / "mine")) == "mine"
    assert _name_for_clients("openai:gpt-4o") == "gpt-4o"
    assert _name_for_clients("mine:cities") == "mine:cities"


def ask(url: str, text: str, **headers: str) -> httpx2.Response:
    body: Any = {"model": "selfreflect/mine:cities", "messages": [{"role": "user", "content": text}]}
    return httpx2.post(f"{url}/chat/completions", json=body, headers=headers, timeout=200, trust_env=False)


def test_a_process_serves_a_function_finishes_what_it_began_and_keeps_it(tmp_path: Path) -> None:
    written(tmp_path / "mine.py", MODEL)
    written(
        tmp_path / "settings.toml",
        '[summaries]\nstrategies = ["greedy"]\n[serve]\nnum_answers = 4\nout = "kept"\nbelow = 0.9\n',
    )
    command = "serve --model mine:cities --port 0 --keep-texts --config settings.toml --when-unsure ask"
    command += " --ask-candidates 3"
    with subprocess.Popen(
        [*COMMAND, *command.split()],
        cwd=tmp_path,
        env=environment(SELFREFLECT_SERVE_TOKEN="0123456789abcdef"),
        stderr=subprocess.PIPE,
        text=True,
    ) as served:
        try:
            assert served.stderr is not None
            line = served.stderr.readline()
            url = line.split()[4].rstrip(".")
            assert "0123456789abcdef" not in line
            assert "selfreflect/mine:cities" in served.stderr.readline()
            assert ask(url, "Where?").status_code == 401
            key = {"Authorization": "Bearer 0123456789abcdef"}
            first = ask(url, "Where?", **key).json()
            assert first["selfreflect"]["strategy"] == "greedy"
            assert first["selfreflect"]["action"] == "hedge"  # "Ankara" is no question
            assert "Think of 3 short questions" in (tmp_path / "proposal").read_text()
            replies: list[Any] = []
            asking = threading.Thread(target=lambda: replies.append(ask(url, "A slow one?", **key).json()))
            asking.start()
            while "selfreflect_running 1.0" not in metrics(url, key):
                time.sleep(0.02)
            served.send_signal(signal.SIGTERM)
            while metrics(url, key):
                time.sleep(0.02)
            written(tmp_path / "go", "")
            asking.join(200)
            assert replies[0]["selfreflect"]["num_answers"] == 4
            assert served.wait(200) == -signal.SIGTERM
        finally:
            served.kill()
    assert len(Run.load(tmp_path / "kept").answers) == 2


def test_it_says_what_a_question_takes_and_no_password(tmp_path: Path) -> None:
    command = "serve --base-url http://me:pa55word9@127.0.0.1:9/v1 --port 0 --num-answers 7"
    with subprocess.Popen(
        [*COMMAND, *command.split()], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    ) as served:
        try:
            assert served.stderr is not None
            said = "".join(served.stderr.readline() for _ in range(3))
        finally:
            served.kill()
    assert "http://127.0.0.1:9/v1" in said
    assert "pa55word9" not in said
    assert "8 completions" in said


def metrics(url: str, headers: dict[str, str]) -> str:
    """The page of metrics; empty once the server takes no more requests."""
    try:
        return httpx2.get(url.replace("/v1", "/metrics"), headers=headers, trust_env=False, timeout=30).text
    except httpx2.TransportError:
        return ""
