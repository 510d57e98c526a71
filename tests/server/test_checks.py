"""Answers of a server, their limits, and judges that scored a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
from app_server import Client, serving
from fault_server import Call, FaultServer, answers, chat, choice


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("models") / "model", "llama")


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServer]:
    with FaultServer() as started:
        yield started


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def client(root: Path, model: Path, server: FaultServer) -> Iterator[Client]:
    with serving(root, model=model, base_url=server.url) as served:
        yield served


def body(**changes: Any) -> dict[str, Any]:
    return {
        "question": "What first?",
        "model": "model",
        "judge": "model",
        "strategies": ["greedy"],
        "num_answers": 2,
        **changes,
    }


def test_a_server_that_does_not_sample_is_warned_of(client: Client, server: FaultServer) -> None:
    server.script = lambda call: chat(*[choice("one two")] * call.n)
    job = client.finished(client.ask(model="openai:same", judge="model"))
    server.script = lambda call: answers()
    assert "seems to ignore temperature" in job["problems"][0]["message"]


def test_summaries_are_limited_and_say_that_they_were_cut_off(client: Client, server: FaultServer) -> None:
    def cut(call: Call) -> Any:
        short = call.body.get("max_tokens") == 7
        texts = [f"answer {call.seed + place}" for place in range(call.n)]
        return chat(*[choice(text, "length" if short else "stop") for text in texts])

    server.script = cut
    job = client.finished(
        client.ask(
            model="openai:cut", judge="model", summary_tokens=7, answer_tokens=9, measures=["selfreflect"]
        )
    )
    server.script = lambda call: answers()
    assert {7, 9} <= {call.body["max_tokens"] for call in server.calls if call.body["model"] == "cut"}
    [summary] = job["summaries"]
    assert "cut this summary off. Ask again with more summary tokens." in summary["warnings"][0]
    view = client.get(f"/api/runs/{job['run']}/questions/0").json()
    assert view["summaries"][0]["warnings"][0] == summary["warnings"][0]
    assert client.post("/api/ask", json=body(summary_tokens=0)).status_code == 422


def test_links_among_the_judges_of_a_run_are_not_followed(client: Client, root: Path, tmp_path: Path) -> None:
    done = client.finished(client.ask("Links?", measures=["selfreflect"]))
    [folder] = [path for path in root.iterdir() if "Links?" in (path / "questions.jsonl").read_text()]
    (folder / "judges").symlink_to(tmp_path)
    answer = client.get(f"/api/runs/{done['run']}")
    assert answer.status_code == 422
    assert "links, which are not followed" in answer.json()["error"]["message"]
