"""What estimators read of a question: its classes, similarities and likelihoods."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from selfreflect.grouping import ordered_groups
from selfreflect.stats import Floats
from selfreflect.uncertainty import likelihoods
from selfreflect.uncertainty.classes import ClassRule, Labels, members_of
from selfreflect.uncertainty.hedges import Hedge, read_hedge
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue
from selfreflect.uncertainty.similarity import Similarity, rouge


class Samples:
    """What estimators read of one question, each part computed on first use."""

    def __init__(
        self,
        question: AnsweredQuestion,
        rule: ClassRule,
        similarity: Similarity,
        relevance: Similarity | None = None,
    ) -> None:
        self.question = question
        self._rule = rule
        self._similarity = similarity
        self.relevance = relevance
        """Similarity of sentences, by which tokens are weighed."""

    @cached_property
    def labels(self) -> Labels:
        """The class of each answer, shape (M,)."""
        return self._rule(self.question)

    @cached_property
    def modal_answer(self) -> str | None:
        """The most common spelling in the largest class; of equals the first that was sampled."""
        if not self.question.answers:
            return None
        groups = ordered_groups(self.question.answers, members_of(self.labels))
        return self.question.answers[groups[0][0]]

    @property
    def judged_answer(self) -> str | None:
        """The answer that is judged: the record's response, else the modal answer."""
        return self.modal_answer if self.question.answer is None else self.question.answer

    @cached_property
    def similarities(self) -> Floats:
        """Shape (M, M)."""
        return self._compared(self._similarity)

    @cached_property
    def rouge_similarities(self) -> Floats:
        """Shape (M, M)."""
        return self._compared(rouge)

    @cached_property
    def sequence_logprobs(self) -> Floats:
        """Sum over the tokens of each answer, shape (M,)."""
        return np.array(list(map(sum, self.question.logprobs or ())))

    @cached_property
    def mean_logprobs(self) -> Floats:
        """Mean over the tokens of each answer, shape (M,)."""
        return np.array([sum(tokens) / len(tokens) for tokens in self.question.logprobs or ()])

    @cached_property
    def token_sars(self) -> Floats:
        """Token SAR of each answer, shape (M,)."""
        assert self.relevance is not None  # estimate checks it
        values = []
        for tokens, logprobs in zip(self.question.tokens or (), self.question.logprobs or (), strict=True):
            without = [tokens[:place] + tokens[place + 1 :] for place in range(len(tokens))]
            texts = [f"{self.question.text} {''.join(part)}" for part in (tokens, *without)]
            relevance = 1 - self.relevance(texts)[0, 1:]
            values.append(likelihoods.token_sar(np.array(logprobs), relevance))
        return np.array(values)

    @cached_property
    def hedge(self) -> Hedge | NoValue:
        """The word of probability in the greedy answer, or in the judged one where that is not known."""
        text = self.judged_answer if self.question.greedy is None else self.question.greedy
        return read_hedge(text or "")

    def _compared(self, similarity: Similarity) -> Floats:
        """Compare each two distinct answers once."""
        distinct = list(dict.fromkeys(self.question.answers))
        place = {text: index for index, text in enumerate(distinct)}
        rows = [place[text] for text in self.question.answers]
        return similarity(distinct)[np.ix_(rows, rows)]
