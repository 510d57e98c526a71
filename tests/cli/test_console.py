"""Progress is shown also where nobody sits at a terminal."""

from __future__ import annotations

import time

import pytest

from selfreflect.cli import console
from selfreflect.cli.console import Watcher


def test_a_log_file_gets_lines_while_nothing_happens(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that takes minutes to load, or a server that does not answer, must not look like a dead run."""
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.05)
    shown = ""
    watcher = Watcher()
    with watcher.stage("answers", 3) as counter:
        watcher.note("the connection failed; trying again")
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
