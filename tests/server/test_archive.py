"""What the endpoint keeps on disk, with and without texts, and who can read it."""

from __future__ import annotations

import errno
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from command import run, written
from endpoint import CITIES, endpoint_server

from selfreflect.errors import StoreError
from selfreflect.models.base import Request
from selfreflect.records import AnswerSet, Information, Question, Score, Summary
from selfreflect.server.belief import load_calibrator
from selfreflect.server.record import Archive
from selfreflect.store.journal import Journal
from selfreflect.store.run import Run

SECRETS = ("capital of Turkey", "Ankara", "Istanbul", "A document", "Most likely")


def by_step(request: Request) -> Any:
    if "thoughts about a question" in request.messages[-1].content:
        return "Most likely Ankara."
    return CITIES


CONTEXT = [
    {"role": "system", "content": "A document."},
    {"role": "user", "content": "What is the capital of Turkey?"},
]


def test_a_directory_with_texts_is_a_run(tmp_path: Path) -> None:
    with endpoint_server(by_step, out=tmp_path / "run", keep_texts=True) as client:
        id_ = client.chat(messages=CONTEXT).json()["id"]
        client.chat(n=2)  # the same question again is another one
    stored = Run.load(tmp_path / "run")
    assert len(stored.questions) == len(stored.answers) == 2
    assert stored.questions[id_] == Question(id=id_, text=CONTEXT[1]["content"], context="A document.")
    assert stored.answers[id_].answers == tuple(CITIES)
    assert [name for _, name in stored.summaries] == [
        "sample_and_summarize",
        "sample_and_summarize#1",
        "sample_and_summarize#2",
    ]
    assert stored.summaries[id_, "sample_and_summarize"].text == "Most likely Ankara."
    assert "modal_share" in run("uncertainty", tmp_path / "run", "--json").stdout
    shown = run("report", tmp_path / "run")
    assert "The endpoint answered 2 questions; no judge measured its summaries." in " ".join(
        shown.stdout.split()
    )
    assert "missing" not in shown.stdout + shown.said
    assert "selfreflect uncertainty" in shown.said


def test_what_was_served_calibrates_the_endpoint_and_trains(tmp_path: Path) -> None:
    kept, labelled, saved = tmp_path / "run", tmp_path / "labelled.jsonl", tmp_path / "calibrator.json"
    with endpoint_server(by_step, out=kept, keep_texts=True) as client:
        for number in range(10):
            client.chat(messages=[{"role": "user", "content": f"What is the capital of country {number}?"}])
    assert run("export", kept, "--format", "items", "--output", tmp_path).code == 0
    rows = map(json.loads, (tmp_path / "items.jsonl").read_text().splitlines())
    gold = itertools.cycle(["Ankara", "Izmir"])
    traffic = [
        row | {"id": f"{row['id']}-{part}", "question": f"{row['question']} ({part})"}
        for row in rows
        for part in range(5)
    ]
    written(labelled, "".join(json.dumps({**row, "gold": next(gold)}) + "\n" for row in traffic))
    assert run("calibrate", labelled, "--save", saved).code == 0
    with endpoint_server(by_step, calibrator=load_calibrator(saved)) as client:
        belief = client.chat().json()["selfreflect"]
    assert belief["calibrated"]
    assert belief["confidence"] == pytest.approx(0.5)  # three of four answers agree; every second is right
    assert "10 rows of 10 questions" in run("dataset", "grpo", kept, "--output", tmp_path / "grpo").said


def test_without_leave_no_text_is_kept_but_shares_are(tmp_path: Path) -> None:
    with endpoint_server(by_step, out=tmp_path / "run") as client:
        id_ = client.chat(messages=CONTEXT).json()["id"]
    for file in (tmp_path / "run").rglob("*"):
        if file.is_file():
            assert not any(secret in file.read_text() for secret in SECRETS), file
    stored = Run.load(tmp_path / "run")
    assert stored.answers[id_].answers == ("answer 1", "answer 1", "answer 2", "answer 1")
    assert "0.75" in run("uncertainty", tmp_path / "run", "--json").stdout


def test_a_directory_keeps_either_texts_or_none(tmp_path: Path) -> None:
    Archive(tmp_path / "run", texts=False).close()
    with pytest.raises(StoreError, match="different settings"):
        Archive(tmp_path / "run", texts=True)


class Judge:
    """Measures without a model."""

    def __init__(self) -> None:
        self.answers: list[AnswerSet] = []

    def measure(
        self, question: Question, answers: AnswerSet, summaries: tuple[Summary, ...], **_: Any
    ) -> list[Score | Information]:
        self.answers.append(answers)
        records: list[Score | Information] = []
        for one in summaries:
            common = {"question_id": question.id, "summary": one.name}
            records.append(Score(**common, value=0.25, stderr=None, token_tasks=1, judge="j"))
            records.append(
                Information(
                    **common,
                    zero="empty",
                    anchor="distinct",
                    reader="informed",
                    bits=3.0,
                    bits_available=6.0,
                    recovered=0.5,
                    judge="j",
                )
            )
        return records


def test_a_judge_measures_by_answers_that_no_strategy_saw(tmp_path: Path) -> None:
    judge = Judge()
    seen: list[Request] = []

    def script(request: Request) -> Any:
        seen.append(request)
        return by_step(request)

    with endpoint_server(
        script, out=tmp_path / "run", judge={"information": judge}, measures=("information",)
    ) as client:
        belief = client.chat().json()["selfreflect"]
        assert client.chat(selfreflect={"measures": []}).json()["selfreflect"]["score"] is None
    assert (belief["score"], belief["recovered"]) == (0.25, 0.5)
    assert belief["cost"]["completions"] == 4 + 1 + 4
    [answers] = judge.answers
    assert answers.conditioning == answers.masked_out == tuple(CITIES)
    drawn = [request.seed for request in seen[:3] if request.n == 4]
    assert len(set(drawn)) == 2  # other answers than those that were summarised
    stored = Run.load(tmp_path / "run")
    assert [one.recovered for one in stored.information.values()] == [0.5]
    assert stored.answers[belief["id"]].masked_out[0] == "held-out answer 1"


@pytest.mark.usefixtures("plugin")
def test_a_request_may_want_a_measure_of_another_package() -> None:
    with endpoint_server() as client:
        belief = client.chat(selfreflect={"measures": ["contained"]}).json()["selfreflect"]
        unknown = client.chat(selfreflect={"measures": ["contain"]}).json()["error"]
        judged = client.chat(selfreflect={"measures": ["information"]})
    assert belief["measured"] == {"contained": 0.75}
    assert (belief["recovered"], belief["cost"]["completions"]) == (None, 9)
    assert "contained" in unknown["message"]
    assert judged.status_code == 400


@pytest.mark.parametrize("stream", [False, True])
def test_what_a_full_disk_cannot_keep_is_given_with_a_note_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path))

    with endpoint_server(by_step, out=tmp_path / "run") as client:
        with monkeypatch.context() as disk:
            disk.setattr(Journal, "append", full)
            unkept = client.events()[-1] if stream else client.chat().json()
        kept = client.chat().json()
        counts = client.http.get("/metrics").text.splitlines()
        found = client.http.get(f"/v1/selfreflect/{unkept['id']}").json()
    assert unkept["selfreflect"]["num_answers"] == 4
    [note] = set(unkept["selfreflect"]["notes"]) - set(kept["selfreflect"]["notes"])
    assert str(tmp_path) not in note
    assert note in found["notes"]
    assert "selfreflect_not_kept_total 1.0" in counts
    assert 'selfreflect_responses_total{outcome="answered"} 2.0' in counts
    assert list(Run.load(tmp_path / "run").answers) == [kept["id"]]
