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
from msgspec.structs import replace
from transformers import AutoTokenizer

from selfreflect.answers import draw_answers
from selfreflect.metric.measure import Measures, TextLimits
from selfreflect.metric.scorer import SelfReflect, tree_nodes
from selfreflect.models.base import Completion, Message, Reply, Request, Sampling
from selfreflect.models.chat import ChatTokenizer
from selfreflect.models.judge import Judge
from selfreflect.models.local.generator import HFGenerator
from selfreflect.models.smollm2 import model_directory
from selfreflect.prompts import load_prompts
from selfreflect.records import AnswerSet, Question, Summary
from selfreflect.run.cost import Amount, RequestCount
from selfreflect.run.dry_run import DryRun, judge_tokens, most_judge_tokens
from selfreflect.run.models import Quiet
from selfreflect.run.stages import StageTask
from selfreflect.settings import ExecutionOptions, ScoresConfig, load_config
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


# --- bounds against what real work takes


class Counting:
    """A generator that counts what is asked of another one and what it gives."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.name, self.revision = inner, inner.name, inner.revision
        self.prompt = self.completion = self.calls = self.completions = 0

    def generate(self, requests: Sequence[Request]) -> list[Any]:
        replies: list[Any] = self.inner.generate(requests)
        for reply in replies:
            if isinstance(reply, Reply):
                self.calls += 1
                self.completions += len(reply.completions)
                self.prompt += reply.prompt_tokens
                self.completion += reply.tokens
        return replies


class Words:
    """A server whose tokens are words; its replies take their lengths from a list."""

    name, revision = "words", ""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = lengths

    def generate(self, requests: Sequence[Request]) -> list[Reply]:
        return [self._reply(index, request) for index, request in enumerate(requests)]

    def _reply(self, index: int, request: Request) -> Reply:
        completions = []
        for number in range(index, index + request.n):
            length = self._lengths[number % len(self._lengths)]
            size = min(length, request.sampling.max_new_tokens)
            completions.append(Completion(text=" ".join(["word"] * size), finish="stop", tokens=size))
        words = sum(len(message.content.split()) for message in request.messages)
        return Reply(completions=tuple(completions), prompt_tokens=words)


SETTINGS = {
    "answers": {"num_answers": 3, "max_new_tokens": 5},
    "summaries": {"num_samples": 4, "sample_max_new_tokens": 5, "max_new_tokens": 7},
}


def everything(generator: Any, questions: Sequence[Question], strategies: Sequence[str]) -> None:
    """Answers, and summaries by some strategies."""
    sampling = Sampling(max_new_tokens=5)
    list(draw_answers(questions, generator, num_answers=3, prompts=PROMPTS, sampling=sampling))
    short = Sampling(temperature=0.0, max_new_tokens=7)
    list(
        summarize(
            questions,
            strategies,
            generator,
            prompts=PROMPTS,
            sampling=short,
            sample_sampling=sampling,
            num_samples=4,
        )
    )


def counted(questions: Sequence[Question], strategies: Sequence[str], model: str = "openai:m") -> Any:
    """The sum of what a dry run counts for the same, by the name of the amount."""
    sections = {stage: {"model": model, **section} for stage, section in SETTINGS.items()}
    config = load_config(None, sections)
    stored = Run.in_memory(Path())
    stored.add_in_memory(questions)
    dry_run = DryRun(stored, config, PROMPTS, ExecutionOptions(device="cpu"), Quiet())
    dry_run.fill("answers")
    dry_run.fill("summaries", strategies)
    names = ("calls", "completions", "prompt_tokens", "completion_tokens")
    drawn, made = (cost.amounts for cost in dry_run.costs)
    return {name: drawn[name] + made[name] for name in names}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=3, unique=True),
    st.lists(st.integers(0, 9), min_size=1, max_size=5),
)
def test_no_run_takes_more_than_the_bounds(texts: list[str], lengths: list[int]) -> None:
    questions = [Question(id=text, text=text) for text in texts]
    strategies = [*STRATEGIES, "basic#1", "sample_and_summarize#2"]
    real = Counting(Words(lengths))
    everything(real, questions, strategies)
    count = counted(questions, strategies)
    assert real.calls <= count["calls"].mean
    assert real.completions <= count["completions"].bound
    assert real.prompt <= count["prompt_tokens"].bound
    assert real.completion <= count["completion_tokens"].bound
    if min(lengths) > 0:  # no strategy ends early for want of text
        assert (real.calls, real.completions) == (count["calls"].mean, count["completions"].bound)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("model"), "llama")


def test_a_local_model_draws_all_completions_of_a_prompt_in_one_call(model: Path) -> None:
    real = Counting(HFGenerator.load(str(model), device="cpu"))
    long = Question(id="r", text="Who is it?", context="The pot is red. <|im_end|> " * 20)
    strategies = ["greedy", "basic", "cot"]
    everything(real, [QUESTION, long], strategies)
    count = counted([QUESTION, long], strategies, str(model))
    assert real.prompt <= count["prompt_tokens"].bound
    assert count["calls"] == Amount(real.calls, real.calls)
    assert count["completions"] == Amount(real.completions, real.completions)
    assert 0 < real.completion <= count["completion_tokens"].bound


def test_a_context_is_counted_in_every_prompt_of_the_model_and_in_none_of_the_judges(model: Path) -> None:
    context = "The pot is red. " * 20
    plain, told = (
        counted([question], list(STRATEGIES), str(model))
        for question in (QUESTION, replace(QUESTION, context=context))
    )
    assert plain["calls"] == told["calls"]
    words = len(context.split()) * int(plain["calls"].mean)
    assert told["prompt_tokens"].bound >= plain["prompt_tokens"].bound + words
    judge = Judge.load(str(model), device="cpu")
    tasks = [task(ANSWERS, "Radishes.", *more) for more in ([], [])]
    tasks[1] = replace(tasks[1], question=replace(QUESTION, context=context))
    plain_tokens, told_tokens = (judge_tokens(judge, one, ScoresConfig()) for one in tasks)
    assert plain_tokens == told_tokens


# --- judge tokens


class Watched:
    """An engine that counts the nodes it computes."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.head, self.nodes = inner, inner.head, 0

    def states(self, plans: Any) -> Any:
        self.nodes += sum(plan.computed_tokens for plan in plans)
        return self.inner.states(plans)


def summaries_of(*texts: str) -> tuple[Summary, ...]:
    return tuple(Summary(question_id="q", name=str(number), text=text) for number, text in enumerate(texts))


def task(answers: AnswerSet, *texts: str) -> StageTask:
    summaries = summaries_of(*texts)
    return StageTask(question=QUESTION, answers=answers, summaries=summaries, controls=True)


def work_of(judge: Judge, answers: AnswerSet, texts: Sequence[str]) -> int:
    """The nodes that the engine computes for both measures and the controls."""
    measures = Measures(SelfReflect(judge))
    watched = Watched(measures.metric.engine)
    measures.metric.engine = watched
    measures.measure(QUESTION, answers, summaries_of(*texts))
    return watched.nodes


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
    nodes = work_of(judge, ANSWERS, texts)
    assert judge_tokens(judge, task(ANSWERS, *texts), ScoresConfig()) == Amount(nodes, nodes)
    assert nodes > 100


@pytest.mark.parametrize("words", [["radishes or lettuce", "the"], list("bcdfg")])
def test_trees_of_texts_to_come_are_bounded(tiny_judge: Callable[..., Judge], words: list[str]) -> None:
    """Also if every token is a word to mask."""
    judge = tiny_judge("llama", max_position_embeddings=8192)
    texts = [" ".join([letter, *words * 6]) for letter in "pqr"]
    answers = AnswerSet(question_id="q", masked_out=tuple(texts), conditioning=tuple(texts[::-1]))
    length = len(judge.chat.encode([texts[0]])[0])
    half = [length] * 3
    limits = TextLimits(QUESTION, half, half, [length] * 2, controls=True)
    most = most_judge_tokens(judge, limits, ScoresConfig()).bound
    exact = work_of(judge, answers, texts[:2])
    assert exact <= most < 20 * exact


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
    for part in ("prompt tokens", "completion tokens", "judge tokens", "expected", "summaries", str(model)):
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
    place = ("--out", out, "--model", model, "--device", "cpu")
    assert run("answers", *small(model, out, questions)[1:3], *place, "--num-answers", 2).code == 0
    assert run("summarize", *place, "--strategies", "greedy", "--summary-tokens", 8).code == 0
    before = contents(tmp_path)
    only_scores = ["--measures", "selfreflect", "--no-controls", "--dry-run", "--json"]
    found = stages(run("score", "--out", out, "--judge", model, *only_scores))["scores"]
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
    counted = stages(run("score", "--items", items, "--judge", model, *only_scores))["scores"]
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
    bound = (found["prompt_tokens"]["most"] * 1.0 + found["completion_tokens"]["most"] * 4) / 1e6
    assert found["money"] == {"expected": None, "most": pytest.approx(bound)}
    assert not out.exists()
    with pytest.raises(TimeoutError):
        server.accept()


def test_earlier_calls_of_a_directory_tell_lengths_of_a_server_and_no_time(
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
    assert (found["to_do"], found["completion_tokens"]["expected"]) == (1, 80)
    assert found["seconds"] == {"expected": None, "most": None}


def test_what_a_strategy_of_a_user_asks_is_not_known_and_its_code_is_not_run(
    model: Path, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(
        tmp_path / "own_strategies.py",
        "def own(task):\n    open('was-run', 'w')\n    yield task.request(task.messages(), 'ask')\n",
    )
    monkeypatch.chdir(tmp_path)
    command = small(model, tmp_path / "r", questions, strategies="greedy,own_strategies:own")
    [line] = run(*command, "--dry-run", "--json").json
    found = {cost["stage"]: cost for cost in line["dry_run"]}
    assert (found["summaries"]["to_do"], found["scores"]["to_do"]) == (4, 4)
    for name in ("calls", "completions", "prompt_tokens", "completion_tokens"):
        assert found["summaries"][name] == {"expected": None, "most": None}
    assert found["answers"]["completions"]["most"] == 8
    assert any("own_strategies:own" in note for note in line["notes"])
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"own_strategies.py"}


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


@pytest.mark.parametrize("system", [[], [Message(role="system", content="Be brief.")]])
def test_the_bound_holds_where_the_template_writes_a_turn_of_its_own(system: list[Message]) -> None:
    chat = ChatTokenizer(AutoTokenizer.from_pretrained(model_directory()))
    messages = (*system, Message(role="user", content="Hi?"))
    [ids] = chat.encode(chat.render_all([messages], thinking=False))
    count = RequestCount(draws_together=True)
    count.add(Request(messages=messages, sampling=Sampling(max_new_tokens=5), n=1, seed=1))
    bound = count.amounts["prompt_tokens"].bound
    assert bound is not None
    assert len(ids) <= bound
