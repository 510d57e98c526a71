"""Progress is shown also where nobody sits at a terminal. What a stage says of itself holds at any moment:
counts, speed and an estimate of the time left."""

from __future__ import annotations

import io
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from selfreflect.cli import console
from selfreflect.cli.console import ProgressReporter, StageProgress, duration
from selfreflect.run.models import WorkDone


def test_a_log_file_gets_lines_while_nothing_happens(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that takes minutes to load, or a server that does not answer, must not look like a dead run."""
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.05)
    shown = ""
    reporter = ProgressReporter()
    with reporter.stage("answers", 3) as counter:
        reporter.note("the connection failed; trying again")
        for text in (
            "answers: 0 of 3 after 0 s; the connection failed",
            "answers: 1 of 3, 1 failed after 0 s",
        ):
            while text not in shown:  # the test's own time limit ends this
                time.sleep(0.01)
                shown += capsys.readouterr().err
            counter.advance(1, failures=1)
    lines = (shown + capsys.readouterr().err).splitlines()
    assert lines[:2] == ["answers: 3 to do", "answers: the connection failed; trying again"]
    assert lines[-1].startswith("answers: 2 of 3, 2 failed, in ")


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(console, "monotonic", lambda: self.now)


@pytest.mark.parametrize("questions", [1, 8, 64])
def test_the_time_left_of_steady_work_is_right_from_the_first_question_on(
    monkeypatch: pytest.MonkeyPatch, questions: int
) -> None:
    """Batches of 8 questions, 10 sequences each of a second, after a minute in which the model was loaded."""
    clock = Clock(monkeypatch)
    stage = StageProgress(questions)
    clock.now = 60.0
    for number in range(questions):
        if number % 8 == 0:
            begun = min(8, questions - number)
            stage.add(WorkDone(units=begun))
            stage.add(WorkDone(requested=10 * begun))
        for sequence in range(10):
            clock.now += 1
            stage.add(WorkDone(tokens=20, ended=1))
            if sequence == 8:
                assert stage.seconds_left() == pytest.approx(10 * (questions - number) - 9)
        stage.advance()
    assert stage.seconds_left() == 0
    assert stage.details() == [f"{200 * questions:,} tokens", "20 tokens/s"]


def test_one_question_is_scored_token_by_token(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    stage = StageProgress(1)
    clock.now = 5.0
    stage.add(WorkDone(units=1))
    stage.add(WorkDone(planned=4000))
    clock.now = 65.0
    stage.add(WorkDone(tokens=1000))
    assert stage.fraction == pytest.approx(0.25)
    assert stage.seconds_left() == pytest.approx(180)
    stage.add(WorkDone(planned=-2000))
    assert stage.details()[0] == "about 1 min left"
    stage.add(WorkDone(tokens=1000))
    assert stage.seconds_left() is None, "what is left is not reading"


@given(
    st.integers(0, 5),
    st.lists(
        st.builds(
            WorkDone,
            st.integers(0, 3),
            st.integers(-4, 9),
            st.integers(0, 9),
            st.integers(0, 99),
            st.integers(-99, 99),
        ),
        max_size=9,
    ),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=9),
)
def test_whatever_is_reported_the_share_and_the_time_are_possible(
    total: int, works: list[WorkDone], counts: list[tuple[int, int]]
) -> None:
    stage = StageProgress(total)
    for work in works:
        stage.add(work)
    for done, failed in counts:
        stage.advance(done, failed)
    assert 0 <= stage.fraction <= 1
    left = stage.seconds_left()
    assert left is None or left >= 0
    stage.details()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (59, "59 s"),
        (59.7, "1 min"),
        (84, "1 min 20 s"),
        (594, "9 min 50 s"),
        (596, "10 min"),
        (3580, "1 h 0 min"),
        (12000, "3 h 20 min"),
    ],
)
def test_a_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


SENTENCE = "note: a sentence with 12.5 % in it that is wider than the window. "
OPTIONS = ("--column summary='The reply of a bot'", "--column summary=reply", "--out DIR")
COMMAND = "selfreflect summarize --out 'a folder' --strategies basic --summary-tokens 256"


def printed(line: str, *, terminal: bool, width: int = 40, indent: int = 0) -> list[str]:
    file = io.StringIO()
    window = type(console.stderr)(
        file=file, force_terminal=terminal, width=width, highlight=False, no_color=True
    )
    window.print(Text(line), soft_wrap=True, indent=indent)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", range(40, 80, 3))
def test_a_terminal_breaks_lines_between_words_and_a_pipe_gets_them_whole(width: int) -> None:
    text = f"{SENTENCE}It takes {' or else '.join(OPTIONS)}. Do it: {COMMAND}"
    assert printed(text, terminal=False) == [text]
    *sentences, command = printed(text, terminal=True, width=width)
    assert command == COMMAND, "a command is copied whole"
    assert all(any(option in line for line in sentences) for option in OPTIONS)
    assert max(map(len, sentences)) <= width
    assert " ".join([*sentences, command]) == text
    assert not any(line.startswith("%") for line in sentences)


@pytest.mark.parametrize(
    ("start", "indent", "blanks"), [("  context: ", 0, 2), ("    3 x  ", 9, 9), ("", 0, 0)]
)
def test_the_rest_of_a_broken_line_stands_below_its_start(start: str, indent: int, blanks: int) -> None:
    first, *rest = printed(start + SENTENCE.rstrip(), terminal=True, indent=indent)
    assert first.startswith(start)
    assert rest
    assert all(len(line) - len(line.lstrip()) == blanks for line in rest)
    assert max(map(len, [first, *rest])) <= 40


def test_a_progress_bar_takes_one_line_of_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    window = type(console.stderr)(file=file, force_terminal=True, width=60, highlight=False, no_color=True)
    monkeypatch.setattr(console, "stderr", window)
    reporter = ProgressReporter()
    with reporter.stage("answers", 3000) as counter:
        reporter.add(WorkDone(tokens=123_456_789))
        counter.advance(2000, failures=900)
    shown = file.getvalue()
    assert "2,000 of 3,000" in shown
    assert shown.count("\n") == 1, "behind the bar that is full"
