"""What servers refuse or leave half done: calls go on without a field where that changes nothing, the command
ends where it would, and half a text is not an answer."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable
from itertools import cycle, product
from pathlib import Path
from typing import Any

import fault_server as fault
import pytest
from command import run, written
from fault_server import FaultServer, answers, chat, choice, in_turn, status
from msgspec.structs import replace
from served import ask, command, generator, only, questions
from server_habits import UNCLEAR, said

from selfreflect.errors import BackendError
from selfreflect.logprobs import AnswerTokens
from selfreflect.models.base import Message, Refusal, Reply, Request, Sampling
from selfreflect.models.openai import generator as generator_module
from selfreflect.prompts import load_prompts
from selfreflect.records import Question
from selfreflect.run.stages import StageSpec, StageTask, StageWorker
from selfreflect.settings import ExecutionOptions, load_config
from selfreflect.store.run import Run

STANDARD = {"model", "messages", "temperature", "top_p", "max_tokens", "n", "seed", "stream"}


Refuse = Callable[[list[str]], fault.Action]

LAYOUTS: dict[str, Refuse] = {
    "validation": lambda names: status(
        422, {"detail": [{"type": "extra_forbidden", "loc": ["body", name], "msg": "no"} for name in names]}
    ),
    "reasons by field": lambda names: status(
        400, {"error": {"message": "Bad request", "fields": {name: ["not taken here"] for name in names}}}
    ),
    "one at a time": lambda names: status(400, f"Unrecognized request argument supplied: {names[0]}"),
    "nothing but a text": lambda names: status(400, {"detail": f"unsupported: {', '.join(names)}"}),
}


def strict(known: set[str], refuse: Refuse) -> fault.Script:
    """A server that refuses every field it does not know, and gives texts without needing a seed."""

    def script(call: fault.Call) -> fault.Action:
        unknown = sorted(call.body.keys() - known)
        texts = [choice(f"text {call.number} {place}") for place in range(call.n)]
        return refuse(unknown) if unknown else chat(*texts)

    return script


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_server_that_checks_its_input_answers_a_run(layout: str, tmp_path: Path) -> None:
    out = tmp_path / "r"
    with FaultServer(strict(STANDARD - {"seed"}, LAYOUTS[layout])) as server:
        done = run(*command(out, server.url, questions(tmp_path / "q.txt", 6)))
        refused = [call for call in server.calls if "seed" in call.body or "top_k" in call.body]
    assert done.code == 0, done.said
    stored = Run.load(out)
    assert [len(one.answers) for one in stored.answers.values()] == [4] * 6
    assert len(refused) <= 3, "what the check found out holds for all of it"
    assert done.stderr.count("seed") == 2, "said once, with what is lost"
    known = stored.manifest.models["answers"]["refused"]
    left_out = ["chat_template_kwargs", "min_p", "repetition_penalty", "seed", "top_k"]
    assert known == dict.fromkeys(left_out, "left out")
    report = run("report", out).stdout
    assert all(name in report for name in left_out), "the report repeats it"


def test_what_a_run_has_learned_holds_for_its_next_command(tmp_path: Path) -> None:
    asked, out = questions(tmp_path / "q.txt", 2), tmp_path / "r"
    with FaultServer(strict(STANDARD - {"seed", "n"}, LAYOUTS["validation"])) as server:
        assert run(*command(out, server.url, asked)).code == 0
        assert run("summarize", "--strategies", "basic#1-2", "--out", out).code == 0
        before = len(server.calls)
        assert run(*command(tmp_path / "other", server.url, asked)).code == 0
    assert [call.number for call in server.calls if "seed" in call.body] == [1, before + 1]
    models = Run.load(out).manifest.models
    assert models["answers"]["refused"] == models["summaries"]["refused"]


@pytest.mark.parametrize(
    "stored",
    [
        *({"left_out": ["model"]}, {"thinking_off": 9}, {"limit": 3}, [], {"x": 1}),
        *({"most_texts": -2}, {"most_likely": -1}, {"all_tokens": 20}),
    ],
)
def test_a_manifest_that_nobody_wrote_teaches_nothing(stored: Any) -> None:
    with FaultServer() as server:
        model = generator(server.url)
        model.recall({"name": "openai:m", "base_url": server.url, "wording": stored})
        assert isinstance(model.generate([ask(n=2)])[0], Reply)
    assert {"seed", "model"} <= server.calls[0].body.keys()
    assert (server.calls[0].n, server.calls[0].body["top_k"]) == (2, -1)


def test_what_one_server_refused_is_no_rule_for_another() -> None:
    with FaultServer(lambda call: chat(choice("Oz"))) as server:
        model = generator(server.url)
        for name, url in (("openai:m", "http://127.0.0.1:1/v1"), ("openai:another", server.url)):
            model.recall({"name": name, "base_url": url, "wording": {"left_out": ["seed"]}})
        model.generate([ask()])
        model.recall({"name": "openai:m", "base_url": server.url, "wording": {"left_out": ["seed"]}})
        model.recall({"name": "openai:m", "base_url": server.url})  # of a stage that met no refusal
        model.generate([ask()])
    assert ["seed" in call.body for call in server.calls] == [True, False]


def test_a_worker_meets_no_refusal_that_the_run_has_met(tmp_path: Path) -> None:
    with FaultServer(strict(STANDARD - {"seed"}, LAYOUTS["validation"])) as server:
        config = load_config(None, {"answers": {"model": "openai:m", "base_url": server.url}})
        spec = StageSpec("answers", config, load_prompts(), ExecutionOptions())
        known: dict[str, Any] = {}
        for _ in range(2):
            worker = StageWorker(dataclasses.replace(spec, known=known))
            outcomes = list(worker.outcomes([StageTask(question=Question(id="q", text="Oz?"))]))
            known = {"answers": outcomes[-1].facts}
    assert [call.number for call in server.calls if "seed" in call.body] == [0]


@pytest.mark.parametrize(
    "message",
    [
        "Could not finish the message because max_tokens or model output limit was reached. Please try "
        "again with higher max_tokens.",
        "The reasoning budget was exhausted before the model produced an answer",
        "No text was generated; increase max_completion_tokens",
    ],
)
def test_a_limit_that_reasoning_met_is_no_refusal_of_the_limit(message: str, tmp_path: Path) -> None:
    def script(call: fault.Call) -> fault.Action:
        limit = call.body.get("max_tokens") or call.body["max_completion_tokens"]
        return answers() if limit > 60 else status(400, message)

    asked = questions(tmp_path / "q.txt", 2)
    with FaultServer(script) as server:
        reply = only(server.url, ask(n=2))
        assert isinstance(reply, Reply)
        assert reply.ends == {"unclosed_reasoning": 2}
        enough = run(*command(tmp_path / "r", server.url, asked, "--max-new-tokens", 64))
        begun = len(server.calls)
        spent = run(*command(tmp_path / "s", server.url, asked))
        few = server.calls[begun:]
    assert enough.code == 0, enough.said
    assert Run.load(tmp_path / "r").manifest.models["answers"].get("refused") is None
    assert spent.code == 2
    assert "--max-new-tokens" in spent.said
    assert not [call for call in few if "number" in str(call.body["messages"])]


def test_a_least_limit_is_no_reason_to_end(tmp_path: Path) -> None:
    def script(call: fault.Call) -> fault.Action:
        enough = call.body["max_tokens"] >= 20
        return answers() if enough else status(400, "max_tokens must be at least 20")

    asked = questions(tmp_path / "q.txt", 2)
    with FaultServer(script) as server:
        done = run(*command(tmp_path / "r", server.url, asked, "--max-new-tokens", 32))
    assert done.code == 0, done.said
    assert sum(call.body["max_tokens"] < 20 for call in server.calls) == 1


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_limit_of_texts_per_call_is_found_out_once(unnamed: bool, tmp_path: Path) -> None:
    def script(call: fault.Call) -> fault.Action:
        texts = [choice(f"text {call.number} {place}") for place in range(call.n)]
        if call.n <= 8:
            return chat(*texts)
        return status(400, "no" if unnamed else "n must be at most 8")

    out, size = tmp_path / "r", ("--num-answers", 20)
    with FaultServer(script) as server:
        done = run(*command(out, server.url, questions(tmp_path / "q.txt", 4), *size))
    assert done.code == 0, done.said
    stored = Run.load(out)
    assert [len({*one.answers}) for one in stored.answers.values()] == [40] * 4
    assert sum(call.n > 8 for call in server.calls) == 1
    assert stored.manifest.models["answers"]["refused"] == {"n": f"at most {2 if unnamed else 8} per call"}


def test_calls_do_not_wait_long_for_a_slow_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator_module, "AHEAD_SECONDS", 0.2)
    others = threading.Event()
    came: list[bool] = []

    def script(call: fault.Call) -> fault.Action:
        text = chat(choice("Oz"))
        if call.number:
            others.set()
            return text
        return lambda handler, call: (came.append(others.wait(15)), text(handler, call))[1]

    with FaultServer(script) as server:
        model = generator(server.url, max_connections=8)
        assert all(isinstance(reply, Reply) for reply in model.generate([ask(str(n)) for n in range(8)]))
    assert (len(server.calls), came) == (8, [True])


def test_a_model_that_cannot_be_greedy_ends_a_run_before_anything_is_drawn(tmp_path: Path) -> None:
    def script(call: fault.Call) -> fault.Action:
        for name, neutral in (("top_p", None), ("temperature", 1)):
            if name in call.body and call.body[name] != neutral:
                return status(400, {"error": {"message": "Unsupported value", "param": name}})
        return answers()

    asked, out = questions(tmp_path / "q.txt", 2), tmp_path / "r"
    with FaultServer(script) as server:
        assert run(*command(out, server.url, asked)).code == 0
        before = len(server.calls)
        ended = run("summarize", "--strategies", "basic", "--out", out)
        assert ended.code == 2
        assert "basic#1-2" in ended.said
        tried = [call.body["temperature"] for call in server.calls[before:]]
        assert tried == [1.0, 0]  # top_p was refused before
        drawn = run("summarize", "--strategies", "basic#1-2", "--out", out)
    assert drawn.code == 0, drawn.said
    assert len(Run.load(out).summaries) == 4


BOTH = status(400, "`temperature` and `top_p` cannot both be given")


@pytest.mark.parametrize(("top_p", "code"), [("1", 0), ("0.9", 2)])
def test_a_field_is_only_left_out_where_that_changes_nothing(top_p: str, code: int, tmp_path: Path) -> None:
    with FaultServer(lambda call: BOTH if "top_p" in call.body else answers()) as server:
        done = run(*command(tmp_path / "r", server.url, questions(tmp_path / "q.txt", 2), "--top-p", top_p))
        given = [call.body for call in server.calls]
    assert done.code == code, done.said
    if code:
        assert len(given) == 1
        assert "top_p 0.9 and temperature 1.0" in done.said
    else:
        assert sum("top_p" in body for body in given) == 1
        assert all(body["temperature"] == 1 for body in given)


@pytest.mark.parametrize(("strays", "refused"), [(1, {}), (2, {"top_p": "left out"})])
def test_one_error_that_names_what_was_taken_before_changes_no_other_call(
    strays: int, refused: dict[str, str]
) -> None:
    def script(call: fault.Call) -> fault.Action:
        return (
            status(400, "bad top_p")
            if 5 <= call.number < 5 + 2 * strays and "top_p" in call.body
            else answers()
        )

    with FaultServer(script) as server:
        model = generator(server.url, max_connections=1)
        results = model.generate([ask(f"Who is {number}?") for number in range(12)])
    assert all(isinstance(result, Reply) for result in results)
    assert model.facts.get("refused", {}) == refused
    assert ("top_p" in server.calls[-1].body) == (not refused)


def test_a_question_that_names_a_field_costs_itself_alone() -> None:
    warm = replace(ask("temperature 0.7?"), sampling=Sampling(temperature=0.7, max_new_tokens=9))

    def script(call: fault.Call) -> fault.Action:
        text = call.body["messages"][-1]["content"]
        return status(400, f"cannot answer {text}") if "temperature" in text else answers()

    with FaultServer(script) as server:
        results = generator(server.url, max_connections=1).generate(
            [replace(warm, messages=ask("Who?").messages), warm, replace(warm, messages=ask("Why?").messages)]
        )
    assert [type(result) for result in results] == [Reply, Refusal, Reply]
    assert server.calls[-1].body["temperature"] == 0.7


CULPRITS = ({"min_p"}, {"seed"}, {"n"}, {"top_k", "chat_template_kwargs", "n"})


@pytest.mark.parametrize(("name", "culprits"), [*zip(UNCLEAR, cycle(CULPRITS))])
def test_a_refusal_that_names_no_field_costs_one_call_of_many(name: str, culprits: set[str]) -> None:
    def script(call: fault.Call) -> fault.Action:
        return said(*UNCLEAR[name]) if culprits & call.body.keys() else chat(choice(f"text {call.number}"))

    notes: list[str] = []
    with FaultServer(script) as server:
        model = generator(server.url, max_connections=8, progress=notes.append)
        results = model.generate([ask(f"Number {number}?", n=2) for number in range(8)])
        refused = [call for call in server.calls if culprits & call.body.keys()]
    assert all(isinstance(result, Reply) and len(result.completions) == 2 for result in results)
    assert len(refused) == 1
    assert model.facts["refused"].keys() >= culprits | {"seed", "named"}
    assert all(call.body["temperature"] == 1 for call in server.calls)
    assert len(notes) == 1, notes


_CAUSES: dict[str, tuple[Callable[[fault.Call], bool], tuple[str, ...], int, int]] = {
    "seed": (lambda call: "seed" in call.body, (), 0, 1),
    "n": (lambda call: call.n > 1, (), 0, 1),
    "min_p": (lambda call: "min_p" in call.body, (), 0, 1),
    "system": (lambda call: _roles(call) != {"user"}, (), 0, 1),
    "logprobs": (lambda call: "logprobs" in call.body, ("--logprobs",), 0, 1),
    "temperature": (lambda call: call.body.get("temperature", 1) != 1, ("--temperature", "0.7"), 2, 1),
    "top_p": (lambda call: call.body.get("top_p", 1) != 1, ("--top-p", "0.9"), 2, 1),
    "priority": (lambda call: "priority" in call.body, ("--extra-body", '{"priority": 1}'), 2, 3),
}
"""Hidden causes of refusals: whether a call is refused, flags, exit code, calls that are refused at most."""


def _roles(call: fault.Call) -> set[str]:
    return {turn["role"] for turn in call.body["messages"]}


@pytest.mark.parametrize("cause", _CAUSES)
def test_a_hidden_cause_costs_one_refused_call_and_little_else(cause: str, tmp_path: Path) -> None:
    refuses, flags, code, most_refused = _CAUSES[cause]

    def script(call: fault.Call) -> fault.Action:
        texts = [choice(f"text {call.number} {place}") for place in range(call.n)]
        return said(*UNCLEAR["two words"]) if refuses(call) else chat(*texts)

    with FaultServer(script) as server:
        asked = questions(tmp_path / "q.txt", 3)
        done = run(*command(tmp_path / "r", server.url, asked, *flags))
    assert done.code == code, done.said
    assert sum(map(refuses, server.calls)) <= most_refused
    assert all("temperature" in call.body for call in server.calls) or code == 2
    short = [json.dumps(call.body) for call in server.calls if "colour" in str(call.body["messages"])]
    assert len({*short}) == len(short), "none is sent twice"
    if code == 2:
        assert cause in done.said
        assert not (tmp_path / "r" / "answers.jsonl").exists()
    else:
        refused = Run.load(tmp_path / "r").manifest.models["answers"]["refused"]
        assert cause in {**refused, "system": refused.get("system role")}
        assert len(refused) == 1 or cause == "min_p", "what else the server takes is kept"
        assert ("seed" in refused) == (cause == "seed")


@pytest.mark.parametrize("restart", [(), (500, 500), (500, 500, 429)])
def test_a_turn_that_makes_a_server_fail_is_folded_if_that_is_the_cause(restart: tuple[int, ...]) -> None:
    def script(call: fault.Call) -> fault.Action:
        if call.number < len(restart):
            return status(restart[call.number])
        return status(500) if not restart and _roles(call) != {"user"} else chat(choice("Oz"))

    turns = (Message(role="system", content="Be brief."), Message(role="user", content="Who?"))
    with FaultServer(script) as server:
        model = generator(server.url)
        results = model.generate([replace(ask(str(n)), messages=turns) for n in range(4)])
    assert all(isinstance(result, Reply) for result in results)
    assert ("refused" in model.facts) == (not restart)
    assert [_roles(call) == {"user"} for call in server.calls[-3:]] == [not restart] * 3


def test_what_is_known_is_kept_when_a_refusal_names_nothing() -> None:
    def script(call: fault.Call) -> fault.Action:
        if any(turn["role"] == "system" for turn in call.body["messages"]):
            return status(400, "System role not supported")
        return status(400, "no") if "logprobs" in call.body else chat(choice("Oz"))

    turns = (Message(role="system", content="Be brief."), Message(role="user", content="Who?"))
    with FaultServer(script) as server:
        result = only(server.url, replace(ask(logprobs=True), messages=turns))
    assert isinstance(result, Reply)
    assert len(server.calls) == 4  # the turn, all that is spare, log-probabilities


def test_what_a_server_took_before_is_not_left_out_for_one_question() -> None:
    def script(call: fault.Call) -> fault.Action:
        return status(400, "no") if "bad" in str(call.body["messages"]) else answers()

    with FaultServer(script) as server:
        model = generator(server.url, max_connections=1)
        results = model.generate([ask(text, n=2) for text in ("good", "bad", "fine")])
    assert [type(result) for result in results] == [Reply, Refusal, Reply]
    assert len(server.calls) == 3
    assert "refused" not in model.facts


@pytest.mark.parametrize("named", [["seed", "n"], ["max_tokens", "top_p", "n"]])
def test_one_refusal_that_names_several_things_teaches_all_of_them(named: list[str]) -> None:
    def script(call: fault.Call) -> fault.Action:
        unknown = [name for name in named if name in call.body]
        errors = [{"loc": ["body", name], "msg": "extra inputs are not permitted"} for name in unknown]
        return status(422, {"detail": errors}) if errors else chat(choice(f"text {call.number}"))

    with FaultServer(script) as server:
        model = generator(server.url)
        [result] = model.generate([ask(n=3)])
    assert isinstance(result, Reply)
    assert len(server.calls) == 1 + 3
    assert model.facts["refused"].keys() == {*named}


def test_calls_at_once_wait_for_a_refusal_that_takes_long() -> None:
    def script(call: fault.Call) -> fault.Action:
        if "seed" not in call.body:
            return chat(choice("Oz"))
        return lambda handler, call: (time.sleep(1), status(400, "seed unsupported")(handler, call))[1]

    with FaultServer(script) as server:
        results = generator(server.url, max_connections=8).generate([ask(str(n)) for n in range(8)])
    assert all(isinstance(result, Reply) for result in results)
    assert sum("seed" in call.body for call in server.calls) == 1


def broken(text: str, finish: str | None, **fields: Any) -> dict[str, Any]:
    return {**choice(text, finish), **fields}


HALF = {
    "an error in the choice": broken("Emerald C", "stop", error={"code": 502, "message": "provider gone"}),
    "finish error": broken("Emerald C", "error"),
    "abort": broken("Eme", "abort"),
    "null": broken("Eme", None),
    "missing": {"index": 0, "message": {"role": "assistant", "content": "Eme"}},
    "resources": broken("Emerald", "insufficient_system_resource"),
    "network": broken("Emerald", "network_error"),
}


@pytest.mark.parametrize("name", HALF)
def test_half_a_text_is_drawn_again_and_is_no_answer(name: str) -> None:
    with FaultServer(in_turn(chat(choice("Oz"), HALF[name], choice("Nod")), chat(choice("Cair")))) as server:
        result = only(server.url, ask(n=3, seed=7))
    assert isinstance(result, Reply)
    assert result.texts == ("Oz", "Cair", "Nod")
    assert [(call.n, call.seed) for call in server.calls] == [(3, 7), (1, 8)]
    with FaultServer(lambda call: chat(HALF[name])) as server:
        refused = only(server.url)
    assert isinstance(refused, Refusal)
    assert (refused.kind, len(server.calls)) == ("backend", 4)


def test_texts_that_were_drawn_again_are_counted_in_the_manifest(tmp_path: Path) -> None:
    def script(call: fault.Call) -> fault.Action:
        return chat(choice(f"Oz {call.number}"), *[broken("Em", "abort")] * (call.n - 1))

    with FaultServer(script) as server:
        done = run(*command(tmp_path / "r", server.url, questions(tmp_path / "q.txt", 2)))
    assert done.code == 0, done.said
    stored = Run.load(tmp_path / "r")
    assert all(answer.startswith("Oz") for one in stored.answers.values() for answer in one.answers)
    assert stored.manifest.models["answers"]["drawn_again"] == 1 + 2 * 3  # of the check, and of each question


def test_a_stream_that_nobody_asked_for_is_named() -> None:
    kinds = ("text/event-stream", "application/json", "text/event-stream; charset=utf-8")
    for kind, begin in product(kinds, (b"", b"event: message\n")):
        events = fault.raw(begin + b"data: {}\n\n", kind)
        with FaultServer(lambda call, events=events: events) as server:
            with pytest.raises(BackendError) as ended:
                only(server.url)
            assert [call.body["stream"] for call in server.calls] == [False]
        assert ended.value.code == "stream"


def test_a_flagged_question_is_filtered_and_a_plain_403_still_ends_the_run() -> None:
    flagged = status(403, {"error": {"code": 403, "message": "no", "metadata": {"reasons": ["violence"]}}})
    with FaultServer(lambda call: flagged) as server:
        results = generator(server.url, max_connections=1).generate([ask(str(n)) for n in range(5)])
    assert [result.kind for result in results if isinstance(result, Refusal)] == ["content_filter"] * 5
    with FaultServer(lambda call: status(403, "forbidden")) as server, pytest.raises(BackendError):
        generator(server.url, max_connections=1).generate([ask(str(n)) for n in range(5)])


@pytest.mark.parametrize("code", [500, 502])
def test_log_probabilities_that_make_a_server_fail_are_given_up(code: int) -> None:
    def script(call: fault.Call) -> fault.Action:
        return status(code, "Internal Server Error") if "logprobs" in call.body else answers()

    with FaultServer(script) as server:
        model = generator(server.url, max_connections=1)
        results = model.generate([ask(str(number), logprobs=True) for number in range(4)])
    assert {result.completions[0].logprobs for result in results if isinstance(result, Reply)} == {
        "not_returned"
    }
    # the fourth call makes sure that the server was not just restarting
    tried = ["logprobs" in call.body for call in server.calls]
    assert tried == [True, True, False, True, False, False, False]


def test_a_restart_during_the_short_calls_costs_no_log_probabilities(tmp_path: Path) -> None:
    def script(call: fault.Call) -> fault.Action:
        if call.number in (2, 3):  # the third short call, and the same once more
            return status(500)
        choices = []
        for text in (f"t{call.number}-{place}" for place in range(call.n)):
            tokens = {"content": [{"token": text, "logprob": -0.5}]} if "logprobs" in call.body else None
            choices.append({**choice(text), "logprobs": tokens})
        return chat(*choices)

    out = tmp_path / "r"
    with FaultServer(script) as server:
        done = run(*command(out, server.url, questions(tmp_path / "q.txt", 2), "--logprobs"))
    assert done.code == 0, done.said
    stored = Run.load(out)
    assert "refused" not in stored.manifest.models["answers"]
    tokens = [each for answer_set in stored.answers.values() for each in answer_set.logprobs]
    assert all(isinstance(each, AnswerTokens) for each in tokens)


def test_one_answer_whose_log_probabilities_cannot_be_sent_costs_no_other_answer_its_own() -> None:
    given = {**choice("Oz"), "logprobs": {"content": [{"token": "Oz", "logprob": -1}]}}

    def script(call: fault.Call) -> fault.Action:
        bad = "bad" in str(call.body["messages"]) and "logprobs" in call.body
        return (
            status(500, "not JSON compliant")
            if bad
            else chat(given if "logprobs" in call.body else choice("Oz"))
        )

    with FaultServer(script) as server:
        model = generator(server.url, max_connections=1)
        results = model.generate([ask(text, logprobs=True) for text in ("good", "bad", "fine")])
    kinds = [result.completions[0].logprobs for result in results if isinstance(result, Reply)]
    assert kinds == [AnswerTokens(("Oz",), (-1.0,)), "not_returned", AnswerTokens(("Oz",), (-1.0,))]


_CITY = {"tokens": ["Emerald", " City"]}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({**_CITY, "token_logprobs": [-0.5, -0.25]}, (-0.5, -0.25)),
        ({**_CITY, "token_logprobs": [-0.5, -0.25], "top_logprobs": None}, (-0.5, -0.25)),
        ({**_CITY, "token_logprobs": [0.4, -0.25]}, "out_of_range"),
        ([{"token": "Emerald", "logprob": -1}, {"token": " City", "logprob": -2}], (-1.0, -2.0)),
    ],
)
def test_log_probabilities_in_other_layouts_are_read(value: object, expected: object) -> None:
    with FaultServer(lambda call: chat({**choice("Emerald City"), "logprobs": value})) as server:
        result = only(server.url, ask(logprobs=True))
    assert isinstance(result, Reply)
    found = result.completions[0].logprobs
    whole = AnswerTokens(("Emerald", " City"), expected) if isinstance(expected, tuple) else expected
    assert found == whole


def test_an_answer_is_what_stands_in_its_tags() -> None:
    tagged = "<think>hm</think>\n<answer>Emerald City</answer>\nIt is green."
    texts = [
        tagged,
        "Sure. <answer>Emerald City</answer>",
        "Emerald City</answer>\nIt is green.",
        "<answer>Emerald City",
    ]
    with FaultServer(lambda call: chat(*map(choice, texts))) as server:
        result = only(server.url, ask(n=len(texts)))
    assert isinstance(result, Reply)
    assert set(result.texts) == {"Emerald City"}
    quoted = "Write `<answer>` before it."
    with FaultServer(lambda call: chat(choice(quoted))) as server:
        kept = only(server.url)
    assert isinstance(kept, Reply)
    assert kept.text == quoted


@pytest.mark.parametrize("code", [400, 500])
def test_a_message_keeps_its_turns_when_the_system_is_folded(code: int) -> None:
    refuse = status(code, "Conversation roles must alternate user/assistant/user/assistant/...")
    turns = (("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello"), ("user", "Who?"))
    request = Request(
        messages=tuple(Message(role=role, content=text) for role, text in turns),  # type: ignore[arg-type]
        sampling=Sampling(max_new_tokens=9),
    )
    with FaultServer(
        lambda call: refuse if call.body["messages"][0]["role"] == "system" else answers()
    ) as server:
        assert isinstance(only(server.url, request), Reply)
    sent = server.calls[-1].body["messages"]
    assert [message["content"] for message in sent] == ["Be brief.\n\nHi", "Hello", "Who?"]


EXTRA = {"service_tier": "flex", "chat_template_kwargs": {"date": "1 May"}, "top_k": 20}


def test_fields_of_the_user_go_with_every_request_and_are_kept_with_the_settings(tmp_path: Path) -> None:
    asked, out = questions(tmp_path / "q.txt", 2), tmp_path / "r"
    with FaultServer() as server:
        assert run(*command(out, server.url, asked, "--extra-body", json.dumps(EXTRA))).code == 0
        assert run("summarize", "--strategies", "basic", "--out", out).code == 0
        assert run(*command(out, server.url, asked, "--extra-body", '{"top_k": 5}')).code == 2
    for call in server.calls:
        assert (call.body["service_tier"], call.body["top_k"]) == ("flex", 20)
        assert call.body["chat_template_kwargs"]["date"] == "1 May"
    assert server.calls[-1].body["chat_template_kwargs"] == {"enable_thinking": False, "date": "1 May"}
    config = Run.load(out).manifest.config
    assert config["answers"]["extra_body"] == config["summaries"]["extra_body"] == EXTRA


def test_a_settings_file_sets_fields_of_the_user_in_a_table(tmp_path: Path) -> None:
    file = written(tmp_path / "s.toml", '[answers]\nextra_body = { provider = { order = ["a"] } }\n')
    with FaultServer() as server:
        asked = questions(tmp_path / "q.txt", 1)
        assert run(*command(tmp_path / "r", server.url, asked, "--config", file)).code == 0
    assert all(call.body["provider"] == {"order": ["a"]} for call in server.calls)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_field_of_the_user_that_is_refused_ends_the_run(layout: str, tmp_path: Path) -> None:
    with FaultServer(strict(STANDARD, LAYOUTS[layout])) as server:
        ended = run(
            *command(tmp_path / "r", server.url, questions(tmp_path / "q.txt", 2)),
            *("--extra-body", '{"service_tier": "flex", "top_k": 20}'),
        )
    assert ended.code == 2, ended.said
    assert "service_tier" in ended.said or "top_k" in ended.said
    assert not (tmp_path / "r" / "answers.jsonl").exists()


@pytest.mark.parametrize("extra", ['{"temperature": 2}', '{"n": 3}', '{"api_key": "sk-1"}', "[1]", "flex"])
def test_fields_with_a_setting_and_secrets_are_refused(extra: str, tmp_path: Path) -> None:
    asked, out = questions(tmp_path / "q.txt", 1), tmp_path / "r"
    ended = run(*command(out, "http://127.0.0.1:1/v1", asked, "--extra-body", extra))
    assert ended.code == 2
    assert "sk-1" not in ended.said
    assert "must be ," not in ended.said
    assert not out.exists()
