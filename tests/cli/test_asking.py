"""`selfreflect uncertainty` asks a model about stored answers: over a socket, once, and after a kill."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import run, written
from fault_server import Action, Call, FaultServer, chat, choice, status
from finished_run import write_run

from selfreflect.store.journal import REPLIES

QUESTIONS = [
    {
        "id": f"q{number}",
        "question": f"Number {number}",
        "answers": ["Paris", "Lyon", "Paris"],
        "gold": "Paris",
    }
    for number in range(6)
]


def replies(call: Call) -> Action:
    text = call.body["messages"][-1]["content"]
    if "top_logprobs" in call.body:
        token = {"token": "True", "logprob": 0.0}
        return chat({**choice("True"), "logprobs": {"content": [{**token, "top_logprobs": [token]}]}})
    said = "True" if "True or False" in text else "80%"
    return chat(*[choice(said) for _ in range(call.n)])


def asking(path: Path, server: FaultServer, *arguments: object) -> list[object]:
    model = ["--model", "openai:tiny", "--base-url", server.url, "--classes", "same"]
    return ["uncertainty", path, "--estimators", "p_true,self_evaluation", *model, *arguments]


def test_a_served_model_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFREFLECT_API_KEY", "secret-key")
    path, out = written(tmp_path / "a.json", QUESTIONS), tmp_path / "kept"
    with FaultServer(replies) as server:
        first = run(*asking(path, server, "--out", out, "--json"))
        assert first.code == 0, first.stderr
        assert len(server.calls) == 12
        assert run(*asking(path, server, "--out", out, "--json")).stdout == first.stdout
        assert len(server.calls) == 12
    line = first.json[0]
    assert line["values"] == {"p_true": 1.0, "self_evaluation": 0.8}
    rows = {row["estimator"]: row for row in first.json if "estimator" in row}
    assert rows["p_true"]["model"] == f"openai:tiny at {server.url}"
    assert (rows["p_true"]["needs"], rows["p_true"]["range"]) == ("model", [0, 1])
    assert "token True" in rows["p_true"]["variant"]
    assert "p_true 6 6 " in first.said  # requests and replies, before they are asked for
    assert "secret-key" not in (out / REPLIES).read_text()


def test_a_dry_run_says_what_is_asked_and_asks_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", QUESTIONS)
    with FaultServer(replies) as server:
        dry = run(*asking(path, server, "--dry-run"))
        assert dry.code == 0, dry.stderr
        assert "p_true 6 6 " in " ".join(dry.stdout.split())
        objects = [{**row, "answers": ['{"city": "Paris", "zip": 1}'] * 3, "gold": ""} for row in QUESTIONS]
        fields = written(tmp_path / "b.json", objects)
        of_fields = run(*asking(fields, server, "--dry-run", "--fields", "auto"))
        assert "p_true 12 12 " in " ".join(of_fields.stdout.split())
        assert server.calls == []
    nothing = run("uncertainty", path, "--dry-run")
    assert (nothing.code, nothing.stdout) == (0, "")


def test_p_true_is_sampled_from_a_server_that_tells_probabilities(tmp_path: Path) -> None:
    def server(call: Call) -> Action:
        share = 0.7 if '"Paris' in call.body["messages"][-1]["content"] else 0.2
        return chat(*[choice("True" if place < share * call.n else "False") for place in range(call.n)])

    def rows(name: str) -> list[dict[str, object]]:
        answers = [["Paris"], ["Lyon"]]
        return [
            {"id": f"{name}{n}", "question": f"{name}{n}?", "answers": answers[n % 2], "gold": "Paris"}
            for n in range(50)
        ]

    fitted, other = written(tmp_path / "a.json", rows("a")), written(tmp_path / "b.json", rows("b"))
    saved = tmp_path / "cal.json"
    with FaultServer(server) as served:
        model = ["--model", "openai:tiny", "--base-url", served.url]
        sampled = ["--estimator", "p_true", "--sample-p-true", "--method", "temperature"]
        assert run("calibrate", fitted, *sampled, "--save", saved, *model).code == 0
        applied = run("calibrate", other, "--apply", saved, *model, "--json")
        assert all("logprobs" not in call.body for call in served.calls)
    assert [line["value"] for line in applied.json] == [0.7, 0.2] * 25


def test_a_served_judge_sorts_answers_and_decides_what_is_correct(tmp_path: Path) -> None:
    def judge(call: Call) -> Action:
        text = call.body["messages"][-1]["content"]
        return chat(choice("No" if "Lyon" in text else "Yes"))

    rows = [
        {
            "id": str(n),
            "question": f"Number {n}?",
            "answers": ["Paris", "City of Light", "Lyon"],
            "gold": "It is Paris",
        }
        for n in range(6)
    ]
    rows.append({**rows[0], "id": "x", "answers": ["Lyon"]})
    path = written(tmp_path / "a.json", rows)
    by_judge = ["--classes", "judge", "--correctness", "judge", "--out", tmp_path / "kept"]
    with FaultServer(judge) as server:
        served = ["--model", "openai:tiny", "--base-url", server.url]
        outcome = run("uncertainty", path, "--estimators", "modal_share", *by_judge, *served, "--json")
        assert outcome.code == 0, outcome.stderr
        asked = len(server.calls)
        again = run("uncertainty", path, "--estimators", "modal_share", *by_judge, *served, "--json")
    assert (again.stdout, len(server.calls)) == (outcome.stdout, asked)
    questions = [line for line in outcome.json if "values" in line]
    assert questions[0]["values"]["modal_share"] == pytest.approx(2 / 3)
    assert questions[0]["classes"] == f"judge openai:tiny at {server.url}, first"
    assert [line["correct"]["judge"] for line in questions] == [True] * 6 + [False]
    refused = run("calibrate", path, "--classes", "judge")
    assert (refused.code, "Name it with --model" in refused.said) == (2, True)


def test_a_named_model_is_asked_about_open_pairs_unless_it_is_too_small_or_a_rule_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "judging.py").write_text(
        "import re\n\n"
        "def reply(messages):\n"
        "    return 'No' if re.search('Lyon|postman', messages[-1]['content']) else 'Yes'\n"
    )
    answers = ["Paris", "City of Light", "Paris.", "Lyon"]
    path = written(tmp_path / "a.json", [{"id": "q", "question": "Which city?", "answers": answers}])
    command = ["uncertainty", path, "--estimators", "classes", "--json"]
    named = [*command, "--model", "judging:reply"]

    def classes(*arguments: object) -> tuple[str, float]:
        outcome = run(*arguments)
        assert outcome.code == 0, outcome.stderr
        return outcome.json[0]["classes"], outcome.json[0]["values"]["classes"]

    assert classes(*command) == ("same", 3)
    assert classes(*named) == ("judge judging:reply, first", 2)
    assert classes(*named, "--classes", "same") == ("same", 3)
    assert classes(*command, "--model", "smollm2") == ("same", 3)


def test_what_a_model_says_is_calibrated_and_applied_with_the_same_model_only(tmp_path: Path) -> None:
    def unsure(call: Call) -> Action:
        return chat(choice(f"{5 + len(call.body['messages'][-1]['content']) % 90}%"))

    rows = [{**QUESTIONS[0], "id": str(n), "question": "x" * n} for n in range(50)]
    rows = [{**row, "gold": "Paris" if n % 3 else "Rome"} for n, row in enumerate(rows)]
    new = [{"id": "new", "question": "And now", "answers": ["Paris"]}]
    saved = tmp_path / "calibrator.json"
    with FaultServer(unsure) as server:
        served = ["--base-url", server.url, "--out", tmp_path / "kept"]
        known, tiny = written(tmp_path / "a.json", rows), ["--model", "openai:tiny"]
        outcome = run("calibrate", known, "--estimator", "self_evaluation", "--save", saved, *tiny, *served)
        assert outcome.code == 0, outcome.stderr
        path = written(tmp_path / "b.json", new)
        [line] = run("calibrate", path, "--apply", saved, *tiny, *served, "--json").json
        assert (line["estimator"], 0 <= line["confidence"] <= 1) == ("self_evaluation", True)
        other = run("calibrate", path, "--apply", saved, "--model", "openai:other", *served)
    assert (other.code, "was fitted with the model 'openai:tiny at" in other.said) == (2, True)


def test_a_saved_calibrator_reads_stored_verdicts_without_asking(tmp_path: Path) -> None:
    def judge(call: Call) -> Action:
        text = call.body["messages"][-1]["content"]
        return chat(choice("Yes" if 'The answer was "Paris' in text else "No"))

    def rows(name: str) -> list[dict[str, object]]:
        sure = [{"answers": ["Paris!", "Paris!"]}, {"answers": ["Lyon", "Rome"]}]
        question = {"question": "Capital?", "gold": "It is Paris"}
        return [{**question, **sure[n % 2], "id": f"{name}{n}", "question": f"{name}{n}?"} for n in range(50)]

    fitted, other = written(tmp_path / "a.json", rows("a")), written(tmp_path / "b.json", rows("b"))
    saved, kept = tmp_path / "cal.json", ["--out", tmp_path / "kept"]
    with FaultServer(judge) as server:
        asked = ["--correctness", "judge", "--model", "openai:tiny", "--base-url", server.url, *kept]
        assert run("calibrate", fitted, "--save", saved, *asked).code == 0
        assert run("uncertainty", other, *asked).code == 0
    outcome = run("calibrate", other, "--apply", saved, *kept, "--json")
    assert [line["correct"] for line in outcome.json] == [True, False] * 25
    missing = run("calibrate", other, "--apply", saved, "--out", tmp_path / "empty")
    assert (missing.code, "name it with --model" in missing.said) == (2, True)
    assert "50 replies of the model" in missing.said


def test_a_saved_calibrator_loads_no_classifier_that_the_user_did_not_name(tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", QUESTIONS)
    calibrator = {
        "estimator": "modal_share",
        "classes": "nli:somebody/model",
        "class_order": "first",
        "similarity": "jaccard",
        "correctness": "exact",
        "method": "platt",
        "x": [1.0, 0.0],
        "y": [],
        "n": 1,
        "samples": [2],
        "questions": [],
    }
    saved = written(tmp_path / "cal.json", calibrator)
    for chosen, said in (([], "add --classes"), (["--classes", "exact"], "was fitted with the classes")):
        outcome = run("calibrate", path, "--apply", saved, *chosen)
        assert (outcome.code, said in outcome.said, "nli:somebody/model" in outcome.said) == (2, True, True)


def test_a_run_keeps_the_replies_of_its_own_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFREFLECT_API_KEY", "secret-key")
    path = write_run(tmp_path / "run", count=2)
    outcome = run("uncertainty", path, "--estimators", "p_true")
    assert (outcome.code, "does not say which model drew its answers" in outcome.said) == (2, True)
    with FaultServer(replies) as server:
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["config"]["answers"] = {"model": "openai:tiny", "base_url": server.url}
        (path / "manifest.json").write_text(json.dumps(manifest))
        outcome = run("uncertainty", path, "--estimators", "p_true", "--json")
        assert outcome.json[0]["values"] == {"p_true": 1.0}
        assert f"asking {server.url}, with your key, because {path} names it" in outcome.said
        assert len((path / REPLIES).read_text().splitlines()) == len(server.calls) == 2
    assert run("report", path).code == 0


@pytest.mark.parametrize(
    ("answers", "part"),
    [
        ({"model": "anybodys:reply"}, "names a Python function"),
        ({"model": "openai:tiny", "base_url": "https://elsewhere.example/v1"}, "outside your network"),
        ({"model": "openai:tiny", "base_url": "http://134744072/v1"}, "outside your network"),
    ],
)
@pytest.mark.parametrize("command", ["uncertainty", "calibrate"])
def test_neither_code_nor_a_server_elsewhere_is_used_because_a_run_says_so(
    command: str,
    answers: dict[str, str],
    part: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SELFREFLECT_API_KEY", "secret-key")
    (tmp_path / "anybodys.py").write_text("open('ran', 'w')\n\ndef reply(messages):\n    return 'True'\n")
    path = write_run(tmp_path / "run")
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["config"]["answers"] = answers
    (path / "manifest.json").write_text(json.dumps(manifest))
    chosen = "--estimators" if command == "uncertainty" else "--estimator"
    outcome = run(command, path, chosen, "p_true")
    assert (outcome.code, part in outcome.said) == (2, True)
    assert not (tmp_path / "ran").exists()


def test_a_server_that_fails_leaves_reasons_and_no_number(tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", QUESTIONS)
    with FaultServer(lambda call: chat(choice(None, "content_filter"))) as server:
        outcome = run(*asking(path, server, "--json"))
    assert outcome.code == 0, outcome.stderr
    assert outcome.json[0]["values"]["self_evaluation"] is None
    assert outcome.json[0]["undefined"]["self_evaluation"]["reason"] == "no_reply"
    with FaultServer(lambda call: status(401, "bad key")) as server:
        outcome = run(*asking(path, server, "--out", tmp_path / "kept"))
    assert outcome.code not in (0, 70)
    assert "Its replies are kept in" in outcome.said
