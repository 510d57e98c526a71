"""The built-in strategies."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from selfreflect.errors import excerpt
from selfreflect.models.base import Message, Request
from selfreflect.prompts import LISTS
from selfreflect.strategies.task import MalformedReplyError, Strategy, StrategyFunction, Task, draw_samples
from selfreflect.text import answer_list

_BULLET = re.compile(r"^(?:[-*•]|\d{1,2}[.)])\s+")
_PERCENT = re.compile(r"^(\d{1,3}(?:\.\d+)?)\s*%$")


class ListedAnswer(NamedTuple):
    """An answer with the probability that the model states."""

    answer: str
    percent: float


def parse_listed(text: str, cut: bool = False) -> list[ListedAnswer]:
    """Parse a model's list of answers with percentages.

    Lines without a bar are talk around the list, and a line that was cut off is left out. Percentages are not
    made to sum to 100: what the model said is what is measured.

    Args:
        cut: whether the limit of tokens ended the text, which may be within its last line.

    Raises:
        MalformedReplyError: no line has the form, a line with a bar has another one, a percentage is above
            100, or an answer is listed twice.
    """
    lines = text.strip().splitlines()
    if cut:
        lines = lines[:-1]
    entries = [_listed_answer(line) for line in lines if "|" in line]
    if not entries:
        raise MalformedReplyError(f"the reply lists no 'answer | percentage': {excerpt(text, 120)}")
    answers = {entry.answer.casefold() for entry in entries}
    if len(answers) < len(entries):
        raise MalformedReplyError(f"the reply lists an answer twice: {excerpt(text, 120)}")
    return entries


def _listed_answer(line: str) -> ListedAnswer:
    # an answer may hold a bar itself
    text, _, percentage = _BULLET.sub("", line.strip()).rpartition("|")
    answer = text.strip().strip("|").strip().rstrip(".")
    number = _PERCENT.match(percentage.strip())
    if not answer or number is None:
        raise MalformedReplyError(f"a line is not of the form 'answer | percentage': {excerpt(line, 120)}")
    percent = float(number[1])
    if percent > 100:
        raise MalformedReplyError(f"a percentage is above 100: {excerpt(line, 120)}")
    return ListedAnswer(answer, percent)


def one_line_list(answers: list[ListedAnswer]) -> str:
    """Format answers on one line, the most probable first: ``in March (60%); in April (25%)``."""
    ranking = sorted(answers, key=lambda entry: -entry.percent)
    return "; ".join(f"{entry.answer} ({entry.percent:g}%)" for entry in ranking)


def greedy(task: Task) -> Strategy:
    """Use the model's ordinary answer as the summary, a baseline without other possibilities."""
    [reply] = yield task.request(task.messages(), "summary")
    return reply.text


def basic(task: Task) -> Strategy:
    """Ask for everything that the model considers possible, in one prompt."""
    [reply] = yield task.request(task.messages(task.prompts.basic["user"]), "summary")
    return reply.text


def cot(task: Task) -> Strategy:
    """Let the model reason about the possibilities, and use the text after the marker as the summary."""
    prompts = task.prompts.cot
    [reply] = yield task.request(task.messages(prompts["user"], marker=prompts["marker"]), "summary")
    return final_part(reply.text, prompts["marker"], cut=reply.completions[0].finish == "length")


def twostep_cot(task: Task) -> Strategy:
    """List the possibilities in one turn, and distil them into one answer in the next."""
    conversation = task.messages(task.prompts.twostep_cot["possibilities"])
    [possibilities] = yield task.request(conversation, "possibilities")
    if not possibilities.text.strip():
        return ""  # nothing to distil, and chat templates treat an empty turn differently
    [reply] = yield _distil(task, possibilities.text)
    return reply.text


def _distil(task: Task, possibilities: str) -> Request:
    prompts = task.prompts.twostep_cot
    turns = (
        Message(role="assistant", content=possibilities),
        Message(role="user", content=prompts["distil"]),
    )
    return task.request(task.messages(prompts["possibilities"]) + turns, "distil")


def sample_and_summarize(task: Task) -> Strategy:
    """Draw samples, show them to the model, and ask it to merge them."""
    samples = yield from draw_samples(task)
    if not samples:
        return ""
    [reply] = yield _merge(task, len(samples), _list_form(task)(samples))
    return reply.text


def _list_form(task: Task) -> Callable[[Sequence[str]], str]:
    return LISTS[task.prompts.sample_and_summarize["list"]]


def _merge(task: Task, count: int, answers: str) -> Request:
    template = task.prompts.sample_and_summarize["user"]
    conversation = task.messages(template, n=str(count), answers=answers)
    return task.request(conversation, "summary")


def concatenated_answers(task: Task) -> Strategy:
    """List samples verbatim, as an informative but long summary."""
    samples = yield from draw_samples(task)
    return answer_list(samples)


def verbalized_sampling(task: Task) -> Strategy:
    """Ask for five answers with their probabilities (Zhang et al. 2025, arXiv 2510.01171)."""
    return (yield from _listed(task, task.prompts.verbalized_sampling["user"]))


def multi_answer(task: Task) -> Strategy:
    """Ask for up to three answers with the model's confidence in each (arXiv 2603.24844)."""
    return (yield from _listed(task, task.prompts.multi_answer["user"]))


def _listed(task: Task, template: str) -> Strategy:
    [reply] = yield task.request(task.messages(template), "summary")
    cut = reply.completions[0].finish == "length"
    return one_line_list(parse_listed(reply.text, cut))


def one_draw(function: StrategyFunction) -> StrategyFunction:
    """Sample a strategy's texts as answers are sampled, instead of decoding greedily."""

    def strategy(task: Task) -> Strategy:
        # a summary may be longer than an answer
        sampling = replace(task.sample_sampling, max_new_tokens=task.sampling.max_new_tokens)
        return function(dataclasses.replace(task, sampling=sampling))

    return strategy


STRATEGIES: dict[str, StrategyFunction] = {
    "greedy": greedy,
    "basic": basic,
    "cot": cot,
    "twostep_cot": twostep_cot,
    "sample_and_summarize": sample_and_summarize,
    "concatenated_answers": concatenated_answers,
    "verbalized_sampling": verbalized_sampling,
    "multi_answer": multi_answer,
}


SECOND_REQUESTS: dict[str, Callable[[Task], Request]] = {
    "twostep_cot": lambda task: _distil(task, "x"),
    "sample_and_summarize": lambda task: _merge(
        task, task.num_samples, _list_form(task)(["x"] * task.num_samples)
    ),
}
"""Second requests by strategy, with a letter in place of each text of the first response. Other strategies
make one request."""


def final_part(text: str, marker: str, cut: bool) -> str:
    """Return the text after the last ``marker``, ignoring case and bold type.

    A marker at the start of a line wins over one within a line. Without a marker, the final part is the last
    paragraph; but if the text was ``cut`` off before a marker line, or in one, there is none.
    """
    words = r"[ \t]+".join(map(re.escape, marker.strip().rstrip(":").split()))
    # a heading, a quote or emphasis may hold it
    starting_line = rf"^[ \t#>*_]*{words}[ \t*_]*(?::[ \t*_]*|$)"
    matches = list(re.finditer(starting_line, text, re.IGNORECASE | re.MULTILINE))
    if cut and not matches:
        return ""
    if not matches:
        matches = list(re.finditer(rf"(?<!\w){words}[ \t*_]*:[ \t*_]*", text, re.IGNORECASE))
    final = text[matches[-1].end() :] if matches else text.strip().rpartition("\n\n")[2]
    final = final.strip()
    if cut and any(_begins(marker, part) for part in (final, text.rstrip().rpartition("\n")[2])):
        return ""
    if final.count("**") % 2:  # bold that was opened before the marker
        final = final.removesuffix("**")
    return final


def _begins(marker: str, text: str) -> bool:
    """Check whether ``text`` is the beginning of a marker, bold or not."""
    words = " ".join(text.strip(" \t#>*_").split()).casefold()
    return bool(words) and marker.strip().casefold().startswith(words)
