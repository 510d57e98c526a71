"""What is found out before the first call that costs something: models that cannot be used, and servers that
do not sample. The servers are on real sockets."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
from command import run, written
from fault_server import Action, Call, FaultServer, chat, choice, status, unused_port

from selfreflect.models.openai.endpoint import is_own
from selfreflect.records import SamplingCheck
from selfreflect.run.models import OTHER_PROBES, PROBE
from selfreflect.store.run import Run

SAYS = "seems to ignore temperature"


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("judge"), "llama", max_position_embeddings=2000)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as started:
        yield started


def command(tmp_path: Path, server: FaultServer, judge: Path | str, *more: object) -> list[Any]:
    questions = written(tmp_path / "q.txt", "What first?\nWho is it?\nWhich pot?\n")
    sizes = "--num-answers 2 --max-new-tokens 5 --strategies basic --device cpu"
    return [
        *("run", "--questions", questions, "--out", tmp_path / "r", "--model", "openai:m"),
        *("--base-url", server.url, "--judge", judge, *sizes.split(), *more),
    ]


def is_probe(call: Call) -> bool:
    return call.body["messages"][-1]["content"] in (PROBE, *OTHER_PROBES)


def fixed(call: Call) -> Action:
    """Greedy: one text for one message, whatever the temperature and the seed."""
    text = f"About {len(call.body['messages'][-1]['content'])}."
    return chat(*[choice(text)] * call.n)


def check_of(tmp_path: Path) -> dict[str, Any]:
    check: dict[str, Any] = Run.load(tmp_path / "r").manifest.checks["answers"]
    return check


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./nosuchdir", "'./nosuchdir'"),
        ("openai:gpt-4o", "'openai:gpt-4o' cannot be a judge"),
        ("empty", "has no config.json"),
        ("vllm+http:m", "connection failed"),
    ],
)
def test_an_impossible_judge_is_found_before_the_server_is_asked(
    name: str, message: str, server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    more = ["--judge-url", f"http://127.0.0.1:{unused_port()}/v1"] if name.startswith("vllm") else []
    name = str(tmp_path / name) if name == "empty" else name
    refused = run(*command(tmp_path, server, name, *more))
    assert refused.code == 2
    assert message in refused.said
    assert server.calls == []


def test_a_judge_without_a_tokenizer_is_found_before_the_server_is_asked(
    judge: Path, server: FaultServer, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in judge.iterdir():
        if not file.name.startswith("tokenizer"):
            (broken / file.name).symlink_to(file)
    assert run(*command(tmp_path, server, broken)).code == 2
    assert server.calls == []


def test_damaged_or_wrong_weights_of_a_judge_are_found_before_the_server_is_asked(
    judge: Path, server: FaultServer, tmp_path: Path
) -> None:
    cut_off = Path(shutil.copytree(judge, tmp_path / "cut"))
    weights = cut_off / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    refused = run(*command(tmp_path, server, cut_off))
    assert refused.code == 2
    assert "model.safetensors' is damaged or cut off" in refused.said
    other = Path(shutil.copytree(judge, tmp_path / "other"))
    config = json.loads((other / "config.json").read_text())
    written(other / "config.json", {**config, "intermediate_size": 2 * config["intermediate_size"]})
    refused = run(*command(tmp_path, server, other))
    assert refused.code == 2
    assert "do not fit its config.json: " in refused.said
    assert server.calls == []


@pytest.mark.parametrize(
    "wrong",
    [
        ["--questions", "nowhere.csv"],
        ["--model", "nomodule:function"],
        ["--model", "./nosuch"],
        ["--strategies", "gredy"],
        ["--judge", "./nosuch"],
    ],
)
def test_a_command_that_is_refused_leaves_no_directory_behind(
    wrong: list[str], judge: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "q.txt", "What first?")
    valid = {"--questions": "q.txt", "--model": str(judge), "--judge": str(judge), "--strategies": "basic"}
    given = {**valid, **dict([wrong])}  # type: ignore[arg-type]
    refused = run(
        "run", "--out", "new/r", "--device", "cpu", *[part for pair in given.items() for part in pair]
    )
    assert refused.code == 2, refused.said
    assert [path.name for path in tmp_path.iterdir()] == ["q.txt"]


def test_a_command_that_is_refused_leaves_an_earlier_directory_as_it_is(
    judge: Path, server: FaultServer, tmp_path: Path
) -> None:
    assert run(*command(tmp_path, server, judge)).code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "r").iterdir() if path.is_file()}
    refused = run("run", "--out", tmp_path / "r", "--strategies", "gredy")
    assert refused.code == 2
    assert {path: path.read_bytes() for path in (tmp_path / "r").iterdir() if path.is_file()} == before


@pytest.mark.parametrize(("code", "part"), [(401, "does not accept the key"), (404, "no such model")])
def test_a_server_that_refuses_is_found_with_one_call(
    code: int, part: str, judge: Path, server: FaultServer, tmp_path: Path
) -> None:
    server.script = lambda call: status(code, "no")
    refused = run(*command(tmp_path, server, judge))
    assert refused.code == 2
    assert part in refused.said
    assert len(server.calls) == 1


def test_a_server_that_does_not_sample_is_reported_loudly_once_and_in_the_report(
    judge: Path, server: FaultServer, tmp_path: Path
) -> None:
    server.script = fixed
    done = run(*command(tmp_path, server, judge, "--yes"))
    assert done.code == 0, done.stderr
    assert done.stderr.count(SAYS) == 1
    assert done.stderr.index(SAYS) < done.stderr.index("answers: 3 to do")
    check = check_of(tmp_path)
    assert (check["model"], check["base_url"]) == ("openai:m", server.url)
    assert (check["replies"], check["identical_questions"], check["questions"]) == ("identical", 3, 3)
    assert check["accepted"] is True
    shown = " ".join(run("report", tmp_path / "r", "--output", tmp_path / "r.md").stdout.split())
    assert SAYS in shown
    assert "in 3 of 3 questions" in shown
    assert SAYS in (tmp_path / "r.md").read_text()
    asked = len(server.calls)
    again = run(*command(tmp_path, server, judge))
    assert SAYS not in again.stderr
    assert len(server.calls) == asked, "a finished run asks no server"


def test_a_server_that_does_not_sample_is_not_asked_the_questions(
    judge: Path, server: FaultServer, tmp_path: Path
) -> None:
    server.script = fixed
    refused = run(*command(tmp_path, server, judge))
    assert refused.code == 2
    assert "openai:m returns the same text for every sample, so no question has been sent yet" in refused.said
    # short calls, three requests, each of whose equal texts is asked for again, and whether it can be greedy
    assert len(server.calls) == 4 + 3 * 2
    assert all(map(is_probe, server.calls[3:]))
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(("reply", "starts"), [("n\n", False), ("y\n", True)])
def test_at_a_terminal_somebody_is_asked_about_it(
    reply: str,
    starts: bool,
    judge: Path,
    server: FaultServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("selfreflect.cli.stages.can_ask", lambda: True)
    server.script = fixed
    asked = run(*command(tmp_path, server, judge), stdin=reply)
    assert "Continue anyway?" in asked.said
    assert asked.code == (0 if starts else 2), asked.stderr
    assert (not all(map(is_probe, server.calls[3:]))) is starts


def test_equal_answers_are_reported_where_the_words_showed_nothing(
    judge: Path, server: FaultServer, tmp_path: Path
) -> None:
    server.script = lambda call: chat(choice(" ")) if is_probe(call) else fixed(call)
    done = run(*command(tmp_path, server, judge))
    assert done.stderr.count(SAYS) == 1
    assert "in 3 of 3 questions all of its answers are one text" in done.said


@pytest.mark.parametrize(
    ("replies", "questions", "identical", "suspect"),
    [
        ("identical", 0, 0, True),
        ("identical", 1, 1, True),
        ("identical", 10, 2, False),
        ("unknown", 0, 0, False),
        ("unknown", 2, 2, False),
        ("unknown", 10, 9, True),
        ("differ", 10, 10, False),
    ],
)
def test_when_a_server_is_suspect(replies: Any, questions: int, identical: int, suspect: bool) -> None:
    check = SamplingCheck(
        model="m",
        temperature=1.0,
        top_p=1.0,
        replies=replies,
        questions=questions,
        identical_questions=identical,
    )
    assert check.is_suspect is suspect


# --- what a run takes


def long_run(tmp_path: Path, server: FaultServer, judge: Path, *more: object) -> list[Any]:
    return command(tmp_path, server, judge, "--num-answers", 40, "--measures", "information", *more)


@pytest.mark.parametrize(("reply", "starts"), [("n\n", False), ("y\n", True)])
def test_a_long_run_shows_its_costs_and_asks_at_a_terminal(
    reply: str,
    starts: bool,
    judge: Path,
    server: FaultServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("selfreflect.cli.console.can_ask", lambda: True)
    asked = run(*long_run(tmp_path, server, judge), stdin=reply)
    assert "What is left to do" in asked.stderr
    assert re.search(r"completions +240 +240", asked.stderr)
    assert asked.code == (0 if starts else 130), asked.stderr
    assert (len(server.calls) > 5) is starts
    assert bool(Run.load(tmp_path / "r").answers) is starts


def test_a_run_that_costs_money_says_so(judge: Path, server: FaultServer, tmp_path: Path) -> None:
    prices = written(
        tmp_path / "p.toml", '[prices."openai:m"]\ninput_per_million = 1.0\noutput_per_million = 2.0\n'
    )
    done = run(*command(tmp_path, server, judge, "--config", prices))
    assert "this run costs money" in done.said
    assert "money" in done.stderr


@pytest.mark.parametrize(
    ("host", "own"),
    [
        *(("127.0.0.1", True), ("::1", True), ("10.1.2.3", True), ("localhost", True), ("gpu-box", True)),
        *(("api.openai.com", False), ("8.8.8.8", False), ("8.8.2056", False), ("134744072", False)),
        *(("0x08080808", False), ("evil\u3002com", False), ("evil\uff0ecom", False), ("127.1", False)),
        *(("evil%2ecom", False), ("evil.com .internal", False), ("evil.com%00.lan", False)),
        *(("gpu_1.lan", True), ("fe80::1%eth0", True), ("::ffff:8.8.8.8", False), ("3090-box", True)),
        *(
            ("172.31.0.9", True),
            ("192.168.1.2", True),
            ("fd00::1", True),
            ("0.0.0.0", True),
            ("0.1.2.3", False),
        ),
        *(("169.254.169.254", False), ("192.0.2.1", False), ("198.18.0.1", False), ("203.0.113.9", False)),
        *(("100.64.0.1", False), ("172.32.0.1", False), ("240.0.0.1", False), ("2001:db8::1", False)),
        *(("64:ff9b:1::a00:1", False), ("0x7f000001", False), ("0177.0.0.1", False), ("10.0.0", False)),
    ],
)
def test_which_servers_may_charge(host: str, own: bool) -> None:
    assert is_own(host) is own
