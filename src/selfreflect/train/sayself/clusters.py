"""Clusters of sampled answers, with shares as confidences, and reflections on disagreement."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from msgspec import Meta

from selfreflect.models.base import Message
from selfreflect.prompts import bundled_texts
from selfreflect.records import PositiveCount, Record
from selfreflect.store.journal import ModelReplies
from selfreflect.text import fill, quoted
from selfreflect.train.sayself.statement import SURE, asked, has_marker, parse_statement
from selfreflect.uncertainty.asking.asker import Asker, Inquiry
from selfreflect.uncertainty.classes import ClassRule, members_of
from selfreflect.uncertainty.correctness import Correctness
from selfreflect.uncertainty.question import AnsweredQuestion

Choice = Literal["gold", "majority"]
"""Choice of the cluster to train on: the one with the right answer, or the largest."""


class Cluster(Record, frozen=True, kw_only=True):
    """A question's answers with the same meaning."""

    answer: str
    """Answer of the first response, which represents all."""
    reasoning: str = ""
    """Reasoning of the first response before its answer."""
    size: PositiveCount
    correct: bool | None = None
    """Correctness of the statements; None without a right answer."""


class ClusteredQuestion(Record, frozen=True, kw_only=True):
    """A question with its clusters, largest first and ties in order of occurrence."""

    id: str
    question: str
    context: str = ""
    gold: tuple[str, ...] = ()
    clusters: Annotated[tuple[Cluster, ...], Meta(min_length=1)]

    @property
    def asked(self) -> str:
        """The question as a trained model sees it, after any context."""
        return asked(self.question, self.context)

    @property
    def num_answers(self) -> int:
        return sum(cluster.size for cluster in self.clusters)

    def choose(self, choice: Choice) -> Cluster | None:
        """Choose the cluster to answer with; None for ``gold`` without a correct one."""
        if choice == "majority":
            return self.clusters[0]
        return next((cluster for cluster in self.clusters if cluster.correct), None)

    def share(self, cluster: Cluster) -> float:
        """Compute the cluster's share of the answers."""
        return cluster.size / self.num_answers


def tenths(share: float, minimum: int = 1) -> int:
    """Round a share to tenths, half up, but at least ``minimum``."""
    return max(minimum, int(share * 10 + 0.5))


def answer_parts(question: AnsweredQuestion) -> AnsweredQuestion:
    """Keep only the answer part of each response, without reasoning."""
    answers = tuple(parse_statement(text).answer or text for text in question.answers)
    return replace(question, answers=answers)


def cluster_answers(
    questions: Sequence[AnsweredQuestion], rule: ClassRule, correctness: Correctness
) -> list[ClusteredQuestion]:
    """Cluster the answers of each question by ``rule``.

    The published code clusters greedily: the first response that is left leads a cluster of all whose
    embedding is close to its own. That is the rule ``embedding:0.9`` in the order ``first``.

    Raises:
        BackendError, MissingExtraError: as the rule does.
    """
    plain = list(map(answer_parts, questions))
    rule.prepare(plain)
    groups = [members_of(rule(parts)) for parts in plain]
    labelled, leaders = [], []
    for parts, members in zip(plain, groups, strict=True):
        labelled += [parts] * len(members)
        leaders += [parts.answers[group[0]] for group in members]
    # one call for all, so that a model that decides gets them in one batch
    labels = iter(correctness.label_all(labelled, leaders))
    clustered = []
    for question, parts, members in zip(questions, plain, groups, strict=True):
        clusters = []
        for group in members:
            cluster = Cluster(
                answer=parts.answers[group[0]],
                reasoning=parse_statement(question.answers[group[0]]).reasoning,
                size=len(group),
                correct=next(labels),
            )
            clusters.append(cluster)
        clusters.sort(key=lambda cluster: -cluster.size)  # stable: of equal ones the first
        clustered.append(
            ClusteredQuestion(
                id=question.id,
                question=question.text,
                context=question.context,
                gold=question.gold,
                clusters=tuple(clusters),
            )
        )
    return clustered


def prompts() -> Mapping[str, Mapping[str, str]]:
    """Load the prompts by purpose."""
    return bundled_texts("sayself_prompts.toml")


def user_message(name: str, values: Mapping[str, str]) -> Message:
    """Fill in the prompt ``name``."""
    return Message(role="user", content=fill(prompts()[name]["user"], values).strip())


def listed_clusters(question: ClusteredQuestion) -> str:
    """List one answer per cluster with its share."""
    lines = []
    for number, cluster in enumerate(question.clusters, start=1):
        lines.append(f"{number}. {quoted(cluster.answer)} (share {question.share(cluster):.0%})")
    return "\n".join(lines)


MAX_SENTENCES = 3
FEWEST_WORDS = 6
MAX_TOKENS = 96

_SENTENCE = re.compile(r"[^.!?]+(?:[.!?]+|$)")
_FIRST_PERSON = re.compile(r"\b(?:I|I'm|I've|I'd|my|me|myself)\b")
_NUMBER_WORDS = (
    "two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred half"
)
# What a reflection must not mention: numbers, and that there were samples
_LEAKS = re.compile(
    rf"\d+|%|\b(?:{'|'.join(_NUMBER_WORDS.split())}|per\s?cent(?:ages?)?|probabilit\w+|shares?|"
    r"confidence scores?|samples?|sampled|clusters?|frequen\w+|(?:these|those|different|possible|other) "
    r"(?:answers|responses)|responses?|the list)\b",
    re.IGNORECASE,
)

Origin = Literal[
    "fixed",  # all answers agree
    "model",
    "repaired",  # some sentences were left out
    "second",  # the model was asked again
    "dropped",  # nothing usable was written
]


class Rationale(Record, frozen=True, kw_only=True):
    """Reflection on doubts about a question; empty if ``dropped``."""

    question_id: str
    text: str
    origin: Origin
    problem: str = ""
    """Problem of the first text, if any."""


def find_problem(text: str) -> str:
    """Explain why a text is not a valid reflection; empty if it is."""
    sentences = _sentences(text)
    if not sentences:
        return "it is blank"
    if len(sentences) > MAX_SENTENCES:
        return f"it has {len(sentences)} sentences, but only {MAX_SENTENCES} are allowed"
    if has_marker(text):
        return "it contains a marker of the statement, such as 'Confidence:'"
    leak = _LEAKS.search(text)
    if leak:
        return f"it mentions {leak[0].lower()!r}"
    if len(text.split()) < FEWEST_WORDS:
        return f"it has fewer than {FEWEST_WORDS} words"
    if not _FIRST_PERSON.search(text):
        return "it is not in the first person"
    return ""


def repair(text: str) -> str:
    """Drop sentences that leak samples or hold chat markers, and keep the first ones of the rest; empty if
    these are not a valid reflection."""
    sentences = [
        sentence for sentence in _sentences(text) if not (_LEAKS.search(sentence) or has_marker(sentence))
    ]
    shorter = " ".join(sentences[:MAX_SENTENCES])
    return "" if find_problem(shorter) else shorter


def _sentences(text: str) -> list[str]:
    return [sentence.strip() for sentence in _SENTENCE.findall(" ".join(text.split())) if sentence.strip()]


def write_rationales(questions: Sequence[ClusteredQuestion], asker: Asker) -> list[Rationale]:
    """Write a rationale per question, asking a model about questions with several clusters.

    A text that leaks numbers or samples loses those sentences. Where nothing is left, the model is asked once
    more, in other words; then the question is dropped.

    Raises:
        BackendError: the model has stopped working. Its replies are kept.
    """
    unsure = [question for question in questions if len(question.clusters) > 1]
    first = asker.ask(list(map(_inquiry, unsure)))
    rationales = {
        question.id: _judged(question, reply) for question, reply in zip(unsure, first, strict=True)
    }
    again = [question for question in unsure if rationales[question.id].origin == "dropped"]
    second = asker.ask(list(map(_second_inquiry, again)))
    for question, reply in zip(again, second, strict=True):
        first_try = rationales[question.id]
        second_try = _judged(question, reply)
        if second_try.origin != "dropped":
            rationales[question.id] = Rationale(
                question_id=question.id, text=second_try.text, origin="second", problem=first_try.problem
            )
    for question in questions:
        if question.id not in rationales:
            rationales[question.id] = Rationale(question_id=question.id, text=SURE, origin="fixed")
    return [rationales[question.id] for question in questions]


def _judged(question: ClusteredQuestion, reply: ModelReplies) -> Rationale:
    if reply.failure is not None:
        problem = f"the model gave no reply ({reply.failure})"
        return Rationale(question_id=question.id, text="", origin="dropped", problem=problem)
    text = reply.texts[0]
    if reply.finishes[0] == "length":  # its last sentence is not whole
        text = text[: max(map(text.rfind, ".!?"), default=-1) + 1]
    text = " ".join(text.split())
    problem = find_problem(text)
    if not problem:
        return Rationale(question_id=question.id, text=text, origin="model")
    shorter = repair(text)
    origin: Origin = "repaired" if shorter else "dropped"
    return Rationale(question_id=question.id, text=shorter, origin=origin, problem=problem)


def _inquiry(question: ClusteredQuestion) -> Inquiry:
    values = {
        "question": quoted(question.asked),
        "responses": listed_clusters(question),
    }
    return Inquiry("rationale", (user_message("rationale", values),), max_new_tokens=MAX_TOKENS)


def _second_inquiry(question: ClusteredQuestion) -> Inquiry:
    answers = " and ".join(quoted(cluster.answer) for cluster in question.clusters[:2])
    values = {"question": quoted(question.asked), "answers": answers}
    return Inquiry("second rationale", (user_message("rationale_again", values),), max_new_tokens=MAX_TOKENS)
