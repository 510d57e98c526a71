"""The run directory keeps every record, never doubles one, refuses what is not its own, and says what is
wrong in words."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moments import files_in, moments, place
from msgspec.structs import replace

from selfreflect.errors import StoreError
from selfreflect.records import (
    AnswerSample,
    AnswerSet,
    Control,
    Controls,
    Failure,
    Information,
    Question,
    Record,
    Score,
    Summary,
    WordBits,
    WordDistance,
)
from selfreflect.store.manifest import count_records
from selfreflect.store.run import Run

CONFIG = {"questions": {"source": "bundled", "limit": 3}, "answers": {"model": "demo", "seed": 1}}
FILES = ["questions.jsonl", "answers.jsonl", "summaries.jsonl", "scores.jsonl", "failures.jsonl"]


def question(number: int, text: str = "Why?") -> Question:
    return Question(id=f"q-{number}", text=text, gold=("a", "b"))


def answers(number: int) -> AnswerSet:
    return AnswerSet(
        question_id=f"q-{number}",
        masked_out=("yes",),
        conditioning=("no", "maybe"),
        temperature=1.0,
        seed=2**63,
    )


def summary(number: int, name: str = "greedy") -> Summary:
    return Summary(question_id=f"q-{number}", name=name, text="Perhaps.")


def score(number: int, name: str = "greedy") -> Score:
    words = (WordDistance(answer=0, word=0, text="yes", distances=(0.1, 1 / 3)),)
    return Score(
        question_id=f"q-{number}",
        summary=name,
        value=0.25,
        stderr=None,
        token_tasks=2,
        judge="j",
        answer_means=(0.5,),
        words=words,
    )


def information(number: int, name: str = "greedy") -> Information:
    return Information(
        question_id=f"q-{number}",
        summary=name,
        zero="empty",
        anchor="distinct",
        reader="blind",
        bits=1.5,
        bits_available=2.0,
        recovered=0.75,
        answers=((WordBits("radishes", 1.5, 2.0),),),
    )


def failure(
    number: int, stage: str = "summaries", name: str = "greedy", message: str = "no reply"
) -> Failure:
    return Failure(question_id=f"q-{number}", stage=stage, kind="backend", message=message, name=name)


ALL = [question(1), question(2), answers(1), summary(1), summary(1, "basic"), score(1), failure(2)]


def contents(run: Run) -> list[Record]:
    return [
        *run.questions.values(),
        *run.answers.values(),
        *run.summaries.values(),
        *run.scores.values(),
        *run.information.values(),
        *run.controls.values(),
        *run.failures,
    ]


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A finished run directory with the records of ``ALL``."""
    with Run.open(tmp_path / "run", CONFIG) as run:
        run.append_all(ALL)
    return tmp_path / "run"


class TestRecords:
    def test_what_is_appended_is_read_back_by_key_in_order(self, full: Path) -> None:
        run = Run.load(full)
        assert list(run.questions.items()) == [("q-1", question(1)), ("q-2", question(2))]
        assert run.answers == {"q-1": answers(1)}
        assert list(run.summaries) == [("q-1", "greedy"), ("q-1", "basic")]
        assert run.scores == {("q-1", "greedy"): score(1)}
        assert run.failures == [failure(2)]

    def test_a_record_is_visible_at_once_here_and_to_a_reader_of_the_open_run(self, tmp_path: Path) -> None:
        with Run.open(tmp_path / "deep" / "run", CONFIG) as run:
            for count, record in enumerate(ALL, 1):
                run.append(record)
                assert contents(run) == contents(Run.load(run.path))
                assert len(contents(run)) == count

    @pytest.mark.parametrize("again", [question(1, "Other?"), answers(1), summary(1), score(1)])
    def test_a_key_that_is_stored_is_refused_and_nothing_is_written(self, full: Path, again: Record) -> None:
        before = {name: (full / name).read_bytes() for name in FILES}
        with Run.open(full, CONFIG) as run, pytest.raises(StoreError, match=r"q-1.* already stored"):
            run.append_all([question(7), answers(7), summary(7), score(7), again])
        assert {name: (full / name).read_bytes() for name in FILES} == before

    def test_a_batch_may_not_hold_a_key_twice(self, full: Path) -> None:
        with Run.open(full, CONFIG) as run:
            with pytest.raises(StoreError, match="q-9"):
                run.append_all([summary(9), summary(9)])
            assert ("q-9", "greedy") not in run.summaries

    @pytest.mark.parametrize(
        ("value", "tasks"), [(float("nan"), 1), (float("inf"), 1), (0.5, "many"), (0.5, Path("x"))]
    )
    def test_what_could_not_be_read_back_never_reaches_the_disk(
        self, full: Path, value: float, tasks: Any
    ) -> None:
        bad = Score(
            question_id="q-2", summary="greedy", value=value, stderr=None, token_tasks=tasks, judge="j"
        )
        with Run.open(full, CONFIG) as run:
            with pytest.raises(StoreError, match=r"scores.jsonl.*q-2 / greedy.*cannot be written"):
                run.append(bad)
            assert ("q-2", "greedy") not in run.scores
        assert Run.load(full).scores == {("q-1", "greedy"): score(1)}

    def test_reading_does_not_write_and_a_closed_run_does_not_either(self, full: Path) -> None:
        with Run.open(full, CONFIG) as run:
            pass
        for closed in (run, Run.load(full)):
            with pytest.raises(StoreError, match="not open for writing"):
                closed.append(question(5))
            with pytest.raises(StoreError, match="not open for writing"):
                closed.update_manifest(models={"judge": {"name": "x"}})
        assert "q-5" not in Run.load(full).questions


class TestFailures:
    def test_the_last_failure_of_a_key_stands(self, full: Path) -> None:
        with Run.open(full, CONFIG) as run:
            run.append(failure(2, message="again"))
            assert run.failures == [failure(2, message="again")]
        assert Run.load(full).failures == [failure(2, message="again")]

    def test_a_score_that_failed_is_not_hidden_by_information(self, tmp_path: Path) -> None:
        settings = {"scores": {"measures": "information"}}  # those of the first command; a later one scored
        with Run.open(tmp_path / "r", settings) as run:
            run.append_all([question(2), information(2), failure(2, "scores")])
            assert run.failures == [failure(2, "scores")]

    @pytest.mark.parametrize(
        ("failed", "made"),
        [
            (failure(2, "questions", ""), question(2)),
            (failure(2, "answers", ""), answers(2)),
            (failure(2, "summaries"), summary(2)),
            (failure(2, "scores"), score(2)),
        ],
    )
    def test_a_later_success_removes_the_failure(self, tmp_path: Path, failed: Failure, made: Record) -> None:
        other = failure(3, failed.stage, failed.name)
        with Run.open(tmp_path, CONFIG) as run:
            run.append_all([failed, other])
            assert run.failures == [failed, other]
            run.append(made)
            assert run.failures == [other]
        assert Run.load(tmp_path).failures == [other]


class TestManifest:
    def test_it_holds_the_config_and_what_stages_add(self, full: Path) -> None:
        with Run.open(full, CONFIG) as run:
            run.update_manifest(
                models={"generator": {"name": "demo", "revision": "abc"}}, packages={"torch": "2.8"}
            )
            run.update_manifest(
                models={"judge": {"name": "j"}}, prompts={"greedy": "sha"}, sources={"name": "bundled"}
            )
        manifest = Run.load(full).manifest
        assert manifest.config == CONFIG
        assert manifest.models == {"generator": {"name": "demo", "revision": "abc"}, "judge": {"name": "j"}}
        assert (manifest.packages, manifest.prompts, manifest.sources) == (
            {"torch": "2.8"},
            {"greedy": "sha"},
            {"name": "bundled"},
        )
        assert json.loads((full / "manifest.json").read_text())["schema_version"] == 1

    @pytest.mark.parametrize(
        "url", ["https://user:p@ss@host:1/v1?x=@", "http://token@host:1/v1?x=@", "HTTP://:pw@host:1/v1?x=@"]
    )
    def test_credentials_in_urls_are_never_written(self, tmp_path: Path, url: str) -> None:
        config = {"answers": {"base_url": url}, "servers": [url, {url: f"see {url}"}]}
        with Run.open(tmp_path, config) as run:
            run.update_manifest(models={"generator": {"servers": (url,)}}, sources={url: 1})
            safe = re.sub("//.*@host", "//***@host", url)
            assert run.manifest.config == {
                "answers": {"base_url": safe},
                "servers": [safe, {safe: f"see {safe}"}],
            }
            assert run.manifest.models == {"generator": {"servers": [safe]}}
        text = (tmp_path / "manifest.json").read_text()
        assert not re.search(r"pass|p@ss|pw|token|user", text)
        with Run.open(tmp_path, config) as run:
            assert run.manifest.sources == {safe: 1}

    @pytest.mark.parametrize(
        "damage", [{"models": {"answers": "gpt"}}, {"packages": 3}, {"sources": {"questions": "q.txt"}}]
    )
    def test_a_fact_of_the_wrong_shape_is_named(self, full: Path, damage: dict[str, Any]) -> None:
        fields = json.loads((full / "manifest.json").read_text())
        (full / "manifest.json").write_text(json.dumps({**fields, **damage}))
        with pytest.raises(StoreError, match=r"manifest\.json: Expected `object`"):
            Run.load(full)

    @pytest.mark.parametrize("name", [".manifest.json.tmp", "manifest.json.01234567.partial"])
    def test_a_temporary_file_of_a_killed_run_does_no_harm(self, full: Path, name: str) -> None:
        (full / name).write_text('{"format": "selfre')
        with Run.open(full, CONFIG) as run:
            run.update_manifest(wall_time={"answers": 1.0})
        assert Run.load(full).manifest.wall_time == {"answers": 1.0}
        assert not (full / name).exists()


class TestConfig:
    def test_the_same_config_resumes(self, full: Path) -> None:
        before = (full / "manifest.json").stat().st_mtime_ns
        with Run.open(full, {name: dict(section) for name, section in CONFIG.items()}) as run:
            assert contents(run) == ALL
        assert (full / "manifest.json").stat().st_mtime_ns == before

    def test_every_difference_is_shown_and_nothing_is_changed(self, full: Path) -> None:
        other = {
            "questions": {"source": "mine.csv", "shuffle": True},
            "answers": {"model": "demo", "seed": 2},
        }
        with pytest.raises(StoreError) as caught:
            Run.open(full, other)
        message = str(caught.value)
        assert 'questions.source: "bundled" -> "mine.csv"' in message
        assert "questions.limit: 3 -> (absent)" in message
        assert "questions.shuffle: (absent) -> true" in message
        assert "answers.seed: 1 -> 2" in message
        assert "answers.model" not in message
        assert "Use another out. To start over in this directory, add fresh" in message
        assert Run.load(full).manifest.config == CONFIG
        Run.open(full, CONFIG).close()  # the refused attempt left no lock behind

    def test_stages_bring_their_sections_one_after_the_other(self, full: Path) -> None:
        with Run.open(full, {"scores": {"judge": "j"}}) as run:
            assert run.manifest.config == {**CONFIG, "scores": {"judge": "j"}}
            assert contents(run) == ALL
        Run.open(full, CONFIG).close()
        with pytest.raises(StoreError, match=r'scores\.judge: "j" -> "k"'):
            Run.open(full, {"scores": {"judge": "k"}})

    def test_a_stage_is_settled_once_on_the_open_and_locked_run(self, full: Path) -> None:
        with Run.open(full, CONFIG) as run:
            run.update_manifest(
                config={"scores": {"judge": "j"}}, models={"scores": {"name": "j"}}, packages={"torch": "2"}
            )
            run.update_manifest(models={"answers": {"name": "again"}}, prompts={"answers": "hash"})
            with pytest.raises(StoreError, match=f"pid {os.getpid()}"):
                Run.open(full, CONFIG)
            assert contents(run) == ALL
            assert Run.load(full).manifest == run.manifest
        manifest = Run.load(full).manifest
        assert manifest.config == {**CONFIG, "scores": {"judge": "j"}}
        assert manifest.models == {"scores": {"name": "j"}, "answers": {"name": "again"}}
        assert (manifest.prompts, manifest.packages) == ({"answers": "hash"}, {"torch": "2"})
        with pytest.raises(StoreError, match="not open for writing"):
            Run.load(full).update_manifest(config={"questions": {}})


class TestOtherDirectories:
    def test_a_directory_with_something_else_in_it_is_not_taken_over(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("years of work")
        for fresh in (False, True):
            with pytest.raises(StoreError, match="not empty, but is not a run directory"):
                Run.open(tmp_path, CONFIG, fresh=fresh)
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]

    @pytest.mark.parametrize(
        "text", ['{"name": "my web app", "start_url": "/"}', "[1]", '{"format": 3}', '{"format": "selfre']
    )
    def test_a_manifest_of_something_else_is_not_taken_over(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "manifest.json").write_text(text)
        (tmp_path / "answers.jsonl").write_text("precious\n")
        for attempt in (
            lambda: Run.open(tmp_path, CONFIG),
            lambda: Run.open(tmp_path, CONFIG, fresh=True),
            lambda: Run.load(tmp_path),
        ):
            with pytest.raises(StoreError, match=r"not a run directory|manifest.json is damaged"):
                attempt()
        assert (tmp_path / "answers.jsonl").read_text() == "precious\n"

    def test_fresh_starts_over_and_keeps_what_is_not_ours(self, full: Path) -> None:
        (full / "report.html").write_text("kept")
        with Run.open(full, CONFIG) as run:
            run.update_manifest(wall_time={"answers": 9.0})
        with Run.open(full, {"questions": {"limit": 9}}, fresh=True) as run:
            assert contents(run) == []
            assert run.manifest.config == {"questions": {"limit": 9}}
            assert run.manifest.wall_time == {}
            run.append(question(1))
        assert (full / "report.html").read_text() == "kept"
        assert list(Run.load(full).questions) == ["q-1"]
        [backup] = full.glob("backup-*")
        assert contents(Run.load(backup)) == ALL
        assert Run.load(backup).manifest.wall_time == {"answers": 9.0}

    def test_fresh_that_is_killed_leaves_only_records_that_belong_together(
        self, full: Path, tmp_path: Path
    ) -> None:
        """What is left may be continued without ``fresh``: nothing new may get old results beside it."""
        with Run.open(full, CONFIG) as run:
            run.append(AnswerSample(question_id="q-2", index=0, text="a", finish="stop", request="r"))
            run.select_scoring("second-01234567")
            run.update_manifest(config={"scores": {"judge": "second"}})
            run.append(score(1))
        before = files_in(full)
        records = {name for name in before if name.endswith(".jsonl")}
        with moments(full) as states:
            Run.open(full, {"questions": {"limit": 9}}, fresh=True).close()
        assert len(states) > len(records) > 6
        makers = {"summaries": "answers", "scores": "summaries", "information": "answers"}
        for number, state in enumerate(states):
            left = {name.rpartition("/")[2].partition(".")[0] for name in state if name in records}
            for made, maker in {**makers, "controls": "answers", "answers": "questions"}.items():
                assert made not in left or maker in left, sorted(state)
            saved = {name.partition("/")[2] for name in state if name.startswith("backup-")}
            assert records <= saved | state.keys(), "a record is lost"
            assert all(state[name] == before[name] for name in records & state.keys())
            if "manifest.json" in state:
                Run.open(place(state, tmp_path / f"{number}"), {}).close()
        assert not records & states[-1].keys()

    def test_a_run_killed_before_its_manifest_does_not_block_the_directory(self, tmp_path: Path) -> None:
        (tmp_path / ".lock").write_text("12")
        for name in (".manifest.json.tmp", "manifest.json.01234567.partial"):
            (tmp_path / name).write_text("{")
        Run.open(tmp_path, CONFIG).close()
        assert Run.load(tmp_path).manifest.config == CONFIG

    def test_another_schema_version_is_refused_but_can_be_started_over(self, full: Path) -> None:
        text = (full / "manifest.json").read_text()
        (full / "manifest.json").write_text(
            text.replace('"schema_version": 1', '"schema_version": 7, "later": 1')
        )
        for attempt in (lambda: Run.open(full, CONFIG), lambda: Run.load(full)):
            with pytest.raises(StoreError, match=r"schema version '7'.*reads version 1.*fresh"):
                attempt()
        Run.open(full, CONFIG, fresh=True).close()
        assert contents(Run.load(full)) == []

    def test_loading_needs_a_run_directory(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match=r"no run directory .*nowhere\. Make one with: selfreflect run"):
            Run.load(tmp_path / "nowhere")
        with pytest.raises(StoreError, match=r"no manifest\.json.*selfreflect run"):
            Run.load(tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_each_backup_has_a_folder_of_its_own(self, full: Path) -> None:
        for number in range(3):
            with Run.open(full, CONFIG, fresh=True) as run:
                run.append(question(number))
        kept = [list(Run.load(backup).questions) for backup in full.glob("backup-*")]
        assert sorted(kept) == [["q-0"], ["q-1"], ["q-1", "q-2"]]

    def test_fresh_with_a_config_that_cannot_be_stored_deletes_nothing(self, full: Path) -> None:
        with pytest.raises(ValueError, match="Out of range"):
            Run.open(full, {"answers": {"temperature": float("nan")}}, fresh=True)
        assert contents(Run.load(full)) == ALL


class TestDamage:
    def test_a_reader_passes_over_a_torn_last_line_and_leaves_it(self, full: Path) -> None:
        path = full / "summaries.jsonl"
        path.write_bytes(path.read_bytes()[:-2])
        assert list(Run.load(full).summaries) == [("q-1", "greedy")]
        assert not path.read_bytes().endswith(b"\n")

    @pytest.mark.parametrize(
        "bad",
        [b"{oops}\n", b"\xff\xfe\n", b"\n", b"[" * 99_999 + b"\n", b'{"id": "q-0", "text": NaN}\n'],
    )
    @pytest.mark.parametrize("number", [2, 3])
    def test_a_damaged_line_with_a_line_end_is_named_and_never_deleted(
        self, full: Path, bad: bytes, number: int
    ) -> None:
        path = full / "questions.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        damaged = b"".join([*lines[: number - 1], bad, *lines[number - 1 :]])
        if number == 3 and not bad.strip():
            return  # a blank line at the end is what a kill may leave
        path.write_bytes(damaged)
        for attempt in (lambda: Run.open(full, CONFIG), lambda: Run.load(full).questions):
            with pytest.raises(StoreError, match=rf"questions\.jsonl, line {number} is damaged"):
                attempt()
        assert path.read_bytes() == damaged

    @pytest.mark.parametrize("name", ["questions.jsonl", "scores.jsonl", "manifest.json", ".lock"])
    def test_links_pipes_and_directories_are_never_opened(
        self, full: Path, tmp_path: Path, name: str
    ) -> None:
        victim = tmp_path / "victim"
        content = (full / name).read_bytes()
        for make in (
            lambda path: path.symlink_to(victim),
            lambda path: path.symlink_to("/dev/zero"),
            os.mkfifo,
            lambda path: path.mkdir(),
        ):
            victim.write_bytes(content)
            path = full / name
            path.unlink()
            make(path)
            with pytest.raises(StoreError, match="is not a regular file"):
                Run.open(full, CONFIG)
            if name != ".lock":
                with pytest.raises(StoreError, match="is not a regular file"):
                    contents(Run.load(full))
            assert victim.read_bytes() == content
            path.rmdir() if path.is_dir() else path.unlink()
            path.write_bytes(content)

    @pytest.mark.parametrize("place", ["judges", "judges/other"])
    def test_links_to_scorings_are_not_followed(self, full: Path, tmp_path: Path, place: str) -> None:
        victim = tmp_path / "victim"
        shutil.copytree(full, victim / "other")
        before = contents(Run.load(victim / "other"))
        (full / place).parent.mkdir(exist_ok=True)
        (full / place).symlink_to(victim if place == "judges" else victim / "other")
        for use in (
            lambda: Run.load(full).scorings,
            lambda: Run.load(full).select_scoring("new-1"),
            lambda: count_records(full),
            lambda: Run.open(full, CONFIG, fresh=True),
        ):
            with pytest.raises(StoreError, match="is a link"):
                use()
        assert contents(Run.load(victim / "other")) == before

    @pytest.mark.parametrize(
        "tail",
        [b'{"id": "q-3"', b"\xff\xfe", b"\x00" * 4096, b"\n", b"[" * 99_999, b'{"id": NaN', b"\xe2\x80"],
    )
    def test_a_writer_cuts_off_what_a_crash_left_at_the_end(self, full: Path, tail: bytes) -> None:
        path = full / "questions.jsonl"
        whole = path.read_bytes()
        path.write_bytes(whole + tail)
        with Run.open(full, CONFIG) as run:
            assert path.read_bytes() == whole
            assert run.repairs == [
                f"{path}: cut off an unfinished record of {len(tail)} bytes, which a kill or crash left."
            ]
            run.append(question(3))
        assert list(Run.load(full).questions) == ["q-1", "q-2", "q-3"]

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ('{"id": "q-3", "text": 4}', r"line 3: Expected `str`, got `int` - at `\$\.text`"),
            ('{"id": "q-3"}', "line 3: Object missing required field `text`"),
            ('{"id": "q-3", "text": "t", "extra": 1}', "line 3: Object contains unknown field `extra`"),
            ("[]", "line 3: Expected `object`"),
        ],
    )
    def test_a_record_of_the_wrong_shape_names_file_line_and_field(
        self, full: Path, line: str, message: str
    ) -> None:
        with (full / "questions.jsonl").open("a") as file:
            file.write(line + "\n")
        with pytest.raises(StoreError, match=r"questions\.jsonl, " + message):
            Run.open(full, CONFIG)

    def test_a_key_that_occurs_twice_names_file_and_line(self, full: Path) -> None:
        path = full / "scores.jsonl"
        path.write_bytes(path.read_bytes() * 2)
        with pytest.raises(StoreError, match=r"scores\.jsonl, line 2: .* second record for 'q-1 / greedy'"):
            _ = Run.load(full).scores

    def test_truncation_at_every_byte_of_the_last_two_lines_loses_only_what_was_torn(
        self, tmp_path: Path
    ) -> None:
        records = [Question(id=f"q-{number}", text="é\u2028") for number in range(4)]
        with Run.open(tmp_path, {}) as run:
            run.append_all(records)
        path = tmp_path / "questions.jsonl"
        whole = path.read_bytes()
        ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
        for size in range(ends[1], len(whole) + 1):
            path.write_bytes(whole[:size])
            kept = sum(end - 1 <= size for end in ends)  # without its line end a record is whole
            with Run.open(tmp_path, {}) as run:
                assert list(run.questions.values()) == records[:kept]
                run.append_all(records[kept:])
            assert path.read_bytes() == whole

    def test_a_whole_last_record_without_a_line_end_is_kept(self, full: Path) -> None:
        path = full / "summaries.jsonl"
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        before = Run.load(full).summaries
        with Run.open(full, CONFIG) as run:
            assert run.summaries == before
            assert run.repairs == []
            assert path.read_bytes() == whole
            run.append(replace(next(iter(before.values())), name="another"))
        assert len(Run.load(full).summaries) == len(before) + 1


def run_python(code: str, *arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=True, **options)


class TestLock:
    def test_a_second_process_is_told_who_is_writing(self, full: Path) -> None:
        code = """
import sys
from selfreflect.store.run import Run
run = Run.open(sys.argv[1], {})
print("open", flush=True)
sys.stdin.read()
"""
        command = [sys.executable, "-c", code, str(full)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "open\n"
            for fresh in (False, True):
                with pytest.raises(StoreError, match=rf"Another process \(pid {holder.pid}\) is writing"):
                    Run.open(full, CONFIG, fresh=fresh)
            assert contents(Run.load(full)) == ALL
            holder.kill()
        Run.open(full, CONFIG).close()

    def test_two_writers_in_one_process_are_refused_too(self, full: Path) -> None:
        with Run.open(full, CONFIG), pytest.raises(StoreError, match=f"pid {os.getpid()}"):
            Run.open(full, CONFIG)
        Run.open(full, CONFIG).close()


class TestDisk:
    def test_a_failed_write_leaves_no_torn_line_and_what_was_before(self, full: Path) -> None:
        """A limit on the size of files stops the second write in the middle of a line, as a full disk
        would."""
        code = """
import resource, signal, sys
from selfreflect.errors import StoreError
from selfreflect.records import Question
from selfreflect.store.run import Run
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
run = Run.open(sys.argv[1], {})
run.append(Question(id="q-3", text="short"))
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
try:
    run.append_all([Question(id="q-4", text="small"), Question(id="q-5", text="x" * 5000)])
except StoreError as error:
    print(error, list(run.questions))
run.append(Question(id="q-6", text="fits"))
"""
        said = run_python(code, full).stdout
        assert re.search(r"questions\.jsonl: File too large\. What was written before is kept", said)
        assert "['q-1', 'q-2', 'q-3']" in said
        data = (full / "questions.jsonl").read_bytes()
        assert data.endswith(b"\n")
        assert [json.loads(line)["id"] for line in data.splitlines()] == ["q-1", "q-2", "q-3", "q-6"]

    def test_a_full_disk_does_not_cost_the_manifest(self, full: Path) -> None:
        code = """
import resource, signal, sys
from selfreflect.errors import StoreError
from selfreflect.store.run import Run
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
run = Run.open(sys.argv[1], {})
resource.setrlimit(resource.RLIMIT_FSIZE, (50, resource.RLIM_INFINITY))
try:
    run.update_manifest(wall_time={"answers": 1.0})
except StoreError as error:
    print(error, run.manifest.wall_time)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
run.update_manifest(wall_time={"answers": 2.0})
"""
        output = run_python(code, full).stdout
        assert re.search(r"manifest\.json: File too large\. What was written before is kept.* \{\}", output)
        assert Run.load(full).manifest.wall_time == {"answers": 2.0}

    def test_a_directory_without_write_permission_can_be_read_but_not_written(self, full: Path) -> None:
        """As an ordinary user, because root may write anywhere. Relative paths, because that user cannot come
        here from the top."""
        code = """
import fcntl, os
from selfreflect.errors import StoreError
from selfreflect.store.run import Run
if os.getuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
print(sorted(Run.load("run").questions))
for path in ("run", "new"):
    try:
        Run.open(path, {})
    except StoreError as error:
        print(error)
"""
        modes = {full.parent: 0o555, full: 0o555, **dict.fromkeys(full.iterdir(), 0o444)}
        before = {path: path.stat().st_mode for path in modes}
        try:
            for path, mode in modes.items():
                path.chmod(mode)
            lines = run_python(code, cwd=full.parent).stdout.splitlines()
        finally:
            for path, mode in before.items():
                path.chmod(mode)
        assert lines[0] == "['q-1', 'q-2']"
        assert [
            line
            for line in lines[1:]
            if re.fullmatch(
                r".*: Permission denied\. Check its permissions, or use another directory\.", line
            )
        ]
        assert len(lines) == 3

    def test_a_directory_deleted_under_a_run_is_noticed(self, full: Path) -> None:
        with Run.open(full, CONFIG) as run:
            run.append(question(3))
            full.rename(full.with_name("moved"))
            with pytest.raises(StoreError, match=r"questions\.jsonl: No such file"):
                run.append(question(4))


class TestDataFrame:
    def test_one_row_for_each_question_and_strategy_failed_ones_too(self, full: Path) -> None:
        import pandas as pd

        with Run.open(full, CONFIG) as run:
            told = information(1)
            run.append_all([question(3), failure(3, "answers", "", "server gone"), summary(3), told])
            frame = run.to_pandas()
        names = (
            "question_id question kind strategy summary score stderr token_tasks judge failure "
            "failure_message bits bits_available recovered reader zero anchor undefined cause why scoring"
        )
        assert list(frame.columns) == names.split()
        rows = {(row.question_id, row.strategy): row for row in frame.itertuples()}
        assert list(rows) == [(f"q-{number}", name) for number in (1, 2, 3) for name in ("greedy", "basic")]
        scored = rows["q-1", "greedy"]
        assert (scored.score, scored.token_tasks, scored.judge, scored.summary, scored.failure) == (
            0.25,
            2,
            "j",
            "Perhaps.",
            None,
        )
        assert scored.stderr is pd.NA
        assert (scored.bits, scored.recovered, scored.reader) == (1.5, 0.75, "blind")
        failed = rows["q-2", "greedy"]
        assert (failed.summary, failed.judge, failed.failure, failed.failure_message) == (
            None,
            None,
            "backend",
            "no reply",
        )
        assert failed.score is pd.NA
        assert rows["q-3", "basic"].failure_message == "server gone"
        assert rows["q-1", "basic"].failure is None
        assert frame.score.mean() == 0.25

    def test_a_run_is_named_by_its_directory_and_a_share_says_why_it_is_undefined(self, full: Path) -> None:
        with Run.open(full, CONFIG) as run:
            lost = {"bits": None, "bits_available": None, "recovered": None, "undefined": "unmeasured"}
            run.append(replace(information(1), **lost, why="too long", kind="too_long"))
            rows = {(row.question_id, row.strategy): row for row in run.to_pandas().itertuples()}
            assert repr(run) == f"Run({str(full)!r})"
        found = [row for row in rows.values() if row.undefined is not None]
        assert [(row.undefined, row.why) for row in found] == [("unmeasured", "too long")]

    def test_without_pandas_the_extra_is_named(self, full: Path) -> None:
        code = """
import sys
sys.modules["pandas"] = None
from selfreflect.errors import MissingExtraError
from selfreflect.store.run import Run
try:
    Run.load(sys.argv[1]).to_pandas()
except MissingExtraError as error:
    print(error)
"""
        assert "pip install '.[pandas]'" in run_python(code, full).stdout


# A high surrogate followed by a low one is one character in JSON's escapes, so texts hold lone surrogates of
# one sort only.
TEXTS = st.text(
    st.one_of(
        st.characters(exclude_categories=()).filter(lambda c: not "\udc00" <= c <= "\udfff"),
        st.sampled_from("\x00\n\r\x1e\x85\u2028\u2029\ufeff"),
    )
)
NUMBERS = st.floats(0, 1)
HALVES = st.lists(TEXTS, max_size=3).map(tuple)


RECORDS = st.lists(
    st.one_of(
        st.builds(Question, id=TEXTS, text=TEXTS, kind=TEXTS, gold=HALVES),
        st.builds(
            AnswerSet,
            question_id=TEXTS,
            masked_out=HALVES,
            conditioning=HALVES,
            seed=st.none() | st.integers(0, 2**63),
            model=TEXTS,
        ),
        st.builds(Summary, question_id=TEXTS, name=TEXTS, text=TEXTS, tokens=st.integers(0, 9)),
        st.builds(
            Score,
            question_id=TEXTS,
            summary=TEXTS,
            value=NUMBERS,
            stderr=st.none() | NUMBERS,
            token_tasks=st.integers(1, 9),
            judge=TEXTS,
        ),
        st.builds(
            Information,
            question_id=TEXTS,
            summary=TEXTS,
            reader=st.sampled_from(["informed", "blind"]),
            bits=st.none() | NUMBERS,
            bits_available=st.floats(0.01, 1),  # a share of nothing is refused
            recovered=st.none() | NUMBERS,
            answers=st.lists(st.lists(st.builds(WordBits, TEXTS, NUMBERS, NUMBERS)).map(tuple)).map(tuple),
        ),
        st.builds(
            Controls,
            question_id=TEXTS,
            controls=st.lists(
                st.builds(Control, name=st.just("pasted"), answers=st.integers(0, 9), words=st.integers(0, 9))
            ).map(tuple),
        ),
        st.builds(
            Failure,
            question_id=TEXTS,
            stage=st.just("summaries"),
            kind=st.just("backend"),
            message=TEXTS,
            name=TEXTS,
        ),
    ),
    max_size=8,
    unique_by=lambda record: (
        type(record),
        getattr(record, "question_id", None) or getattr(record, "id", None),
    ),
)


@given(records=RECORDS)
def test_any_record_survives_the_disk(records: list[Record]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        with Run.open(directory, {}) as run:
            run.append_all(records)
            written = contents(run)
        assert contents(Run.load(directory)) == written
        missing = {(r.question_id, r.name) for r in records if isinstance(r, Failure)} & set(run.summaries)
        assert len(written) == len(records) - len(missing)


def test_a_fork_loses_no_record(tmp_path: Path) -> None:
    """Each of the two would cut off what the other one has written as an unfinished record."""
    with Run.open(tmp_path / "run", {}) as run:
        run.append(Question(id="a", text="A?"))
        pid = os.fork()
        if not pid:
            code = 1
            try:
                run.append(Question(id="child", text="C?"))
            except StoreError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        run.append(Question(id="b", text="B?"))
    assert list(Run.load(tmp_path / "run").questions) == ["a", "b"]
