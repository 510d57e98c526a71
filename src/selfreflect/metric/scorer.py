"""The scores stage: a score or failure for each summary of a question and its answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, get_args

from msgspec.structs import replace

from selfreflect.errors import ConfigError, DataError, excerpt
from selfreflect.metric.engine.engines import engine_for
from selfreflect.metric.engine.logits import Reference
from selfreflect.metric.engine.tree import Prompt, build_tree
from selfreflect.metric.measure import Measures, Scored, TextLimits, Work
from selfreflect.metric.prompts import (
    JUDGE_TEMPERATURE,
    CannotScoreError,
    QuestionPrompts,
    conversation_tokens,
    encode_each,
    prepare,
    reference_context,
    summary_context,
    summary_prompts,
)
from selfreflect.metric.texts import pasted
from selfreflect.models.base import ModelSpec
from selfreflect.models.judge import Judge
from selfreflect.records import (
    AnswerSet,
    Control,
    Failure,
    Guess,
    Information,
    Question,
    ReaderChoice,
    Sampled,
    Score,
    Summary,
    WordDistance,
    question_id,
)
from selfreflect.stats import clustered_mean

if TYPE_CHECKING:
    from selfreflect.metric.engine.logits import Guesses
    from selfreflect.metric.inputs import Limits

MAX_IDS = 500_000
"""Maximum number of token ids in the prompts of a group of summaries, at about 30 bytes each."""

Words = tuple[WordDistance, ...]


@dataclass(frozen=True)
class Aggregate:
    """The score of one summary, computed from finite distances."""

    value: float
    stderr: float | None
    answer_means: Mapping[int, float]
    """Mean of each test answer with a scored word, by index."""
    words: tuple[WordDistance, ...]
    estimate: Sampled | None = None
    """Description of the estimate, if not all words were scored."""


def finite(words: Iterable[WordDistance]) -> bool:
    """Check that all distances of the words are finite."""
    return all(math.isfinite(distance) for word in words for distance in word.distances)


def exact(words: Sequence[WordDistance]) -> Aggregate:
    """Average over the token tasks of all words, with a standard error clustered by answer."""
    by_answer: dict[int, list[float]] = {}
    for word in words:
        by_answer.setdefault(word.answer, []).extend(word.distances)
    value, stderr = clustered_mean(list(by_answer.values()))
    means = {answer: sum(distances) / len(distances) for answer, distances in by_answer.items()}
    return Aggregate(value, stderr, means, tuple(words))


Outcomes = dict[str, Aggregate | Failure]
"""Results by summary text, so that equal texts are scored once. A Failure has no name yet."""


class SelfReflect:
    """The SelfReflect metric, computed by one judge.

    >>> metric = SelfReflect("smollm2")
    >>> scores = metric.score("What should I plant first?", answers=samples, summaries={"mine": "Radishes."})
    >>> scores["mine"].value, scores["mine"].recovered

    Every masked word is scored unless a limit, such as ``Limits.parse("20000")``, is set. Then a
    random subset is, the same for all summaries of a question; such a :class:`Score` is marked by its
    ``estimate``. If the limit leaves no word out, the score is exact.

    Args:
        judge: a judge, or the name of one, which is loaded as by :meth:`Judge.load`.
        limits: when to stop scoring words; see :class:`~selfreflect.metric.inputs.Limits`.
        guesses: keep for each token task this many of the judge's likeliest tokens after the summary, and
            after the reference answers.
        reader: who reads the summaries when :meth:`score` measures their usable information, see
            :func:`~selfreflect.metric.information.choose_reader`. None: it is not measured. Under limits,
            and for controls, use :class:`~selfreflect.metric.measure.Measures`.

    Raises:
        ConfigError: a setting makes no sense.
        JudgeError: the judge cannot be loaded.
    """

    def __init__(
        self,
        judge: Judge | str | ModelSpec,
        *,
        temperature: float = JUDGE_TEMPERATURE,
        limits: Limits | None = None,
        guesses: int = 0,
        reader: ReaderChoice | None = "auto",
    ) -> None:
        if not isinstance(guesses, int) or guesses < 0:
            raise ConfigError(f"the number of guesses to keep must be 0 or more, not {guesses!r:.60}")
        if isinstance(temperature, bool) or not isinstance(temperature, int | float) or not temperature > 0:
            raise ConfigError(
                f"the judge's temperature must be above 0, not {temperature!r:.60}; "
                f"the metric's is {JUDGE_TEMPERATURE}"
            )
        if limits is not None:
            from selfreflect.metric.inputs import Limits

            if not isinstance(limits, Limits):
                raise ConfigError(f"limits must be made like Limits.parse('20000'), not {excerpt(limits)}")
        if reader is not None and reader not in get_args(ReaderChoice):
            raise ConfigError(
                f"reader must be {', '.join(get_args(ReaderChoice))} or None, not {excerpt(reader)}"
            )
        # checked after the settings, because loading takes seconds
        if isinstance(judge, str | ModelSpec):
            judge = Judge.load(judge)
        if not isinstance(judge, Judge):
            raise ConfigError(
                f"a judge must be a name, or made like Judge.load('smollm2'), not {excerpt(judge)}"
            )
        self.judge = judge
        self.temperature = temperature
        self.limits = limits
        self.guesses = guesses
        # dividing a budget between two measures is the work of Measures
        self.reader: ReaderChoice | None = reader if limits is None else None
        self.engine = engine_for(judge)
        self.on_begin: Callable[[int], object] = lambda tokens: None
        """Callback with the number of tokens that the judge is about to read for exact scores."""

    def __repr__(self) -> str:
        return f"SelfReflect({self.judge!r}, temperature={self.temperature:g})"

    def score(
        self,
        question: str,
        *,
        summaries: Mapping[str, str] | Sequence[str],
        answers: Sequence[str] | None = None,
        masked_out: Sequence[str] | None = None,
        conditioning: Sequence[str] | None = None,
        seed: int = 0,
    ) -> dict[str, Score]:
        """Score summaries of one answer distribution as name -> :class:`Score`; 0 is perfect, 1 is worst.

        ``score.recovered`` is the share that the summary tells of what the reference answers would, and
        ``score.words[i].bits`` what it tells about a word.

        Args:
            summaries: texts by name. One text is named ``summary``, the texts of a list ``summary_1``, …
            answers: all samples. They are shuffled; then the first half is masked, the second conditions.
            masked_out, conditioning: the two halves, instead of ``answers``. They keep their order.
            seed: decides, with the question, how ``answers`` are shuffled.

        Raises:
            DataError: there is nothing to mask or to condition on, a text does not fit the judge's window, or
                an argument is not what it should be.
        """
        from selfreflect.metric.inputs import checked_question, named_texts, two_halves

        # scores of Python and of a run directory agree: the same id shuffles the same way
        record = Question(id=question_id(checked_question(question)), text=question)
        answer_set = two_halves(record.id, answers, masked_out, conditioning, seed)
        summaries = named_texts(summaries)
        summary_records = [
            Summary(question_id=record.id, name=name, text=text) for name, text in summaries.items()
        ]
        names = ["selfreflect"] if self.reader is None else ["selfreflect", "information"]
        measures = Measures(self, wanted_names=names, controls=False, reader=self.reader or "auto")
        scores = {}
        for result in measures.measure(record, answer_set, summary_records):
            # the caller named this text, so an exception says at once what a run would store as a failure
            if isinstance(result, Failure):
                raise DataError(f"summary {result.name!r} cannot be scored: {result.message}")
            # the scores come first, in the order of the table of measures
            if isinstance(result, Score):
                scores[result.summary] = result
            elif isinstance(result, Information):
                scores[result.summary] = scores[result.summary].with_information(result)
        return scores

    def score_records(
        self,
        question: Question,
        answers: AnswerSet,
        summaries: Sequence[Summary],
        *,
        other_scores: Sequence[Score] = (),
        limits: Limits | None = None,
    ) -> list[Score | Failure]:
        """Score every summary of one question, with a Failure for each that cannot be scored.

        Args:
            other_scores: scores of other summaries of the question. Under limits, no more words are scored
                than the longest of them has, so that all stay comparable.
            limits: the rest of the metric's own limits, if some of them is used up.
        """
        limits = limits or self.limits
        try:
            prompts = prepare(self.judge, question, answers)
        except CannotScoreError as error:
            # without the reference no summary has anything to be compared with
            return [error.failure(question, summary.name) for summary in summaries]
        if limits is None:
            outcomes = self._score_every_word(prompts, summaries)
        else:
            outcomes = self._score_some_words(prompts, summaries, limits, other_scores)
        results: list[Score | Failure] = []
        for summary in summaries:
            outcome = outcomes[summary.text]
            if isinstance(outcome, Failure):
                results.append(replace(outcome, name=summary.name))
            else:
                results.append(self._record(prompts, summary, outcome))
        return results

    def _score_every_word(self, prompts: QuestionPrompts, summaries: Sequence[Summary]) -> Outcomes:
        """Score all words in groups of summaries, so that memory stays constant."""
        reference = self._reference(prompts, range(len(prompts.words)))
        # a summary is about as long as the reference answers at most
        ids = sum(len(prompt.ids) for prompt in prompts.reference)
        # the prompts of every word under every summary would be gigabytes for long answers
        group = max(1, MAX_IDS // ids)
        # equal texts are read once
        texts = list(dict.fromkeys(summary.text for summary in summaries))
        outcomes: Outcomes = {}
        for start in range(0, len(texts), group):
            outcomes |= self._score_group(prompts, reference, texts[start : start + group])
        return outcomes

    def _score_group(self, prompts: QuestionPrompts, reference: Reference, texts: Sequence[str]) -> Outcomes:
        contexts, outcomes = self._encode(prompts, texts)
        distances = self._measure(prompts, reference, contexts, range(len(prompts.words)))
        for text, words in distances.items():
            outcomes[text] = exact(words) if finite(words) else self._not_finite(prompts)
        return outcomes

    def _encode(
        self, prompts: QuestionPrompts, texts: Sequence[str]
    ) -> tuple[dict[str, list[Prompt]], Outcomes]:
        """Encode prompts for each text, and make failures for texts that cannot be encoded."""
        contexts, errors = encode_each(texts, partial(summary_prompts, self.judge, prompts))
        return contexts, {text: error.failure(prompts.question) for text, error in errors.items()}

    def _score_some_words(
        self,
        prompts: QuestionPrompts,
        summaries: Sequence[Summary],
        limits: Limits,
        other_scores: Sequence[Score],
    ) -> Outcomes:
        """Score as many words as the limits allow, the same words for every summary."""
        from selfreflect.metric.sampling import OverBudgetError, Population, estimate, size_within_budget

        # encoded before words are drawn: what a sample may cost is bounded on these prompts
        contexts, outcomes = self._encode(prompts, [summary.text for summary in summaries])
        texts = [summary.text for summary in summaries if summary.text in contexts]
        if not texts:
            return outcomes
        # words are drawn once for the question, so that summaries are compared on the same ones
        population = Population(prompts.words, prompts.sizes, limits.seed, prompts.question.id)
        # a summary that is added later gets no more words than the first ones had
        counts = [
            score.estimate.words_scored if score.estimate else population.words for score in other_scores
        ]
        largest = population.size_within(max(counts, default=population.words))
        every_context = [prompts.reference, *(contexts[text] for text in texts)]
        try:
            size = size_within_budget(population, every_context, limits.tokens, largest)
        except OverBudgetError as error:
            budget = (self.limits or limits).tokens
            refusal = CannotScoreError(
                "over_budget",
                f"a budget of {budget} tokens per question is not enough for a single masked word: "
                f"the reference and {len(texts)} summaries need up to {error.needed}",
            )
            # summaries without prompts keep the reason that they have
            return outcomes | dict.fromkeys(contexts, refusal.failure(prompts.question))
        indices = population.indices(size)
        distances = self._measure(prompts, self._reference(prompts, indices), contexts, indices)
        for text, words in distances.items():
            if not finite(words):
                outcomes[text] = self._not_finite(prompts)
            # a budget that left nothing out gives the exact score, not an estimate
            elif size == population.size:
                outcomes[text] = exact(words)
            else:
                mean, answer_means, sample = estimate(words, population, size, limits)
                if size == largest:
                    sample = replace(sample, stopped="paired")
                outcomes[text] = Aggregate(mean.mean, mean.stderr, answer_means, words, sample)
        return outcomes

    def _reference(self, prompts: QuestionPrompts, words: Sequence[int]) -> Reference:
        tree = build_tree([prompts.reference[word] for word in words])
        return Reference(self.engine, tree)

    def _measure(
        self,
        prompts: QuestionPrompts,
        reference: Reference,
        contexts: Mapping[str, list[Prompt]],
        words: Sequence[int],
    ) -> dict[str, Words]:
        if not contexts:
            return {}
        trees = []
        for context in contexts.values():
            trees.append(build_tree([context[word] for word in words]))
        if self.limits is None:
            to_read = reference.to_compute + sum(tree.computed_tokens for tree in trees)
            self.on_begin(to_read)
        comparison = reference.compare(trees)
        distances = comparison.distances(self.temperature)
        guesses = comparison.guesses(self.temperature, self.guesses) if self.guesses else []
        by_text = {}
        for index, text in enumerate(contexts):
            word_distances = []
            for word, tasks in zip(words, comparison.tasks[index], strict=True):
                masked = prompts.words[word]
                word_distances.append(
                    WordDistance(
                        answer=masked.answer,
                        word=masked.word,
                        text=masked.text,
                        distances=tuple(distances[index][tasks].tolist()),
                        guesses=tuple(self._spell(guesses[index], row) for row in tasks) if guesses else (),
                    )
                )
            by_text[text] = tuple(word_distances)
        return by_text

    def _spell(self, guesses: Guesses, row: int) -> tuple[Guess, ...]:
        """Decode the guesses of one token task, without repeated tokens, and round their probabilities."""
        by_token: dict[int, Guess] = {}
        for token, probabilities in zip(guesses.tokens[row], guesses.probabilities[row], strict=True):
            if token not in by_token:
                text = self.judge.chat.tokenizer.decode([int(token)])
                by_token[token] = Guess(text, *(float(f"{p:.4g}") for p in probabilities))
        return tuple(by_token.values())

    def _not_finite(self, prompts: QuestionPrompts) -> Failure:
        advice = "its weights may be damaged"
        # float16 ends at 65,504, which activations of some models exceed
        if self.judge.lm.dtype == "float16":
            advice = "load it in another dtype"
        message = f"the predictions of judge {self.judge.name!r} are not finite numbers; {advice}"
        return CannotScoreError("backend", message).failure(prompts.question)

    def _record(self, prompts: QuestionPrompts, summary: Summary, outcome: Aggregate) -> Score:
        return Score(
            question_id=prompts.question.id,
            summary=summary.name,
            value=min(outcome.value, 1.0),  # a mean of ones may be rounded up
            stderr=outcome.stderr,
            token_tasks=sum(len(word.distances) for word in outcome.words),
            **self.judge.origin,
            temperature=self.temperature,
            compat=self.judge.compat,
            answer_means=tuple(map(outcome.answer_means.get, range(prompts.answer_count))),
            words=outcome.words,
            warnings=prompts.warnings,
            estimate=outcome.estimate,
        )


def score_work(metric: SelfReflect) -> Callable[[Work], Scored]:
    """Return a function that scores one question's summaries and the two anchors."""

    def score(work: Work) -> Scored:
        texts = _anchors(work)
        question_id = work.question.id
        anchors = [Summary(question_id=question_id, name=text, text=text) for text in texts.values()]
        # the anchors ride along, so that the reference is read once
        records = metric.score_records(
            work.question,
            work.answers,
            [*work.summaries, *anchors],
            other_scores=work.other_records,
            limits=work.limits,
        )
        count = len(work.summaries)
        values = [record.value if isinstance(record, Score) else None for record in records[count:]]
        controls = dict(zip(texts, values, strict=True))
        return Scored(records[:count], controls, {"temperature": metric.temperature})

    return score


def _anchors(work: Work) -> dict[Control, str]:
    """List the control texts that get scores: nothing, and all answers with their repetitions."""
    # controls of fewer pasted answers have bits, but no score
    largest = max((control.answers for control, _ in work.controls), default=0)
    texts = {}
    for control, _ in work.controls:
        if control.name == "empty":
            texts[control] = ""
        elif control.answers == largest > 0:
            texts[control] = pasted(work.answers.conditioning)
    return texts


def nodes_of_work(judge: Judge, work: Work) -> int:
    """Count the judge tokens for scoring summaries and anchors; 0 if that is impossible."""
    texts = [*(summary.text for summary in work.summaries), *_anchors(work).values()]
    return sum(tree_nodes(judge, work.question, work.answers, texts)) if texts else 0


def tree_nodes(judge: Judge, question: Question, answers: AnswerSet, texts: Sequence[str]) -> list[int]:
    """Count the tree nodes of the reference answers, then of each distinct text that can be scored.

    Empty if the question cannot be scored.
    """
    try:
        prompts = prepare(judge, question, answers)
    except CannotScoreError:
        return []
    contexts = [prompts.reference]
    encoded, _ = encode_each(texts, partial(summary_prompts, judge, prompts))
    for prompts_of_text in encoded.values():
        if prompts_of_text not in contexts:
            contexts.append(prompts_of_text)
    return [build_tree(context).computed_tokens for context in contexts]


def most_nodes(judge: Judge, limits: TextLimits) -> int:
    """Compute an upper bound on the tree nodes of a question whose texts are not written yet.

    No two masked words are taken to share more than what precedes their task. Each costs the task with its
    answer, in which one ``_`` takes the place of the word, and all tokens of the word but the last: at most
    the tokens of the task and of one answer. An answer of L tokens has L words at most.
    """
    question = limits.question.text
    letters = ["x"] * len(limits.reference_answers)
    length_of_answers = sum(limits.reference_answers)
    contexts = [(reference_context(question, letters), length_of_answers)]
    contexts += [(summary_context(question, "x"), length) for length in limits.summaries]
    if limits.controls:
        anchors = ("", pasted(letters))
        contexts += [(summary_context(question, text), length_of_answers) for text in anchors]
    bound = 0
    for context, length in contexts:
        # "_" stands for the masked answer here, whose tokens are added
        conversation = context.conversation("_")
        per_task = conversation_tokens(judge, conversation[-1:])
        bound += conversation_tokens(judge, conversation) + length
        bound += sum(tokens * (per_task + tokens) for tokens in limits.test_answers)
    return bound
