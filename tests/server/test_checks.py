"""What is looked at before a question is asked: models, servers, cost and time; and judges added later."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
from app_server import Client, serving
from fault_server import Call, FaultServer, answers, chat, choice, status, unused_port

from selfreflect.run.models import PROBE
from selfreflect.settings import Price
from selfreflect.store.run import Run

PRICES = {"openai:paid": Price(input_per_million=1.0, output_per_million=2.0)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    torch.set_num_threads(1)
    return tiny.save(tmp_path_factory.mktemp("models") / "model", "llama")


@pytest.fixture(scope="module")
def second(model: Path) -> Path:
    """The same model under another name, as a judge of its own."""
    return Path(shutil.copytree(model, model.with_name("second")))


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServer]:
    with FaultServer() as started:
        yield started


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def client(root: Path, model: Path, second: Path, server: FaultServer) -> Iterator[Client]:
    with serving(root, model=model, others=[second], base_url=server.url, prices=PRICES) as served:
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


def probes(server: FaultServer) -> int:
    return sum(call.body["messages"][-1]["content"] == PROBE for call in server.calls)


@pytest.mark.parametrize("code", [404, 401])
def test_a_server_that_refuses_is_found_before_anything_starts(
    client: Client, server: FaultServer, root: Path, code: int
) -> None:
    server.script = lambda call: status(code, "no")
    runs = list(root.iterdir())
    answer = client.post("/api/check", json=body(model="openai:refused")).json()
    server.script = lambda call: answers()
    [problem] = answer["problems"]
    assert problem["field"] == "model"
    assert server.url in problem["message"]
    assert list(root.iterdir()) == runs


def test_an_address_where_nobody_listens_is_said_to_be(tmp_path: Path, model: Path) -> None:
    url = f"http://127.0.0.1:{unused_port()}/v1"
    with serving(tmp_path, model=model, base_url=url) as client:
        [problem] = client.post("/api/check", json=body(model="openai:any")).json()["problems"]
    assert (problem["field"], url in problem["message"]) == ("model", True)


def test_an_api_cannot_be_the_judge_and_a_missing_one_is_named(client: Client) -> None:
    refused = client.post("/api/check", json=body(judge="openai:any"))
    assert refused.status_code == 422
    assert "openai:any" in refused.json()["error"]["message"]
    answer = client.post("/api/check", json=body(judge="nobody/no-such-model")).json()
    assert [problem["field"] for problem in answer["problems"]] == ["judge"]


def test_a_server_is_asked_once_for_samples_and_one_that_does_not_sample_is_warned_of(
    client: Client, server: FaultServer
) -> None:
    server.script = lambda call: chat(*[choice("one two")] * call.n)
    before = probes(server)
    answer = client.post("/api/check", json=body(model="openai:same")).json()
    assert "seems to ignore temperature" in answer["warnings"][0]
    asked = probes(server)
    assert asked > before
    job = client.finished(client.ask(model="openai:same", judge="model"))
    server.script = lambda call: answers()
    assert probes(server) == asked
    assert job["problems"][0]["message"] == answer["warnings"][0]


def test_costs_are_those_of_a_dry_run_and_a_price_asks_for_agreement(client: Client) -> None:
    answer = client.post("/api/estimate", json=body(model="openai:paid", num_answers=5)).json()
    drawn, summarised = answer["stages"]
    assert drawn["amounts"]["completions"] == {"expected": 10, "most": 10}
    assert drawn["amounts"]["completion_tokens"]["most"] == 640
    assert summarised["amounts"]["completion_tokens"]["most"] == 256
    most = sum(stage["amounts"]["money"]["most"] for stage in answer["stages"])
    assert answer["money"]["most"] == pytest.approx(most, abs=2e-6)
    assert most > 640 * 2e-6
    assert answer["reasons"] == ["this run costs money"]
    assert {"seconds", "basis"}.isdisjoint(answer)
    many = client.post("/api/estimate", json=body(model="openai:free", num_answers=100)).json()
    assert many["reasons"], "200 completions are worth a look"
    free = client.post("/api/estimate", json=body(model="openai:free")).json()
    assert (free["money"], free["reasons"]) == (None, [])  # this machine's own server


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


def test_a_run_gets_one_more_judge_beside_its_scores(client: Client, root: Path) -> None:
    done = client.finished(client.ask("Who judges?", measures=["selfreflect"]))
    at = f"/api/runs/{done['run']}"
    before = client.get(f"{at}/questions/0").json()
    answer = client.post(f"{at}/judges", json={"judge": "second", "measures": ["selfreflect"]})
    assert answer.status_code == 202
    job = client.finished(answer.json()["id"])
    assert job["status"] == "done", job
    run = client.get(at, params={"judge": job["scoring"]}).json()
    assert [one["id"] for one in run["scorings"]] == ["", job["scoring"]]
    assert [one["judge"] for one in run["scorings"]] == ["…/model", "…/second"]
    assert (run["scoring"], run["strategies"][0]["values"][0]["n"]) == (job["scoring"], 1)
    other = client.get(f"{at}/questions/0", params={"judge": job["scoring"]}).json()
    assert other["summaries"][0]["score"] == pytest.approx(before["summaries"][0]["score"])
    assert client.get(f"{at}/questions/0").json() == before
    guesses = f"{at}/questions/0/guesses?summary=0&answer=0&judge={job['scoring']}"
    assert client.get(guesses).json()
    assert client.get(at, params={"judge": "nobody-00000000"}).status_code == 404
    assert client.get(at, params={"judge": "../x"}).status_code == 422
    [folder] = [path for path in root.iterdir() if (path / "judges").exists()]
    assert Run.load(folder).scorings == ["", job["scoring"]]


def test_a_run_without_summaries_gets_no_judge(client: Client) -> None:
    failed = client.finished(client.ask(model="nobody/no-such-model", judge="model"))
    answer = client.post(f"/api/runs/{failed['run']}/judges", json={"judge": "second"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "data")


def test_links_among_the_judges_of_a_run_are_not_followed(client: Client, root: Path, tmp_path: Path) -> None:
    done = client.finished(client.ask("Links?", measures=["selfreflect"]))
    [folder] = [path for path in root.iterdir() if "Links?" in (path / "questions.jsonl").read_text()]
    (folder / "judges").symlink_to(tmp_path)
    answer = client.get(f"/api/runs/{done['run']}")
    assert answer.status_code == 422
    assert "links, which are not followed" in answer.json()["error"]["message"]
