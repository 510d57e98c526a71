"""Reasoning that a server leaves in the text: what is cut off inside a trace that the prompt began is no
answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command import run
from fault_server import FaultServer, chat, choice, in_turn
from served import ask, command, forget, generator, only, questions

from selfreflect.models.base import Completion, Reply

CUT = choice("Let me think about", "length")
"""Nothing in its own text says whether this is an answer or a trace."""


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch)


def completions(*choices: dict[str, Any]) -> list[Completion]:
    with FaultServer(lambda call: chat(*choices)) as server:
        reply = only(server.url, ask(n=len(choices)))
    assert isinstance(reply, Reply)
    return list(reply.completions)


def test_what_is_cut_off_before_a_trace_of_the_prompt_ends_is_no_answer() -> None:
    found = completions(
        choice("Hm</think>yes"), CUT, choice("Hm</think>yes and", "length"), choice("Hm</think>no")
    )
    expected = [("yes", "stop"), ("", "unclosed_reasoning"), ("yes and", "length"), ("no", "stop")]
    assert [(one.text, one.finish) for one in found] == expected


@pytest.mark.parametrize(
    "ended", [[], [choice("yes")], [choice("no")] * 3 + [choice("Write </think> to stop it.")]]
)
def test_what_is_cut_off_where_no_trace_is_to_be_seen_is_a_cut_off_answer(
    ended: list[dict[str, Any]],
) -> None:
    last = completions(*ended, CUT)[-1]
    assert (last.text, last.finish) == ("Let me think about", "length")


def test_completions_of_several_calls_tell_of_each_other() -> None:
    with FaultServer(
        in_turn(chat(CUT), chat(choice("Hm</think>yes")), chat(choice("Hm</think>yes")))
    ) as server:
        reply = only(server.url, ask(n=3), max_connections=1)
    assert isinstance(reply, Reply)
    assert [one.finish for one in reply.completions] == ["unclosed_reasoning", "stop", "stop"]


def test_replies_before_tell_whether_the_prompt_begins_a_trace() -> None:
    with FaultServer(in_turn(chat(choice("Hm</think>yes")), chat(CUT), chat(CUT))) as server:
        asked = generator(server.url)
        replies = [asked.generate([ask(thinking=thinking)])[0] for thinking in (True, True, False)]
    assert [reply.completions[0].finish for reply in replies if isinstance(reply, Reply)] == [
        "stop",
        "unclosed_reasoning",
        "length",
    ]


def test_a_model_that_only_reasons_is_not_asked_all_questions(tmp_path: Path) -> None:
    thoughts = choice("", "length", reasoning="Let me see. " * 9)
    with FaultServer(lambda call: chat(*[thoughts] * call.n)) as server:
        out = run(*command(tmp_path / "run", server.url, questions(tmp_path / "asked.txt", 20)))
    assert out.code == 2
    assert "--max-new-tokens" in out.stderr
    assert len(server.calls) <= 4  # words, another way to switch thinking off, and a whole text
