"""What a dry run says: the arithmetic by hand, its bounds against what real work then takes, and that it
leaves no trace."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import tiny
from command import run, small, written
from hypothesis import given, settings
from hypothesis import strategies as st

from selfreflect.answers import draw_answers
from selfreflect.config import load_config
from selfreflect.errors import ConfigError
from selfreflect.metric.scorer import SelfReflect
from selfreflect.models.base import Completion, Message, Refusal, Reply, Request, Sampling
from selfreflect.models.judge import Judge
from selfreflect.models.local.generator import HFGenerator
from selfreflect.pipeline.cost import (
    NOTHING,
    UNKNOWN,
    Amount,
    Call,
    Nodes,
    Trial,
    extended,
    generation,
    limited_nodes,
    money_of,
    time_of,
)
from selfreflect.pipeline.counting_generator import CountingGenerator, Kind, blanked, byte_count, shown_kinds
from selfreflect.pipeline.dry_run import MOST_STEPS
from selfreflect.pipeline.judge_cost import Trees, tree_nodes
from selfreflect.prompts import load_prompts
from selfreflect.records import AnswerSet, Question, Summary
from selfreflect.store.run import Run
from selfreflect.strategies import STRATEGIES
from selfreflect.strategies.driver import summarize

PROMPTS = load_prompts()
QUESTION = Question(id="q", text="What first?")
ANSWERS = AnswerSet(
    question_id="q",
    masked_out=("Radishes, quickly.", "Lettuce in a pot."),
    conditioning=("Radishes.", "Basil."),
)


def exactly(value: float) -> Amount:
    return Amount(expected=value, most=value)


# --- the arithmetic


def test_calls_add_up_as_by_hand() -> None:
    limits, lengths = [20, 100], {0: 12.5, 1: 40.0}
    samples = Call(kind=0, n=10, prompt=30, prompt_most=45)
    merged = Call(kind=1, n=1, prompt=60, prompt_most=80, shown=(0,) * 10)
    found = generation([samples, merged], limits, lengths, reread=False)
    assert found.prompt == Amount(expected=30 + 60 + 10 * 12.5, most=45 + 80 + 10 * 20)
    assert found.completion == Amount(expected=10 * 12.5 + 40, most=10 * 20 + 100)
    assert generation([samples, merged], limits, lengths, reread=True).prompt == Amount(
        expected=215, most=10 * 45 + 280
    )
    assert generation([], limits, lengths, reread=True).prompt == NOTHING


def test_what_is_not_known_stays_unknown_and_bounds_hold_on() -> None:
    merged = Call(kind=1, n=1, prompt=60, prompt_most=80, shown=(0, 0))
    found = generation([merged], [20, 100], {1: 7.0}, reread=False)
    assert found.prompt == Amount(expected=None, most=120)
    assert found.completion == Amount(expected=7, most=100)
    assert generation([merged], [20, 100], {}, reread=False).completion.expected is None


def test_a_window_limits_prompts_and_completions() -> None:
    merged = Call(kind=1, n=1, prompt=60, prompt_most=60, shown=(0,) * 10, window=100)
    found = generation([merged], [20, 100], {0: 10.0, 1: 90.0}, reread=False)
    assert found.prompt == Amount(expected=99, most=99)
    assert found.completion == Amount(expected=40, most=40)


def test_time_and_money_follow_tokens() -> None:
    found = generation([Call(kind=0, n=4, prompt=1000, prompt_most=1000)], [500], {0: 250.0}, reread=False)
    assert time_of(found, 0.001, 0.01) == Amount(expected=1 + 10, most=1 + 20)
    assert time_of(found, None, 0.01) == UNKNOWN
    assert money_of(found, 2.0, 8.0) == Amount(expected=0.002 + 0.008, most=0.002 + 0.016)
    assert NOTHING.scaled(None) == NOTHING


@given(st.integers(1, 50), st.integers(0, 500), st.integers(1, 300))
def test_the_expected_length_is_the_mean_of_a_cut_off_geometric_length(
    stopped: int, tokens: int, limit: int
) -> None:
    trial = Trial(prompt_tokens=1, first_seconds=1, completions=50, tokens=tokens, stopped=stopped, seconds=2)
    end = stopped / (stopped + tokens)
    mean = sum(length * end * (1 - end) ** length for length in range(limit)) + limit * (1 - end) ** limit
    assert trial.expected_length(limit) == pytest.approx(mean, abs=1e-9)


def test_a_trial_in_which_nothing_ended_expects_nothing_and_gives_paces() -> None:
    trial = Trial(prompt_tokens=200, first_seconds=0.5, completions=10, tokens=110, stopped=0, seconds=2.5)
    assert trial.expected_length(100) is None
    assert (trial.prompt_seconds, trial.token_seconds) == (0.5 / 200, 2.0 / 100)


def test_limits_of_scoring() -> None:
    nodes = Amount(expected=900, most=1500)
    assert limited_nodes(nodes, 1000, False) == Amount(expected=900, most=1000)
    assert limited_nodes(UNKNOWN, 1000, True) == Amount(expected=None, most=1000)
    assert limited_nodes(nodes, None, False) == nodes
    assert limited_nodes(nodes, None, True) == Amount(expected=900, most=None)


def test_three_lengths_give_any_other_where_nodes_are_quadratic() -> None:
    def nodes(length: float) -> Nodes:
        return Nodes(
            reference=length**2 / 2 + 7 * length + 50, summary=3 * length, masked=length**2, conditioning=5
        )

    found = extended([(length, nodes(length)) for length in (3.0, 8.0, 21.0)], 400.0)
    assert [getattr(found, part) for part in Nodes.__struct_fields__] == pytest.approx(
        [getattr(nodes(400.0), part) for part in Nodes.__struct_fields__]
    )


# --- stand-ins


def ask(text: str, n: int = 1, limit: int = 8) -> Request:
    return Request(
        messages=(Message(role="user", content=text),), sampling=Sampling(max_new_tokens=limit), n=n
    )


def test_stand_ins_differ_name_their_kind_and_are_counted_where_they_are_shown() -> None:
    kinds: list[Kind] = []
    model = CountingGenerator("m", kinds)
    [one, two] = [
        reply for reply in model.generate([ask("a", 3), ask("b", limit=9)]) if isinstance(reply, Reply)
    ]
    texts = [completion.text for reply in (one, two) for completion in reply.completions]
    assert len(set(texts)) == 4
    assert [shown_kinds(text) for text in texts] == [(0,), (0,), (0,), (1,)]
    assert [kind.sampling.max_new_tokens for kind in kinds] == [8, 9]
    model.generate([ask("Merge: " + " and ".join(texts))])
    assert model.calls[-1].shown == (0, 0, 0, 1)
    assert (
        model.requests[-1].messages[0].content
        == "Merge: x and x and x and x"
        == blanked("Merge: " + " and ".join(texts))
    )


def test_a_prompt_that_does_not_fit_is_refused_and_not_counted() -> None:
    model = CountingGenerator("m", [], counted=lambda requests: [(10, 10) for _ in requests], window=10)
    [refusal] = model.generate([ask("a")])
    assert isinstance(refusal, Refusal)
    assert (refusal.kind, model.calls) == ("too_long", [])


# --- bounds against what real work takes


class Counting:
    """A generator that notes what is asked of another one and what it gives."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.name, self.revision = inner, inner.name, inner.revision
        self.prompt = self.completion = self.calls = self.completions = 0

    def generate(self, requests: Sequence[Request]) -> list[Reply | Refusal]:
        replies: list[Reply | Refusal] = self.inner.generate(requests)
        for reply in replies:
            if isinstance(reply, Reply):
                self.calls += 1
                self.completions += len(reply.completions)
                self.prompt += reply.prompt_tokens
                self.completion += reply.tokens
        return replies


class Words:
    """A server whose tokens are words, whatever the text; its replies are as long as a strategy of numbers
    says."""

    name, revision = "words", ""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = lengths

    def generate(self, requests: Sequence[Request]) -> list[Reply | Refusal]:
        return [self._reply(place, request) for place, request in enumerate(requests)]

    def _reply(self, place: int, request: Request) -> Reply:
        sizes = [
            min(self._lengths[(place + i) % len(self._lengths)], request.sampling.max_new_tokens)
            for i in range(request.n)
        ]
        completions = tuple(
            Completion(text=" ".join(["word"] * size), finish="stop", tokens=size) for size in sizes
        )
        return Reply(
            completions=completions,
            prompt_tokens=sum(len(message.content.split()) for message in request.messages),
        )


def everything(generator: Any, questions: Sequence[Question]) -> None:
    """Answers, and summaries by every bundled strategy."""
    sampling = Sampling(max_new_tokens=5)
    list(draw_answers(questions, generator, num_answers=3, prompts=PROMPTS, sampling=sampling))
    short = Sampling(temperature=0.0, max_new_tokens=7)
    list(
        summarize(
            questions,
            list(STRATEGIES),
            generator,
            prompts=PROMPTS,
            sampling=short,
            sample_sampling=sampling,
            num_samples=4,
        )
    )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=3, unique=True),
    st.lists(st.integers(0, 9), min_size=1, max_size=5),
)
def test_no_run_takes_more_than_the_bounds(texts: list[str], lengths: list[int]) -> None:
    questions = [Question(id=text, text=text) for text in texts]
    real, kinds = Counting(Words(lengths)), list[Kind]()
    model = CountingGenerator("m", kinds, counted=byte_count)
    everything(real, questions)
    everything(model, questions)
    found = generation(model.calls, [kind.sampling.max_new_tokens for kind in kinds], {}, reread=False)
    assert found.prompt.most is not None
    assert found.completion.most is not None
    assert real.calls <= len(model.calls)
    assert real.completions <= sum(call.n for call in model.calls)
    assert real.prompt <= found.prompt.most
    assert real.completion <= found.completion.most
    if min(lengths) > 0:  # no strategy ends early for want of text
        assert (real.calls, real.completions) == (len(model.calls), sum(call.n for call in model.calls))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("model"), "llama")


def test_prompts_of_a_local_model_are_counted_exactly_where_no_reply_is_shown(model: Path) -> None:
    from selfreflect.pipeline.dry_run import _counted

    generator = HFGenerator.load(str(model), device="cpu")
    real, stand_in = (
        Counting(generator),
        CountingGenerator("m", [], counted=lambda bare: _counted(generator, bare)),
    )
    questions = [QUESTION, Question(id="r", text="Who is it, and which pot does it need?")]
    for each in (real, stand_in):
        list(
            draw_answers(questions, each, num_answers=2, prompts=PROMPTS, sampling=Sampling(max_new_tokens=3))
        )
        list(summarize(questions, ["greedy", "basic", "cot"], each, sampling=Sampling(max_new_tokens=3)))
    found = generation(stand_in.calls, [3, 3], {}, reread=False)
    assert found.prompt == Amount(expected=real.prompt, most=real.prompt)
    assert (real.calls, real.completions) == (len(stand_in.calls), sum(call.n for call in stand_in.calls))
    assert found.completion.most is not None
    assert 0 < real.completion <= found.completion.most


# --- judge tokens


class Watched:
    """An engine that counts the nodes it computes."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.head, self.nodes = inner, inner.head, 0

    def states(self, plans: Any) -> Any:
        self.nodes += sum(plan.computed_tokens for plan in plans)
        return self.inner.states(plans)


@pytest.mark.parametrize(
    "texts",
    [
        ["Radishes or lettuce."],
        ["Radishes or lettuce.", "It is not clear.", "Radishes or lettuce."],
        ["word " * 3000, "Radishes."],  # the first does not fit the judge's window
    ],
)
def test_judge_tokens_are_those_that_the_engine_computes(
    tiny_judge: Callable[..., Judge], texts: list[str]
) -> None:
    judge = tiny_judge("llama")
    metric = SelfReflect(judge)
    watched = Watched(metric.engine)
    metric.engine = watched
    summaries = [Summary(question_id="q", name=str(place), text=text) for place, text in enumerate(texts)]
    metric.score_records(QUESTION, ANSWERS, summaries)
    found = Trees(judge, {}, []).nodes(QUESTION, ANSWERS, summaries)
    assert found == exactly(watched.nodes)
    assert watched.nodes > 100


def test_a_question_without_a_score_costs_the_judge_nothing(tiny_judge: Callable[..., Judge]) -> None:
    blank = AnswerSet(question_id="q", masked_out=(" ",), conditioning=("Radishes.",))
    assert tree_nodes(tiny_judge("llama"), QUESTION, blank, ["Radishes."]) == []


def stood_in(answers: int, kind: int) -> AnswerSet:
    texts = tuple(f"\ue000{number}/{kind}\ue001" for number in range(2 * answers))
    return AnswerSet(question_id="q", masked_out=texts[:answers], conditioning=texts[answers:])


@pytest.mark.parametrize("length", [40.0, 150.0])
def test_estimated_trees_are_close_to_those_of_answers_of_that_length(
    tiny_judge: Callable[..., Judge], length: float
) -> None:
    judge = tiny_judge("llama", max_position_embeddings=8192)
    trees = Trees(judge, {0: length}, [200])
    made_up = [trees._filler(number, length, False) for number in range(3)]
    mean = sum(map(trees._count, made_up)) / 3
    answers = AnswerSet(question_id="q", masked_out=tuple(made_up), conditioning=tuple(made_up[::-1]))
    real = sum(tree_nodes(judge, QUESTION, answers, [made_up[0], made_up[1]]))
    summaries = [Summary(question_id="q", name=name, text=f"\ue000{name}/0\ue001") for name in "12"]
    found = Trees(judge, {0: mean}, [200]).nodes(QUESTION, stood_in(3, 0), summaries)
    assert found.expected == pytest.approx(real, rel=0.15)
    assert found.most is not None
    assert found.most > found.expected


def test_summaries_to_come_cost_their_tokens_beside_answers_that_are_there(
    tiny_judge: Callable[..., Judge],
) -> None:
    judge = tiny_judge("llama")
    text = "Radishes or lettuce, because they grow quickly."
    length = len(judge.chat.encode([text])[0])
    trees = Trees(judge, {0: float(length)}, [90])
    real = sum(tree_nodes(judge, QUESTION, ANSWERS, [text]))
    found = trees.nodes(QUESTION, ANSWERS, [Summary(question_id="q", name="1", text="\ue0001/0\ue001")])
    assert found.expected == pytest.approx(real, abs=2)
    assert found.most == found.expected + 90 - length


# --- the commands


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("questions") / "q.txt", "What first?\nWho is it?\n")


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def stages(outcome: Any) -> dict[str, dict[str, Any]]:
    [line] = outcome.json
    return {cost["stage"]: cost for cost in line["dry_run"]}


def test_a_dry_run_makes_no_directory_and_bounds_what_the_run_then_takes(
    model: Path, questions: Path, tmp_path: Path
) -> None:
    command = small(
        model, tmp_path / "r", questions, strategies="greedy,cot,sample_and_summarize,concatenated_answers"
    )
    shown = run(*command, "--dry-run")
    assert shown.code == 0
    for part in (
        "prompt tokens",
        "completion tokens",
        "judge tokens",
        "time",
        "expected",
        "summaries",
        str(model),
    ):
        assert part in shown.stdout
    assert "nothing was written" in shown.said
    found = stages(run(*command, "--dry-run", "--json"))
    assert list(tmp_path.iterdir()) == []
    run(*command)
    real = Run.load(tmp_path / "r")
    assert found["answers"]["to_do"] == 2
    assert (
        found["answers"]["completions"]["most"]
        == sum(len(drawn.answers) for drawn in real.answers.values())
        == 8
    )
    assert found["answers"]["completion_tokens"]["most"] >= sum(
        drawn.tokens for drawn in real.answers.values()
    )
    assert (
        found["summaries"]["to_do"]
        == len(real.summaries) + sum(failure.stage == "summaries" for failure in real.failures)
        == 8
    )
    shared = 2 * 2  # the samples of a question, which two strategies share and both report
    assert found["summaries"]["completions"]["most"] + shared >= sum(
        made.calls for made in real.summaries.values()
    )
    assert found["scores"]["to_do"] >= len(real.scores)


def test_only_what_is_missing_counts_and_the_directory_is_left_alone(
    model: Path, questions: Path, tmp_path: Path
) -> None:
    command = small(model, tmp_path / "r", questions, strategies="greedy")
    assert run(*command).code == 0
    before = contents(tmp_path)
    done = stages(run(*command, "--dry-run", "--json"))
    assert {name: cost["to_do"] for name, cost in done.items()} == {"answers": 0, "summaries": 0, "scores": 0}
    more = stages(
        run("summarize", "--out", tmp_path / "r", "--strategies", "greedy,basic", "--dry-run", "--json")
    )
    assert (more["summaries"]["to_do"], more["summaries"]["completions"]["most"]) == (2, 2)
    anew = stages(run(*command, "--fresh", "--dry-run", "--json"))
    assert (anew["answers"]["to_do"], anew["scores"]["to_do"]) == (2, 2)
    refused = run(*command, "--num-answers", 3, "--dry-run")
    assert refused.code == 2
    assert "answers.num_answers: 2 -> 3" in refused.stderr
    assert contents(tmp_path) == before


def test_scores_of_a_run_and_of_items_are_counted_exactly(
    model: Path, questions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "r"
    assert (
        run(
            "answers",
            "--out",
            out,
            *small(model, out, questions)[1:3],
            "--model",
            model,
            "--num-answers",
            2,
            "--device",
            "cpu",
        ).code
        == 0
    )
    assert (
        run(
            "summarize",
            "--out",
            out,
            "--model",
            model,
            "--strategies",
            "greedy",
            "--summary-tokens",
            8,
            "--device",
            "cpu",
        ).code
        == 0
    )
    before = contents(tmp_path)
    found = stages(run("score", "--out", out, "--judge", model, "--dry-run", "--json"))["scores"]
    assert contents(tmp_path) == before
    stored, judge = Run.load(out), Judge.load(str(model), device="cpu")
    exact = sum(
        sum(
            tree_nodes(
                judge, stored.questions[key], stored.answers[key], [stored.summaries[key, "greedy"].text]
            )
        )
        for key in stored.questions
    )
    assert found["judge_tokens"] == {"expected": exact, "most": exact}
    assert found["seconds"]["expected"] > 0
    limited = stages(run("score", "--out", out, "--judge", model, "--budget", 300, "--dry-run", "--json"))[
        "scores"
    ]
    assert limited["judge_tokens"]["most"] == 600

    item = {
        "question": "What first?",
        "answers": ["Radishes.", "Lettuce.", "Basil.", "Radishes."],
        "summaries": {"a": "Radishes.", "b": "Oak."},
    }
    items = written(tmp_path / "items.json", [item])
    counted = stages(run("score", "--items", items, "--judge", model, "--dry-run", "--json"))["scores"]
    answers = AnswerSet(
        question_id="q", masked_out=("Radishes.", "Lettuce."), conditioning=("Basil.", "Radishes.")
    )
    assert counted["judge_tokens"]["expected"] == sum(
        tree_nodes(judge, QUESTION, answers, ["Radishes.", "Oak."])
    )
    assert counted["to_do"] == 2


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        yield listening


def test_a_server_is_not_asked_and_no_secret_is_shown(
    server: socket.socket, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELFREFLECT_API_KEY", "sk-verysecret")
    prices = '[prices."openai:m"]\ninput_per_million = 1.0\noutput_per_million = 4\n'
    config = written(tmp_path / "c.toml", prices)
    out, url = tmp_path / "r", f"http://me:verysecret@127.0.0.1:{server.getsockname()[1]}/v1"
    command = [
        "answers",
        "--questions",
        questions,
        "--model",
        "openai:m",
        "--base-url",
        url,
        "--num-answers",
        5,
        "--config",
        config,
    ]
    shown = run(*command, "--out", out, "--dry-run")
    line = run(*command, "--out", out, "--dry-run", "--json")
    assert "verysecret" not in shown.stdout + shown.stderr + line.stdout + line.stderr
    found = stages(line)["answers"]
    assert found["model"].startswith("openai:m at http://127.0.0.1:")
    assert (found["calls"], found["completions"]["most"]) == ({"expected": 2, "most": 20}, 20)
    assert found["completion_tokens"] == {"expected": None, "most": 20 * 256}
    assert found["seconds"] == {"expected": None, "most": None}
    bound = (found["prompt_tokens"]["most"] * 1.0 + found["completion_tokens"]["most"] * 4) / 1e6
    assert found["money"] == {"expected": None, "most": pytest.approx(bound)}
    assert not out.exists()
    with pytest.raises(TimeoutError):
        server.accept()


def test_earlier_calls_of_a_directory_tell_length_and_time_of_a_server(
    questions: Path, tmp_path: Path
) -> None:
    out, url = tmp_path / "r", "http://127.0.0.1:9/v1"
    assert run("questions", "--questions", questions, "--out", out).code == 0
    wanted = ["answers", "--out", out, "--model", "openai:m", "--base-url", url, "--num-answers", 2]
    section = {"model": "openai:m", "base_url": url, "num_answers": 2}
    with Run.open(out, {}) as stored:
        key = next(iter(stored.questions))
        drawn = AnswerSet(question_id=key, masked_out=("a", "b"), conditioning=("c", "d"), tokens=80)
        stored.append(drawn)
        stored.update_manifest(wall_time={"answers": 8.0})
    found = stages(run(*wanted, "--dry-run", "--json"))["answers"]
    assert section["num_answers"] * 2 == found["completions"]["most"] == 4
    assert (found["to_do"], found["completion_tokens"]["expected"], found["seconds"]["expected"]) == (
        1,
        80,
        8.0,
    )


def test_a_strategy_that_cannot_be_followed_is_named(
    model: Path, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(
        tmp_path / "odd_strategies.py",
        "def numbers(task):\n    [reply] = yield task.request(task.messages(), 'ask')\n    return str(int(reply.text))\n\n\n"
        "def forever(task):\n    text = ''\n    while 'done' not in text:\n"
        "        [reply] = yield task.request(task.messages(), 'ask')\n        text = reply.text\n    return text\n",
    )
    monkeypatch.chdir(tmp_path)
    command = small(
        model, tmp_path / "r", questions, strategies="odd_strategies:numbers,odd_strategies:forever"
    )
    outcome = run(*command, "--dry-run")
    assert outcome.code == 0
    assert "odd_strategies:numbers could not be followed" in outcome.said
    assert (
        f"odd_strategies:forever could not be followed to its end with made-up replies: RuntimeError: 'more than {MOST_STEPS}"
        in outcome.said
    )
    found = stages(run(*command, "--dry-run", "--json"))["summaries"]
    assert found["completions"]["most"] == 2 * (1 + MOST_STEPS)
    assert not (tmp_path / "r").exists()


def test_a_judge_behind_a_server_is_not_asked(server: socket.socket, tmp_path: Path) -> None:
    item = {"question": "What first?", "answers": ["Radishes.", "Lettuce."], "summaries": {"a": "Radishes."}}
    items = written(tmp_path / "items.json", [item])
    url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
    found = stages(
        run("score", "--items", items, "--judge", "vllm+http:m", "--judge-url", url, "--dry-run", "--json")
    )["scores"]
    assert (found["to_do"], found["judge_tokens"]) == (1, {"expected": None, "most": None})
    with pytest.raises(TimeoutError):
        server.accept()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[prices]\nm = 3\n", ["'m'", "must be a table"]),
        ("[prices.m]\ninput_per_million = 1\n", ["output_per_million", "'m'", "is missing"]),
        (
            "[prices.m]\ninput_per_million = -1\noutput_per_million = 1\n",
            ["input_per_million", "must be 0 or more", "-1"],
        ),
        (
            "[prices.m]\ninput_per_million = nan\noutput_per_million = 1\n",
            ["input_per_million", "must be 0 or more"],
        ),
        (
            "[prices.m]\ninput_per_million = true\noutput_per_million = 1\n",
            ["input_per_million", "must be 0 or more"],
        ),
        ("[prices.m]\ninput = 1\n", ["unknown key in [prices.'m']", "'input'"]),
    ],
)
def test_a_wrong_price_is_named(tmp_path: Path, text: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(written(tmp_path / "c.toml", text), {})
    assert [part for part in parts if part not in str(caught.value)] == []


def test_prices_are_read_and_are_no_settings_of_a_directory(
    model: Path, questions: Path, tmp_path: Path
) -> None:
    config = written(
        tmp_path / "c.toml", f'[prices."{model}"]\ninput_per_million = 0\noutput_per_million = 2.5\n'
    )
    assert load_config(config, {}).prices[str(model)].output_per_million == 2.5
    command = small(model, tmp_path / "r", questions, strategies="greedy")
    assert run(*command, "--config", config).code == 0
    assert "prices" not in Run.load(tmp_path / "r").manifest.config
    assert run(*command).code == 0


def test_a_place_that_a_run_would_refuse_is_refused(model: Path, questions: Path, tmp_path: Path) -> None:
    written(tmp_path / "file", "text")
    (tmp_path / "other").mkdir()
    written(tmp_path / "other" / "mine.txt", "text")
    for name, part in (("file", "Not a directory"), ("other", "is not empty and not a run directory")):
        outcome = run(*small(model, tmp_path / name, questions), "--dry-run")
        assert outcome.code == 2
        assert part in outcome.said
