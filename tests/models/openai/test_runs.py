"""Commands through an OpenAI-compatible server: what is kept when it fails, and what people are told."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import fault_server as fault
import pytest
from command import COMMAND, environment, run
from fault_server import FaultServer, answers, chat, choice, status
from served import command, questions

from selfreflect.store.run import Run


def test_where_a_server_stays_down_what_is_done_is_kept_and_the_next_start_does_the_rest(
    tmp_path: Path,
) -> None:
    asked, out = questions(tmp_path / "q.txt", 60), tmp_path / "r"
    with FaultServer(lambda call: answers() if call.number < 25 else fault.reset) as server:
        failed = run(*command(out, server.url, asked, "--timeout", 1, "--max-connections", 4))
    assert failed.code == 2
    assert failed.said.count("error:") == 1
    kept = len(Run.load(out).answers)
    assert 0 < kept <= 25
    assert f"{kept} of 60 answers saved, {60 - kept} to go" in failed.said
    with FaultServer() as again:  # at another port
        done = run(*command(out, again.url, asked))
    assert done.code == 0
    stored = Run.load(out)
    assert (len(stored.answers), stored.failures) == (60, [])
    assert len(again.calls) == 60 - kept + 4  # the first four are the check before the run
    assert stored.manifest.models["answers"] == {"name": "openai:m", "revision": "", "base_url": again.url}
    assert stored.manifest.config["answers"]["base_url"] == server.url


def test_a_server_that_nobody_has_started_ends_the_run_within_seconds(tmp_path: Path) -> None:
    with FaultServer() as server:
        closed = server.url
    failed = run(*command(tmp_path / "r", closed, questions(tmp_path / "q.txt", 3)))
    assert failed.code == 2
    assert failed.said.count(closed) > 1, "while it still tries, too"
    assert "--base-url" in failed.said


def test_failures_are_counted_apart_and_openai_wants_a_key_at_once(tmp_path: Path) -> None:
    asked = questions(tmp_path / "q.txt", 3)

    def script(call: fault.Call) -> fault.Action:
        return status(400, "no") if "number 1" in str(call.body["messages"]) else answers()

    with FaultServer(script) as server:
        done = run(*command(tmp_path / "r", server.url, asked))
    assert "answers: 2 of 3, 1 failed, in" in done.said
    refused = run("answers", "--questions", asked, "--model", "openai:gpt-4o-mini", "--out", tmp_path / "s")
    assert refused.code == 2
    assert "SELFREFLECT_API_KEY or OPENAI_API_KEY" in refused.said


def test_refusals_are_counted_and_filtered_answers_leave_no_distribution(tmp_path: Path) -> None:
    def script(call: fault.Call) -> fault.Action:
        text = call.body["messages"][-1]["content"]
        fine = [choice("yes"), choice("no")]
        if "number 0" in text:
            return chat(*fine, choice(None, refusal="I cannot."), choice("cut", "length"))
        return (
            chat(*fine, choice("", "content_filter"), choice("yes"))
            if "number 1" in text
            else chat(*fine, *fine)
        )

    out = tmp_path / "r"
    with FaultServer(script) as server:
        assert run(*command(out, server.url, questions(tmp_path / "q.txt", 3))).code == 1
        stored = Run.load(out)
        assert len(stored.answers) == 2
        first = next(
            stored.answers[key] for key, question in stored.questions.items() if "number 0" in question.text
        )  # stored as they come
        assert (first.answers, first.refused, first.truncated) == (("yes", "no", "I cannot.", "cut"), 1, 1)
        [failure] = stored.failures
        assert (failure.kind, failure.message) == (
            "content_filter",
            "1 of 4 answers were withheld by the server's content filter",
        )
        server.script = lambda call: chat(choice(None, refusal="I cannot."))
        assert (
            run(
                *f"summarize --strategies greedy --model openai:m --base-url {server.url} --out {out}".split()
            ).code
            == 1
        )
    assert {
        (failure.name, failure.kind) for failure in Run.load(out).failures if failure.stage == "summaries"
    } == {("greedy", "refused")}


def test_an_interrupt_stops_at_once_and_keeps_what_was_stored(tmp_path: Path) -> None:
    asked, out = questions(tmp_path / "q.txt", 40), tmp_path / "r"
    with FaultServer(lambda call: answers() if call.number < 14 else fault.silent) as server:
        call = [*COMMAND, *command(out, server.url, asked)]
        with subprocess.Popen(
            call, env=environment(), stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as child:
            try:
                deadline = time.monotonic() + 200
                while not ((out / "answers.jsonl").exists() and len(Run.load(out).answers) == 10):
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
                child.send_signal(signal.SIGINT)
                _, said = child.communicate(timeout=100)  # the server would be silent for longer
            finally:
                child.kill()
    assert child.returncode == 130
    assert "Interrupted" in said
    # An answer that can be read may not be safe on the disk yet: an interrupt takes it back, and no other.
    assert len(Run.load(out).answers) in (9, 10)


@pytest.mark.parametrize("starts_with_run", [False, True])
def test_a_model_that_is_asked_about_its_answers_refuses_no_field_again(
    starts_with_run: bool, tmp_path: Path
) -> None:
    refused: list[str] = []

    def strict(call: fault.Call) -> fault.Action:
        if "min_p" in call.body:
            refused.append("min_p")
            return status(400, "Unsupported parameter: min_p")
        texts = ["Ankara", "Istanbul", "Izmir"]
        return chat(*(choice(texts[place % 3]) for place in range(call.n)))

    with FaultServer(strict) as server:
        if starts_with_run:
            out = tmp_path / "r"
            assert run(*command(out, server.url, questions(tmp_path / "q.txt", 2))).code == 0
            calls = len(server.calls)
            assert run("uncertainty", out, "--estimators", "self_evaluation", "--yes").code == 0
            assert len(server.calls) > calls
        else:
            options = f"--model openai:m --base-url {server.url} --num-answers 3 --measures information --yes"
            assert run("ask", "Which city?", *options.split()).code == 0
            assert "mean the same" in str(server.calls[-1].body["messages"])
    assert refused == ["min_p"]


@pytest.mark.parametrize("answered", [0, 8])
def test_a_run_stops_at_a_first_question_whose_answers_are_all_unfinished_reasoning(
    answered: int, tmp_path: Path
) -> None:
    def script(call: fault.Call) -> fault.Action:
        said = str(call.body["messages"])
        ends = "number" not in said or (answered and "number 0" not in said)
        return answers() if ends else chat(*[choice("<think>Hm, who is", "length")] * call.n)

    out, asked = tmp_path / "r", questions(tmp_path / "q.txt", 9)
    with FaultServer(script) as server:
        arguments = command(out, server.url, asked, "--max-connections", 1)
        stopped = run(*arguments)
        calls = [call for call in server.calls if "number" in str(call.body["messages"])]
        again = run(*arguments)
    assert stopped.code == 2
    assert "--max-new-tokens" in stopped.said
    assert len(calls) < 9
    assert again.code == 1, "whoever starts it again wants the others"
    stored = Run.load(out)
    assert (len(stored.answers), len(stored.failures)) == (answered, 9 - answered)
    assert {failure.kind for failure in stored.failures} == {"unclosed_reasoning"}
