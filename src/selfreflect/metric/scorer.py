"""The scores stage: a question, its answers and its summaries in, one :class:`Score` or :class:`Failure` per
summary out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from selfreflect.errors import ConfigError, DataError
from selfreflect.metric.engine.choose import engine_for
from selfreflect.metric.engine.logits import Guesses
from selfreflect.metric.engine.reference import Reference
from selfreflect.metric.engine.reference_cache import ReferenceCache, judge_key
from selfreflect.metric.engine.tree import Prompt, build_tree
from selfreflect.metric.prompts import CannotScoreError, QuestionPrompts, prepare, summary_prompts
from selfreflect.metric.sampling.estimation import sampled_mean
from selfreflect.metric.sampling.limits import Limits
from selfreflect.metric.sampling.population import Population
from selfreflect.metric.sampling.sequential import OverBudgetError, SequentialResult, SequentialScoring
from selfreflect.metric.tasks import JUDGE_TEMPERATURE
from selfreflect.records import (
    AnswerSet,
    Failure,
    Guess,
    Question,
    Sampled,
    Score,
    Summary,
    WordDistance,
    halves,
    question_id,
)
from selfreflect.stats import clustered_mean

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge

IDS_AT_ONCE = 500_000
"""Token ids at which the prompts of a group of summaries are enough. With trees and final states each takes
some 30 bytes."""


class SelfReflect:
    """The SelfReflect metric with one judge.

    >>> metric = SelfReflect(Judge.load("smollm2"))
    >>> scores = metric.score("What should I plant first?", answers=samples, summaries={"mine": "Most likely
    radishes, or lettuce."})
    >>> scores["mine"].value, scores["mine"].words

    Every masked word is scored unless a limit is set. Then a random subset is, the same for all summaries of
    a question, and what a :class:`Score` says is marked as an estimate by its ``estimate``; where the limit
    leaves no word out, the score is exact.

    >>> quick = SelfReflect(judge, limits=Limits.parse(20_000))  # judge tokens per question
    >>> quick = SelfReflect(judge, limits=Limits.parse("30s", race=0.95))

    Args:
        limits: when to stop scoring words; see :class:`~selfreflect.metric.sampling.limits.Limits`.
        guesses: keep for each token task this many of the judge's likeliest tokens after the summary, and
            after the conditioning answers.
        cache: a directory that keeps what the judge knows after the conditioning answers, so that one more
            summary of a question costs only itself; see
            :class:`~selfreflect.metric.engine.reference_cache.ReferenceCache`.
        warn: gets a sentence for people when the cache cannot be used.

    Raises:
        ConfigError: a setting makes no sense.
    """

    def __init__(
        self,
        judge: Judge,
        *,
        temperature: float = JUDGE_TEMPERATURE,
        limits: Limits | None = None,
        guesses: int = 0,
        cache: Path | None = None,
        warn: Callable[[str], object] = warnings.warn,
    ) -> None:
        if guesses < 0:
            raise ConfigError(f"the number of guesses to keep must be 0 or more, not {guesses}")
        if not temperature > 0:
            raise ConfigError(
                f"the judge's temperature must be above 0, not {temperature}; the metric's own is {JUDGE_TEMPERATURE}"
            )
        self.limits = limits
        self.judge = judge
        self.temperature = temperature
        if cache is not None and judge.last_states is not None:
            raise ConfigError(
                f"--cache keeps states of judges that run here: of {judge.name!r} nobody can tell whether its weights are still the same. "
                "Leave it out; vLLM has a cache of its own."
            )
        self.engine = engine_for(judge)
        self.guesses = guesses
        self.cache = (
            None if cache is None else ReferenceCache(cache, judge_key(judge, self.engine.head), warn=warn)
        )

    def score(
        self,
        question: str,
        *,
        summaries: Mapping[str, str],
        answers: Sequence[str] | None = None,
        masked_out: Sequence[str] | None = None,
        conditioning: Sequence[str] | None = None,
    ) -> dict[str, Score]:
        """Score summaries of one answer distribution: name -> :class:`Score`, 0 is perfect, 1 is worst.

        Args:
            answers: all samples; the first half is masked, the second half conditions.
            masked_out, conditioning: the two halves, instead of ``answers``.

        Raises:
            DataError: there is nothing to mask or to condition on, or a text does not fit the judge's window.
        """
        masked, told = _two_halves(answers, masked_out, conditioning)
        asked = Question(id=question_id(question), text=question)
        drawn = AnswerSet(question_id=asked.id, masked_out=masked, conditioning=told)
        named = [Summary(question_id=asked.id, name=name, text=text) for name, text in summaries.items()]
        scores = {}
        for result in self.score_records(asked, drawn, named):
            if isinstance(result, Failure):
                raise DataError(f"summary {result.name!r} cannot be scored: {result.message}")
            scores[result.summary] = result
        return scores

    def score_records(
        self,
        question: Question,
        answers: AnswerSet,
        summaries: Sequence[Summary],
        *,
        beside: Sequence[Score] = (),
    ) -> list[Score | Failure]:
        """Score every summary of one question; the reference context is computed once for all of them.

        A question that cannot be scored gives one Failure per summary, a summary that cannot be scored gives
        one of its own. ``beside`` are scores of the same question: no more words are scored than for the
            longest of them, so that all stay comparable.
        """
        try:
            task = prepare(self.judge, question, answers)
        except CannotScoreError as error:
            return [error.record(question, summary) for summary in summaries]
        found = (
            self._every_word(task, summaries)
            if self.limits is None
            else self._some_words(task, summaries, beside)
        )
        names = [
            summary.name for index, summary in enumerate(summaries) if not isinstance(found[index], Failure)
        ]
        results: list[Score | Failure] = []
        for index, summary in enumerate(summaries):
            measured = found[index]
            try:
                results.append(
                    measured
                    if isinstance(measured, Failure)
                    else self._record(summary, task, measured, names)
                )
            except CannotScoreError as error:
                results.append(error.record(question, summary))
        return results

    def _every_word(self, task: QuestionPrompts, summaries: Sequence[Summary]) -> dict[int, Found]:
        """All words under every summary, a few summaries at a time, so that memory does not grow with their
        number."""
        found: dict[int, Found] = {}
        every = range(len(task.words))
        reference = self._reference(task, every)
        for contexts in self._groups(task, summaries, found, IDS_AT_ONCE):
            found |= dict(
                zip(contexts, self._measure(task, reference, list(contexts.values()), every), strict=True)
            )
            contexts.clear()  # before those of the next group come
        return found

    def _some_words(
        self, task: QuestionPrompts, summaries: Sequence[Summary], beside: Sequence[Score]
    ) -> dict[int, Found]:
        """The words that the limits allow, the same under every summary."""
        assert self.limits is not None
        found: dict[int, Found] = {}
        contexts = next(self._groups(task, summaries, found, math.inf), {})
        prompts = list(contexts.values())
        population = _population(task, self.limits)
        earlier = [score.estimate.words_scored for score in beside if score.estimate]
        rounds = SequentialScoring(
            population,
            task.reference,
            prompts,
            self.limits,
            lambda words, live: self._measure(
                task, self._reference(task, words), [prompts[index] for index in live], words
            ),
            # an exact one has every word
            at_most=population.size_of(max(earlier)) if earlier and len(earlier) == len(beside) else None,
        )
        try:
            return found | dict(zip(contexts, rounds.run(), strict=True))
        except OverBudgetError as error:
            refused = CannotScoreError(
                "over_budget",
                f"a budget of {self.limits.tokens} tokens per question does not suffice for a single masked word: the reference and "
                f"{len(contexts)} summaries need up to {error.needed}",
            )
            return found | {index: refused.record(task.question, summaries[index]) for index in contexts}

    def _groups(
        self, task: QuestionPrompts, summaries: Sequence[Summary], failed: dict[int, Found], at_once: float
    ) -> Iterator[dict[int, list[Prompt]]]:
        """The prompts of some summaries by their index, until they have ``at_once`` token ids; equal texts
        together and encoded once.

        Why a summary has none goes into ``failed``: as a record, since an exception would keep its frames and
            all prompts in them.
        """
        places: dict[str, list[int]] = {}
        for index, summary in enumerate(summaries):
            places.setdefault(summary.text, []).append(index)
        group: dict[int, list[Prompt]] = {}
        ids = 0
        for indices in places.values():
            prompts: list[Prompt] = []
            for index in indices:
                try:
                    prompts = group[index] = prompts or summary_prompts(self.judge, task, summaries[index])
                except CannotScoreError as error:
                    failed[index] = error.record(task.question, summaries[index])
            ids += sum(len(prompt.ids) for prompt in prompts)
            if group and ids >= at_once:
                yield group
                group, ids = {}, 0
        if group:
            yield group

    def _measure(
        self,
        task: QuestionPrompts,
        reference: Reference,
        contexts: Sequence[Sequence[Prompt]],
        words: Sequence[int],
    ) -> list[Words]:
        """Distances of the given words under every context. Equal token tasks are computed once, and so are
        equal contexts."""
        distinct = [prompts for place, prompts in enumerate(contexts) if prompts not in contexts[:place]]
        compared = reference.compare([build_tree([prompts[word] for word in words]) for prompts in distinct])
        found = compared.distances(self.temperature)
        held = compared.guesses(self.temperature, self.guesses) if self.guesses else None
        measured = [
            tuple(
                WordDistance(
                    answer=task.words[word].answer,
                    word=task.words[word].word,
                    text=task.words[word].text,
                    distances=tuple(found[index][tasks, 0].tolist()),
                    guesses=tuple(self._spelled(held[index], place) for place in tasks) if held else (),
                )
                for word, tasks in zip(words, each, strict=True)
            )
            for index, each in enumerate(compared.tasks)
        ]
        return [measured[distinct.index(prompts)] for prompts in contexts]

    def _reference(self, task: QuestionPrompts, words: Sequence[int]) -> Reference:
        return Reference(
            self.engine, build_tree([task.reference[word] for word in words]), self.cache, task.context
        )

    def _spelled(self, held: Guesses, place: int) -> tuple[Guess, ...]:
        """One token task's guesses, each token once; probabilities to four significant digits, as there are
        many."""
        spelled = {}
        for token, probabilities in zip(
            held.tokens[place].tolist(), held.probabilities[place].tolist(), strict=True
        ):
            if token not in spelled:
                spelled[token] = Guess(
                    self.judge.chat.tokenizer.decode([token]), *(float(f"{p:.4g}") for p in probabilities)
                )
        return tuple(spelled.values())

    def _record(
        self,
        summary: Summary,
        task: QuestionPrompts,
        measured: SequentialResult | Words,
        names: Sequence[str],
    ) -> Score:
        words = (
            measured
            if isinstance(measured, tuple)
            else tuple(measured.words[index] for index in sorted(measured.words))
        )
        if not all(math.isfinite(distance) for word in words for distance in word.distances):
            advice = (
                "load it in another dtype"
                if self.judge.lm.dtype == "float16"
                else "its weights may be damaged"
            )
            raise CannotScoreError(
                "backend", f"the predictions of judge {self.judge.name!r} are not finite numbers; {advice}"
            )
        if isinstance(measured, SequentialResult) and len(words) < len(task.words):
            assert self.limits is not None
            value, stderr, means, estimate = _estimated(task, measured, self.limits, names)
        else:
            value, stderr, means, estimate = *_exact(words), None
        return Score(
            question_id=task.question.id,
            summary=summary.name,
            value=value,
            stderr=stderr,
            token_tasks=sum(len(word.distances) for word in words),
            judge=self.judge.name,
            judge_revision=self.judge.lm.revision,
            judge_dtype=self.judge.lm.dtype,
            temperature=self.temperature,
            compat=self.judge.compat,
            answer_means=tuple(means.get(index) for index in range(task.answers)),
            words=words,
            warnings=task.warnings,
            estimate=estimate,
        )


Answers = tuple[str, ...]

Words = tuple[WordDistance, ...]

Found = SequentialResult | Words | Failure
"""Of one summary: some of its words, all of them, or why there is no score."""


def _population(task: QuestionPrompts, limits: Limits) -> Population:
    return Population(task.words, task.sizes, limits.seed, task.question.id)


def _exact(words: Words) -> tuple[float, float | None, dict[int, float]]:
    """Score, standard error and the mean of each answer, from all words."""
    by_answer = {
        index: [d for word in group for d in word.distances]
        for index, group in groupby(words, key=lambda word: word.answer)
    }
    return *clustered_mean(list(by_answer.values())), {
        index: sum(values) / len(values) for index, values in by_answer.items()
    }


def _estimated(
    task: QuestionPrompts, outcome: SequentialResult, limits: Limits, names: Sequence[str]
) -> tuple[float, float | None, dict[int, float], Sampled]:
    """The same from some of the words, and how it was estimated."""
    population, values = _population(task, limits), outcome.values
    found = sampled_mean(population.drawn(outcome.size, values))
    facts = Sampled(
        words_scored=len(values),
        words_total=len(task.words),
        tokens_scored=sum(len(word.distances) for word in outcome.words.values()),
        tokens_total=sum(task.sizes),
        stderr=found.sampling_error,
        stopped=outcome.stopped,
        budget=limits.budget,
        standard_error=limits.standard_error,
        race=limits.race,
        seed=limits.seed,
        ordered=tuple(names[index] for index in sorted(outcome.ordered)),
    )
    return found.mean, found.stderr, population.answer_means(outcome.size, values), facts


def _two_halves(
    answers: Sequence[str] | None, masked_out: Sequence[str] | None, conditioning: Sequence[str] | None
) -> tuple[Answers, Answers]:
    given = [answers is not None, masked_out is not None, conditioning is not None]
    if given not in ([True, False, False], [False, True, True]):
        raise DataError("give either answers=..., or both masked_out=... and conditioning=...")
    if any(isinstance(value, str) for value in (answers, masked_out, conditioning)):
        raise DataError(
            "answers are a list of texts, not one text: every letter of it would count as an answer"
        )
    if answers is None:
        return tuple(masked_out or ()), tuple(conditioning or ())
    try:
        return halves(list(answers))
    except ValueError as error:
        raise DataError(str(error)) from None
