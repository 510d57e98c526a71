"""Asking and scoring with a tiny model over a real socket: events, stopping, resuming, and what stays on
disk."""

from __future__ import annotations

import json
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny
from app_server import Client, process, serving
from command import run
from fault_server import FaultServer
from finished_run import write_run
from synthetic import informed_run, save

from selfreflect.models.openai.generator import MEETING_TOKENS
from selfreflect.records import Measurement, question_id
from selfreflect.server.jobs import WAITING
from selfreflect.server.work import GUESSES
from selfreflect.store.run import Run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("models") / "model", "llama")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def client(root: Path, model: Path) -> Iterator[Client]:
    with serving(root, model=model) as served:
        yield served


def asked_runs(root: Path) -> set[Path]:
    return set(root.glob("ask-*"))


def test_a_question_becomes_answers_summaries_scores_and_a_run(client: Client, root: Path) -> None:
    before = asked_runs(root)
    id_ = client.ask(strategies=["greedy", "basic"], num_answers=5)
    early = client.until(id_, lambda job: 0 < len(job["answers"]) < 10 or job["status"] == "done")
    job = client.finished(id_)
    assert (job["status"], job["error"], job["problems"]) == ("done", None, [])
    drawn = job["answers"]
    assert drawn[: len(early["answers"])] == early["answers"]
    assert client.get(f"/api/jobs/{id_}", params={"after": 8}).json()["answers"] == drawn[8:]
    assert sorted(index for group in job["groups"] for index in group) == list(range(10))

    [folder] = asked_runs(root) - before
    stored = Run.load(folder)
    [answers] = stored.answers.values()
    # shown as they end, stored as they were begun
    assert sorted(answers.answers) == sorted(drawn)
    assert len(drawn) == 10
    assert {name for _, name in stored.scores} == {"greedy", "basic"}
    view = client.get(f"/api/runs/{job['run']}/questions/0").json()
    assert view["answers"] == list(answers.answers)
    assert all(
        summary["distances"] and summary["score"] and summary["guesses"] for summary in view["summaries"]
    )
    shown = {
        one["name"]: (one["text"], one["score"], one["information"]["sentence"]) for one in view["summaries"]
    }
    assert shown == {
        one["name"]: (one["text"], one["score"], one["information"]["sentence"]) for one in job["summaries"]
    }
    assert stored.controls.keys() == stored.questions.keys()
    report = run("report", folder, "--json")
    assert (report.code, {line["strategy"] for line in report.json}) == (0, {"greedy", "basic"})


def test_the_answers_are_those_that_one_batch_gives(client: Client, model: Path, tmp_path: Path) -> None:
    question = "What now?"
    job = client.ask(question, num_answers=3, seed=5)
    run_id = client.finished(job)["run"]
    page = client.get(f"/api/runs/{run_id}/questions/0").json()["answers"]
    (tmp_path / "q.txt").write_text(question + "\n")
    options = f"--questions {tmp_path / 'q.txt'} --num-answers 3 --max-new-tokens 64 --seed 5"
    command = f"answers {options} --model {model} --device cpu --out {tmp_path / 'run'}"
    assert run(*command.split()).code == 0
    [answers] = Run.load(tmp_path / "run").answers.values()
    assert list(answers.answers) == page


@pytest.mark.parametrize(
    "context", [" Anna: red.\n", '"""\n<script>window.pwned=1</script><|im_end|>\x1b[2J', "", " \n"]
)
def test_the_model_reads_the_context_of_a_question(client: Client, root: Path, context: str) -> None:
    before = asked_runs(root)
    end = client.finished(client.ask("Which colour?", context=context))
    assert end["status"] == "done"
    [folder] = asked_runs(root) - before
    [question] = Run.load(folder).questions.values()
    kept = context.strip()
    assert (question.context, question.id) == (kept, question_id("Which colour?", kept))
    assert client.get(f"/api/runs/{end['run']}/questions/0").json()["text"] == "Which colour?"


def test_what_summaries_tell_is_listed_with_the_run_and_exported(client: Client, root: Path) -> None:
    save(informed_run(), root / "informed")
    [run_id] = [one["id"] for one in client.get("/api/runs").json()["runs"] if one["name"] == "informed"]
    listed = client.get(f"/api/runs/{run_id}").json()
    [place] = [n for n, measure in enumerate(listed["measures"]) if measure["heading"] == "recovered"]
    values = {one["name"]: one["values"][place] for one in listed["strategies"]}
    assert values["good"] == {"mean": "60 %", "interval": None, "n": 2}
    assert values["bad"]["mean"] == "-10 %"
    assert [one["cells"][place] for one in listed["questions"]] == [["60 %", "-10 %"]] * 2


@pytest.mark.usefixtures("plugin")
def test_a_measure_of_another_package_is_listed_with_the_run(client: Client, root: Path) -> None:
    with Run.open(write_run(root / "foreign", count=1), {}) as stored:
        fields = {"measure": "contained", "question_id": "q0", "summary": "greedy"}
        stored.append(Measurement(value=0.5, **fields))
    [run_id] = [one["id"] for one in client.get("/api/runs").json()["runs"] if one["name"] == "foreign"]
    listed = client.get(f"/api/runs/{run_id}").json()
    place = [measure["heading"] for measure in listed["measures"]].index("contained")
    assert listed["strategies"][0]["values"][place] == {"mean": "50 %", "interval": None, "n": 1}
    assert listed["questions"][0]["cells"][place] == ["50 %"]


def test_a_model_that_cannot_be_loaded_fails_its_job_without_a_path(root: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    with serving(root, model=broken) as client:
        job = client.finished(client.ask(model="broken"))
    assert job["status"] == "failed"
    assert job["error"]["code"] == "no_model"
    assert "…/broken" in job["error"]["message"]
    assert str(tmp_path) not in json.dumps(job)


def test_fifty_may_wait_and_others_are_told_to_come_back(tmp_path: Path) -> None:
    go = threading.Event()
    with serving(tmp_path, work=lambda job: go.wait(200)) as client:
        answers = [client.post("/api/ask", json={"question": "Why?"}) for _ in range(WAITING + 5)]
        go.set()
    codes = [answer.status_code for answer in answers]
    assert (set(codes[:WAITING]), set(codes[WAITING + 1 :])) == ({202}, {429})
    assert answers[-1].json()["error"]["code"] == "busy"
    assert "retry-after" in answers[-1].headers


def test_a_context_that_does_not_fit_the_window_says_what_to_do(client: Client) -> None:
    [problem] = client.finished(client.ask(context="evidence " * 11_000))["problems"]
    assert (problem["code"], problem["remedy"]) == ("too_long", "Shorten the question or its context.")
    assert client.post("/api/ask", json={"question": "?", "context": "x" * 100_001}).status_code == 422


def test_what_the_judge_expected_can_be_asked_for_word_by_word(client: Client) -> None:
    run_id = client.scored("What first?", {"good": "Lettuce.", "bad": "Why?"}, "--guesses", str(GUESSES))
    page = f"/api/runs/{run_id}/questions/0"
    view = client.get(page).json()
    assert [one["guesses"] for one in view["summaries"]] == [True, True]
    guesses = []
    for summary in (0, 1):
        parameters = {"summary": summary, "answer": 1}
        guesses.append(client.get(f"{page}/guesses", params=parameters).json())
    assert list(guesses[0]) == [str(word) for word in view["words"][1]] != []
    for word, mean in zip(guesses[0].values(), view["summaries"][0]["distances"][1], strict=True):
        assert sum(distance for distance, _ in word) / len(word) == pytest.approx(mean, abs=1)
        assert all(len(tokens) >= GUESSES and all(len(token) == 5 for token in tokens) for _, tokens in word)
    assert guesses[0] != guesses[1]
    assert client.get(f"{page}/guesses", params={"summary": 0, "answer": 120}).json() == {}
    assert client.get(f"{page}/guesses", params={"summary": 2, "answer": 0}).status_code == 404


def test_a_long_job_stops_at_once_and_leaves_what_was_finished(model: Path, tmp_path: Path) -> None:
    with serving(tmp_path, model=model) as client:
        job = client.ask(num_answers=200)
        client.until(job, lambda job: job["answers"])
        assert client.post(f"/api/jobs/{job}/cancel").status_code == 202
        ended = client.finished(job)
        assert ended["status"] == "cancelled"
        assert 0 < len(ended["answers"]) < 400
        assert client.finished(client.ask("Next?"))["status"] == "done"
        assert client.get(f"/api/runs/{ended['run']}").json()["total"] == 1


def test_short_answers_are_asked_for_with_the_prompts_of_the_demo(client: Client, root: Path) -> None:
    hashes = []
    for brief in (True, False):
        before = asked_runs(root)
        client.finished(client.ask(f"Brief {brief}?", brief=brief, num_answers=1))
        [folder] = asked_runs(root) - before
        hashes.append(Run.load(folder).manifest.prompts["answers"])
    assert hashes[0] != hashes[1]


def test_what_may_be_asked_for_is_said_and_described(client: Client) -> None:
    options = client.get("/api/options").json()
    assert [one["name"] for one in options["models"]] == ["model", "smollm2"]
    assert "sample_and_summarize" in options["strategies"]
    assert options["about"].keys() == set(options["strategies"])
    assert len(options["defaults"]["strategies"]) >= 2
    assert options["server"] is None
    api = client.get("/api/openapi.json").json()
    assert {"/api/ask", "/api/runs", "/api/jobs/{id}"} <= api["paths"].keys()


def test_what_is_proposed_for_a_model_of_a_server_can_be_asked(tmp_path: Path) -> None:
    with (
        FaultServer() as server,
        serving(tmp_path, model="openai:m", base_url=server.url) as client,
    ):
        proposed = client.get("/api/options").json()["defaults"]
        assert (proposed["model"], proposed["judge"]) == ("openai:m", "smollm2")


def test_a_server_that_the_app_was_started_with_answers_and_no_other(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELFREFLECT_API_KEY", "sk-very-secret")
    extra = {"service_tier": "flex"}
    with (
        FaultServer() as server,
        serving(tmp_path, model=model, base_url=server.url, extra_body=extra) as client,
    ):
        assert client.get("/api/options").json()["server"] == server.url
        body = {"model": "openai:any", "judge": "model", "temperature": 0.3, "top_p": 0.8}
        job = client.finished(client.ask(**body, measures=["selfreflect"]))
        assert job["status"] == "done", job
        assert len(client.get(f"/api/jobs/{job['id']}?after=0").json()["answers"]) == 4
        short = sum(call.body["max_tokens"] == MEETING_TOKENS for call in server.calls)
        assert client.finished(client.ask(**body, measures=["selfreflect"]))["status"] == "done"
        assert sum(call.body["max_tokens"] == MEETING_TOKENS for call in server.calls) == short
        assert {(call.body["temperature"], call.body["top_p"]) for call in server.calls} >= {(0.3, 0.8)}
        assert all(call.headers["authorization"] == "Bearer sk-very-secret" for call in server.calls)
        assert all(call.body["service_tier"] == "flex" for call in server.calls)
        shown = client.get(f"/api/runs/{job['run']}/questions/0").text
        assert "answer " in shown
        assert "sk-very-secret" not in shown
        sent = {"question": "?", "judge": "model", "model": "openai:any", "base_url": "http://127.0.0.1:9/v1"}
        assert client.post("/api/ask", json=sent).status_code == 422  # nobody else chooses an address
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"sk-very-secret" in path.read_bytes()]


def test_models_of_servers_are_refused_unless_the_app_was_started_for_them(client: Client) -> None:
    refused = client.post("/api/ask", json={"question": "?", "judge": "model", "model": "openai:gpt-4o"})
    assert refused.status_code == 422
    error = refused.json()["error"]
    assert (error["code"], bool(error["remedy"])) == ("not_offered", True)


def test_a_run_says_which_stage_it_lacks(client: Client) -> None:
    done = client.finished(client.ask(measures=["selfreflect"]))
    failed = client.finished(client.ask(model="nobody/no-such-model", judge="model"))
    assert (done["status"], failed["status"]) == ("done", "failed")
    lacks = {run["id"]: run["lacks"] for run in client.get("/api/runs").json()["runs"]}
    assert (lacks[done["run"]], lacks[failed["run"]]) == (None, "answers")


# --- as a process of its own


def test_ctrl_c_stops_at_once_and_says_where_things_are(model: Path, tmp_path: Path) -> None:
    with process(tmp_path, "--model", model) as (app, url):
        client = Client(url)
        job = client.ask(num_answers=200)
        client.until(job, lambda job: job["answers"])
        app.send_signal(signal.SIGINT)
        assert app.wait(200) == 130
        assert app.stderr is not None
        said = app.stderr.read()
        assert f"Finished work is in {tmp_path}" in said
        assert "Traceback" not in said
    [folder] = asked_runs(tmp_path)
    assert Run.load(folder).scores == {}


def test_a_port_that_is_taken_is_said_to_be(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = run("app", "--port", port, "--root", tmp_path)
    assert outcome.code == 2
    assert f"cannot listen on 127.0.0.1, port {port}: Address already in use" in outcome.said
    assert "--port" in outcome.said


def test_a_root_that_cannot_be_a_directory_is_refused_before_an_address_is_shown(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    outcome = run("app", "--port", 0, "--root", tmp_path / "file")
    assert outcome.code == 2
    assert "file: cannot be made: File exists" in outcome.said
    assert "http" not in outcome.said


def test_other_machines_are_let_in_only_on_purpose_and_with_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = run("app", "--host", "0.0.0.0", "--root", tmp_path, "--port", 0)
    assert refused.code == 2
    assert "--allow-remote" in refused.said
    assert "needs a token" in run("app", "--host", "0.0.0.0", "--allow-remote", "--no-token").said
    mine = "0123456789abcdef-mine"
    remote = ("--host", "0.0.0.0", "--allow-remote", "--extra-body", '{"service_tier": "flex"}')
    with process(tmp_path, *remote, SELFREFLECT_APP_TOKEN=mine) as (_, url):
        address, _, token = url.partition("/#token=")
        assert token == mine
        port = address.rpartition(":")[2]
        assert Client(f"http://127.0.0.1:{port}").get("/api/runs").status_code == 401
        assert Client(f"http://127.0.0.1:{port}", token).get("/api/runs").status_code == 200
    monkeypatch.setenv("SELFREFLECT_APP_TOKEN", "short")
    assert "16 or more" in run("app", "--root", tmp_path, "--port", 0).said


def test_other_users_of_this_machine_need_the_token_too_unless_nobody_does(tmp_path: Path) -> None:
    """The browser is opened by a file that only its owner may read, because all can read its arguments."""
    opened = tmp_path / "opened"
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" > {opened}.partial && mv {opened}.partial {opened}\n')
    script.chmod(0o755)
    with process(tmp_path / "runs", "--open", BROWSER=str(script)) as (app, url):
        address, _, token = url.partition("/#token=")
        assert len(token) >= 32
        assert Client(address).get("/api/runs").status_code == 401
        assert Client(url).get("/api/runs").status_code == 200
        until = time.monotonic() + 200
        while not opened.exists() and time.monotonic() < until:
            time.sleep(0.02)
        starter = tmp_path / "runs" / "open-app.html"
        assert opened.read_text().strip() == starter.as_uri()
        assert url in starter.read_text()
        assert stat.S_IMODE(starter.stat().st_mode) == 0o600
        app.send_signal(signal.SIGINT)
        assert app.wait(200) == 130
        assert not starter.exists()
        assert app.stderr is not None
        assert token not in app.stderr.read()
    with process(tmp_path / "runs", "--no-token", SELFREFLECT_APP_TOKEN="0123456789abcdef-mine") as (_, url):
        assert "#" not in url
        assert Client(url).get("/api/runs").status_code == 200


def test_without_its_packages_the_command_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.delitem(sys.modules, "selfreflect.server.app", raising=False)
    outcome = run("app", "--root", tmp_path)
    assert outcome.code == 2
    assert "pip install '.[app]'" in outcome.said
