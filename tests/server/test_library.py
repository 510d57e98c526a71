"""Which run directories the page can open, and what leaves the machine by export."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from app_server import Client, serving
from command import run as run_command
from finished_run import write_run
from synthetic import informed_run, save

from selfreflect.errors import StoreError
from selfreflect.records import AnswerSet, Question
from selfreflect.report.page.view import run_data
from selfreflect.run.records import run_records
from selfreflect.sameness import same_groups
from selfreflect.server.library import Library
from selfreflect.store.manifest import FILES, MANIFEST
from selfreflect.store.run import Run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def client(root: Path) -> Iterator[Client]:
    with serving(root, work=lambda job: None) as served:
        yield served


def listed(client: Client, **options: int) -> dict[str, str]:
    return {run["name"]: run["id"] for run in client.get("/api/runs", params=options).json()["runs"]}


def test_runs_are_found_below_the_root_latest_first(root: Path, client: Client) -> None:
    for place, name in enumerate(("old", "deep/er/mine", "new", "far/too/deep/to/see")):
        path = write_run(root / name, name)
        os.utime(path / "manifest.json", (place, place))
        for file in path.glob("*.jsonl"):
            os.utime(file, (place, place))
    (root / "empty").mkdir()
    (root / "note.txt").write_text("x")
    answer = client.get("/api/runs").json()
    assert [run["name"] for run in answer["runs"]] == ["new", "deep/er/mine", "old"]
    assert answer["runs"][0]["question"] == "new"
    assert answer["more"] is False
    assert list(listed(client, offset=1, limit=1)) == ["deep/er/mine"]


def test_the_best_strategy_of_a_run_comes_first_whatever_came_first_in_time(
    root: Path, client: Client
) -> None:
    run = informed_run()
    backwards = dict(reversed(run.summaries.items()))
    save(replace(run, summaries=backwards), root / "mine")
    id_ = listed(client)["mine"]
    assert [name for _, name in Run.load(root / "mine").summaries][:2] == ["bad", "good"]
    strategies = client.get(f"/api/runs/{id_}").json()["strategies"]
    summaries = client.get(f"/api/runs/{id_}/questions/0").json()["summaries"]
    assert [one["name"] for one in strategies] == [one["name"] for one in summaries] == ["good", "bad"]


def test_a_run_names_the_judge_of_information_alone(root: Path, client: Client) -> None:
    run = informed_run()
    save(replace(run, scores={}), root / "mine")
    judges = {information.judge for information in run.information.values()}
    described = client.get(f"/api/runs/{listed(client)['mine']}").json()["judge"]
    assert len(described) == len(judges) == 1
    assert described[0].startswith(judges.pop())


def test_a_run_is_shown_question_by_question(root: Path, client: Client) -> None:
    write_run(root / "many", count=3, failed="cannot open /home/somebody/x/y.json")
    id_ = listed(client)["many"]
    run = client.get(f"/api/runs/{id_}", params={"offset": 1, "limit": 1}).json()
    assert (run["total"], [one["index"] for one in run["questions"]], run["questions"][0]["question"]) == (
        3,
        [1],
        "What first? 1",
    )
    strategies = run["strategies"]
    assert [(one["name"], one["values"][0]["mean"], one["failures"]) for one in strategies] == [
        ("greedy", "0.3750", 0),
        ("basic", None, 3),
    ]
    assert [one["values"][0]["n"] for one in strategies] == [3, 0]
    view = client.get(f"/api/runs/{id_}/questions/1").json()
    assert (view["answers"], view["words"], view["summaries"][0]["distances"]) == (
        ["One two.", "Two."],
        [[0, 1]],
        [[250, 500]],
    )
    assert view["summaries"][1]["why"] == "backend: cannot open …/y.json"
    assert client.get(f"/api/runs/{id_}/questions/3").status_code == 404


def test_what_has_changed_is_read_again(root: Path, client: Client) -> None:
    write_run(root / "one")
    id_ = listed(client)["one"]
    assert client.get(f"/api/runs/{id_}").json()["total"] == 1
    with Run.open(root / "one", {}) as run:
        run.append(Question(id="later", text="Later?"))
    assert client.get(f"/api/runs/{id_}").json()["total"] == 2


def test_links_out_of_the_root_lead_nowhere(tmp_path: Path, root: Path, client: Client) -> None:
    outside = write_run(tmp_path / "outside", "SECRET")
    (root / "linked").symlink_to(outside)
    assert listed(client) == {}
    inside = write_run(root / "inside")
    id_ = listed(client)["inside"]
    (inside / "answers.jsonl").unlink()
    (inside / "answers.jsonl").symlink_to(outside / "answers.jsonl")
    entry = client.get("/api/runs").json()["runs"][0]
    assert "links" in entry["problem"]
    for path in (f"/api/runs/{id_}", f"/api/runs/{id_}/questions/0"):
        answer = client.get(path)
        assert answer.status_code == 422
        assert "SECRET" not in answer.text
    with pytest.raises(StoreError, match="links"):
        Library(root).records(id_)


@pytest.mark.parametrize(
    "id_",
    [
        "..",
        "../outside",
        "%2e%2e%2foutside",
        "/etc",
        "outside",
        "0" * 16,
        "",
        "inside",
        "x" * 5000,
        "%00" * 16,
    ],
)
def test_only_ids_of_the_listing_open_a_run(tmp_path: Path, root: Path, client: Client, id_: str) -> None:
    write_run(tmp_path / "outside", "SECRET")
    write_run(root / "inside", "SECRET")
    for path in (f"/api/runs/{id_}", f"/api/runs/{id_}/questions/0"):
        answer = client.get(path, follow_redirects=True)
        assert answer.status_code in (200, 404, 422)
        assert "SECRET" not in answer.text or path == "/api/runs/"  # which is the listing


@pytest.mark.parametrize("name", [MANIFEST, *FILES])
def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(root: Path, client: Client, name: str) -> None:
    write_run(root / "fine")
    os.mkfifo(root / name)
    path = write_run(root / "piped")
    (path / name).unlink(missing_ok=True)
    os.mkfifo(path / name)
    entries = {run["name"]: run for run in client.get("/api/runs").json()["runs"]}
    assert entries["fine"]["problem"] is None
    assert (
        list(entries) == ["fine"]
        if name == "manifest.json"
        else "not an ordinary file" in entries["piped"]["problem"]
    )
    for entry in entries.values():
        assert client.get(f"/api/runs/{entry['id']}").status_code == (200 if entry["name"] == "fine" else 422)


def test_a_huge_manifest_is_not_read(root: Path, client: Client) -> None:
    write_run(root / "fine")
    with (write_run(root / "huge") / "manifest.json").open("ab") as file:
        file.truncate(200_000_000)
    entries = {run["name"]: run for run in client.get("/api/runs").json()["runs"]}
    assert entries["fine"]["problem"] is None
    assert "10,000,000 bytes" in entries["huge"]["problem"]
    assert client.get(f"/api/runs/{entries['huge']['id']}").status_code == 422


@pytest.mark.parametrize("name", [MANIFEST, *FILES])
def test_bytes_that_are_no_text_are_damage_that_is_explained(root: Path, client: Client, name: str) -> None:
    write_run(root / "fine")
    file = write_run(root / "broken", count=2, failed="no", informed=True) / name
    content = file.read_bytes() if file.exists() else b'{"a": 1}\n'
    file.write_bytes(content.replace(b"a", b"\xff\xfe\xed\xa0\x80", 1))
    entries = {run["name"]: run for run in client.get("/api/runs").json()["runs"]}
    assert entries["fine"]["problem"] is None
    answer = client.get(f"/api/runs/{entries['broken']['id']}")
    assert answer.status_code == 422
    assert "damaged" in answer.json()["error"]["message"]
    assert "utf-8" in answer.json()["error"]["message"]
    assert str(root) not in answer.text


def test_a_directory_whose_name_is_no_text_can_be_opened(root: Path, client: Client) -> None:
    write_run(root / os.fsdecode(b"\xff\xfe<b>\xed\xa0\x80"), "Odd?")
    [entry] = client.get("/api/runs").json()["runs"]
    assert entry["question"] == "Odd?"
    assert os.fsencode(entry["name"]) == b"\xff\xfe<b>\xed\xa0\x80"
    for path in ("", "/questions/0"):
        assert client.get(f"/api/runs/{entry['id']}{path}").status_code == 200


def test_the_list_goes_on_to_the_last_run(root: Path, client: Client) -> None:
    write_run(root / "0")
    for number in range(1, 300):
        (root / str(number)).mkdir()
        shutil.copy(root / "0" / "manifest.json", root / str(number))
    names = [name for offset in range(0, 300, 100) for name in listed(client, offset=offset, limit=100)]
    assert sorted(map(int, names)) == list(range(300))
    assert client.get("/api/runs", params={"offset": 199, "limit": 100}).json()["more"] is True
    assert client.get("/api/runs", params={"offset": 200, "limit": 100}).json()["more"] is False


def test_groups_that_a_reader_merges_are_kept_in_the_run(root: Path, client: Client) -> None:
    with Run.open(root / "one", {}) as run:
        run.append(Question(id="q", text="Where?"))
        run.append(AnswerSet(question_id="q", masked_out=("Rome", "Lyon"), conditioning=("Reims", "Rome")))
    page = f"/api/runs/{listed(client)['one']}/questions/0"
    for _ in range(2):
        response = client.post(f"{page}/merged", json={"answers": [0, 1]})
        assert response.json() == {"merged": [["Rome", "Lyon"]]}
    view = client.get(page).json()
    assert (view["groups"], view["merged"]) == ([[0, 3, 1], [2]], 1)
    # a report of the run shows the same
    with Run.load(root / "one") as run:
        [texts] = run.merged["q"].merged
    assert texts == ("Rome", "Lyon")
    index, chunks = run_data([run_records(Run.load(root / "one"))], same_groups)
    assert index["questions"][0][2] == 1.75
    assert chunks
    # and so does what is estimated from it
    [line] = run_command("uncertainty", root / "one", "--estimators", "classes", "--json").json
    assert line["values"]["classes"] == 2
    assert client.post(f"{page}/merged", json={"answers": [7]}).status_code == 404
    assert client.post(f"{page}/merged", json={"answers": [0, 3]}).status_code == 422
    assert client.post(f"{page}/merged", json={"answers": []}).json() == {"merged": []}
    assert client.get(page).json()["groups"] == [[0, 3], [1], [2]]


@pytest.mark.parametrize(("gold", "has_part"), [((), False), (("Rome",), True)])
def test_a_run_without_a_judged_answer_has_no_figures(
    root: Path, client: Client, gold: tuple[str, ...], has_part: bool
) -> None:
    with Run.open(root / "blank", {}) as run:
        run.append(Question(id="q", text="Where?", gold=gold))
        run.append(AnswerSet(question_id="q", masked_out=("", ""), conditioning=("", " ")))
    response = client.get(f"/api/runs/{listed(client)['blank']}/uncertainty")
    assert response.status_code == 200, response.text
    assert (response.json()["html"] is not None) == has_part


def test_damaged_runs_are_listed_with_the_reason(root: Path, client: Client) -> None:
    write_run(root / "fine")
    (write_run(root / "torn") / "manifest.json").write_text("{")
    (write_run(root / "half") / "scores.jsonl").write_text('{"question_id": 5}\n')
    entries = {run["name"]: run for run in client.get("/api/runs").json()["runs"]}
    assert "damaged" in entries["torn"]["problem"]
    assert str(root) not in entries["torn"]["problem"]
    answer = client.get(f"/api/runs/{entries['half']['id']}")
    assert answer.status_code == 422
    assert str(root) not in answer.text
    assert entries["fine"]["problem"] is None


def test_lone_surrogates_do_not_break_an_answer(root: Path, client: Client) -> None:
    write_run(root / "odd", "half a pair \ud83d and \x00")
    id_ = listed(client)["odd"]
    for path in (f"/api/runs/{id_}", f"/api/runs/{id_}/questions/0"):
        assert client.get(path).status_code == 200
