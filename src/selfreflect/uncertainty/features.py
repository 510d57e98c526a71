"""Features for estimators: class shares, token likelihoods and probability phrases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache, wraps
from typing import Any, NamedTuple

import numpy as np

from selfreflect.grouping import ordered_groups
from selfreflect.logprobs import AnswerTokens
from selfreflect.stats import Floats
from selfreflect.text import UNSPACED
from selfreflect.uncertainty.asking.asker import Hedge, read_hedge
from selfreflect.uncertainty.classes import ClassRule, Labels, members_of
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue
from selfreflect.uncertainty.relations import Similarity, rouge

HEAT_TIME = 0.3
"""Time of the heat kernel."""
_ROUNDING = 1e-9
_SMALL_EIGENVALUE = 0.9
# Bytes of labels or similarities that are remembered, such as those of 16 samples, and how many of them.
_SMALL = 2048
REMEMBERED = 2048


def _remembered(compute: Callable[[Any], float]) -> Callable[[Any], float]:
    """Cache a function's values for small arrays, which often repeat."""

    # arrays cannot be keys of a cache; their bytes and shape can
    @lru_cache(maxsize=REMEMBERED)
    def of_bytes(data: bytes, shape: tuple[int, ...], kind: np.dtype[Any]) -> float:
        return compute(np.frombuffer(data, kind).reshape(shape))

    @wraps(compute)
    def recalled(array: np.ndarray) -> float:
        if array.nbytes > _SMALL:
            return compute(array)
        return of_bytes(array.tobytes(), array.shape, array.dtype)

    return recalled


@_remembered
def modal_share(labels: Labels) -> float:
    """Compute the share of the largest class.

    Too high for few samples: two equal classes give 0.62 of 10 samples.
    """
    return float(np.bincount(labels).max()) / len(labels)


@_remembered
def split_half_share(labels: Labels) -> float:
    """Compute the share in one half of the other half's largest class, averaged both ways. Unlike the modal
    share, it is not inflated by few samples. Needs two samples."""
    middle = len(labels) // 2
    size = int(labels.max()) + 1
    first, second = (np.bincount(half, minlength=size) for half in (labels[:middle], labels[middle:]))
    shares = []
    for choosing, reading in ((first, second), (second, first)):
        largest = choosing == choosing.max()
        shares.append(float(reading[largest].mean()) / int(reading.sum()))
    return (shares[0] + shares[1]) / 2


@_remembered
def entropy(labels: Labels) -> float:
    """Compute the discrete semantic entropy of class shares, in nats (Farquhar et al. 2024, Nature 630).

    Too low for few samples: four equal classes give 1.22 of 10 samples instead of 1.39.
    """
    shares = np.bincount(labels) / len(labels)
    shares = shares[shares > 0]
    return abs(float((shares * np.log(shares)).sum()))


def entropy_miller_madow(labels: Labels) -> float:
    """Compute the discrete semantic entropy plus (K - 1) / 2M, to correct its bias (Miller 1955)."""
    return entropy(labels) + (len(np.unique(labels)) - 1) / (2 * len(labels))


@_remembered
def number_of_classes(labels: Labels) -> float:
    """Count the classes."""
    return float(len(np.unique(labels)))


@_remembered
def mean_similarity(similarities: Floats) -> float:
    """Compute the mean lexical similarity over pairs of different samples. Needs two samples."""
    pairs = np.triu_indices(len(similarities), 1)
    return float(similarities[pairs].mean())


@_remembered
def eigenvalue_sum(similarities: Floats) -> float:
    """Compute EigV, the sum of max(0, 1 - eigenvalue) of the graph Laplacian (Lin et al. 2024, arXiv
    2305.19187)."""
    values = np.linalg.eigvalsh(_laplacian(similarities))
    return float(np.maximum(0, 1 - values).sum())


@_remembered
def degree(similarities: Floats) -> float:
    """Compute Deg, the mean distance of all pairs including each sample with itself (Lin et al. 2024)."""
    return float(1 - similarities.mean())


@_remembered
def eccentricity(similarities: Floats) -> float:
    """Compute Ecc, the samples' distance from their centre in the Laplacian eigenvectors whose eigenvalues
    are below 0.9 by more than 1e-9 (Lin et al. 2024)."""
    values, vectors = np.linalg.eigh(_laplacian(similarities))
    # the eigenvectors of small eigenvalues hold the clusters
    embedded = vectors[:, values < _SMALL_EIGENVALUE - _ROUNDING]
    # rounded, because what is 0 exactly comes out as one of many numbers near 1e-16
    return round(float(np.linalg.norm(embedded - embedded.mean(0))), 10)


@_remembered
def kernel_entropy(similarities: Floats) -> float:
    """Compute kernel language entropy: the heat kernel's von Neumann entropy as a share of ln M (Nikitin et
    al. 2024, arXiv 2405.20003). Needs two samples.

    lm-polygraph computes it with L = W - D, which exchanges warm and cold.
    """
    laplacian = np.diag(similarities.sum(1)) - similarities
    values, vectors = np.linalg.eigh(laplacian)
    # exp(-t L), by the eigenvalues of L
    kernel = (vectors * np.exp(-HEAT_TIME * values)) @ vectors.T
    scale = 1 / np.sqrt(np.diag(kernel))
    weights = np.linalg.eigvalsh(scale[:, None] * kernel * scale) / len(kernel)
    weights = weights[weights > 0]
    return abs(float((weights * np.log(weights)).sum())) / float(np.log(len(kernel)))


def _laplacian(similarities: Floats) -> Floats:
    """Compute the normalised Laplacian I - D^(-1/2) W D^(-1/2) with degrees D."""
    # scaled by the degrees, so that eigenvalues lie between 0 and 2
    scale = 1 / np.sqrt(similarities.sum(1))
    laplacian: Floats = np.eye(len(similarities)) - scale[:, None] * similarities * scale
    return laplacian


SAR_TEMPERATURE = 0.001


def predictive_entropy(sequence: Floats) -> float:
    """Compute the mean negative log-likelihood of the answers (Malinin and Gales 2021, arXiv 2002.07650),
    length-normalised for ``mean``."""
    return -float(sequence.mean())


def semantic_entropy(mean: Floats, labels: Labels) -> float:
    """Compute the entropy of normalised class masses exp(mean log-probability) (Farquhar et al. 2024, Nature
    630)."""
    masses = _class_log_masses(mean, labels)
    logs = masses - np.logaddexp.reduce(masses)
    return abs(float((np.exp(logs) * logs).sum()))


def semantic_entropy_monte_carlo(sequence: Floats, labels: Labels, distinct: Sequence[int]) -> float:
    """Average the negative log mass of each sample's class, unnormalised (lm-polygraph with
    ``use_unique_responses``).

    Args:
        sequence: whole-sequence log-probabilities, shape (M,).
        labels: class of each sample, shape (M,).
        distinct: index of one sample of each text. Masses are sums over these, since the probability of a
            text that was drawn twice is not twice as large.
    """
    return abs(float(_class_log_probabilities(sequence, labels, distinct)[labels].mean()))


def semantic_entropy_direct(sequence: Floats, labels: Labels, distinct: Sequence[int]) -> float:
    """Sum -p log p of each sample's class, which counts a class once per member. Kept for comparison with
    tools that compute it so; arguments as in :func:`semantic_entropy_monte_carlo`."""
    logs = _class_log_probabilities(sequence, labels, distinct)[labels]
    return abs(float((np.exp(logs) * logs).sum()))


def sentence_sar(sequence: Floats, similarities: Floats) -> float:
    """Compute sentence SAR, which adds similar answers' weighted probabilities to each answer's (Duan et al.
    2024, arXiv 2307.01379). May be negative."""
    # the log of a similarity of 0 is -inf, which adds nothing to the sum
    with np.errstate(divide="ignore"):
        # an answer supports itself with weight 1, whose log is 0
        weights = np.log(similarities / SAR_TEMPERATURE)
    np.fill_diagonal(weights, 0)
    return -float(np.logaddexp.reduce(weights + sequence, axis=1).mean())


def token_sar(logprobs: Floats, relevance: Floats) -> float:
    """Compute token SAR of one answer: negative log-probabilities weighted by token relevance.

    Args:
        logprobs: shape (T,).
        relevance: 1 - similarity of the answer with and without the token; shape (T,). All 0 weighs equally.
    """
    total = relevance.sum()
    weights = relevance / total if total > 0 else np.full(len(relevance), 1 / len(relevance))
    return -float((weights * logprobs).sum())


def sar(token_sars: Sequence[float] | Floats, similarities: Floats) -> float:
    """Compute sentence SAR from probabilities exp(-token SAR)."""
    return sentence_sar(-np.asarray(token_sars, dtype=np.float64), similarities)


def _class_log_probabilities(sequence: Floats, labels: Labels, distinct: Sequence[int]) -> Floats:
    """Compute the log-probability of each class, at most 0, shape (K,)."""
    indices = list(distinct)
    # by rounding, all that a model may say can have a little more than 1
    return np.minimum(_class_log_masses(sequence[indices], labels[indices]), 0)


def _class_log_masses(logs: Floats, labels: Labels) -> Floats:
    """Compute the log of the sum of exp(logs) in each class, shape (K,)."""
    masses = np.full(int(labels.max()) + 1, -np.inf)
    # in logs: the probabilities of long answers are 0 as floats
    np.logaddexp.at(masses, labels, logs)
    return masses


class Samples:
    """Features of one question for estimators, computed on first use."""

    def __init__(
        self,
        question: AnsweredQuestion,
        rule: ClassRule,
        similarity: Similarity,
        relevance: Similarity | None = None,
        weights: Sequence[float] = (),
    ) -> None:
        self.question = question
        self.weights = weights
        """Intercept and weights of a fitted estimator; empty before fitting."""
        self._rule = rule
        self._similarity = similarity
        self.relevance = relevance
        """Sentence similarity that weights tokens."""

    @cached_property
    def labels(self) -> Labels:
        """Class of each answer, shape (M,)."""
        return self._rule(self.question)

    @cached_property
    def modal_answer(self) -> str | None:
        """The most common spelling in the largest class, the first sampled among ties."""
        if not self.question.answers:
            return None
        groups = ordered_groups(self.question.answers, members_of(self.labels))
        return self.question.answers[groups[0][0]]

    @property
    def judged_answer(self) -> str | None:
        """The judged answer: the recorded response, or else the modal answer."""
        return self.modal_answer if self.question.answer is None else self.question.answer

    @cached_property
    def similarities(self) -> Floats:
        """Similarities of all answers, shape (M, M)."""
        return self._compared(self._similarity)

    @cached_property
    def rouge_similarities(self) -> Floats:
        """ROUGE-L similarities of all answers, shape (M, M)."""
        return self._compared(rouge)

    @cached_property
    def sequence_logprobs(self) -> Floats:
        """Sum of each answer's token log-probabilities, shape (M,)."""
        return np.array(list(map(sum, self.question.token_values.logprobs)))

    @property
    def distinct(self) -> list[int]:
        """Index of the first answer with each text."""
        first: dict[str, int] = {}
        for index, text in enumerate(self.question.answers):
            first.setdefault(text, index)
        return [*first.values()]

    @cached_property
    def mean_logprobs(self) -> Floats:
        """Mean of each answer's token log-probabilities, shape (M,)."""
        return np.array([sum(tokens) / len(tokens) for tokens in self.question.token_values.logprobs])

    @cached_property
    def judged_members(self) -> list[int]:
        """Indices of answers in the judged answer's class, or of the only answer; possibly empty."""
        answers = self.question.answers
        if len(answers) == 1:
            return [0]
        judged = self.judged_answer
        members = [index for index, answer in enumerate(answers) if answer == judged]
        return np.flatnonzero(self.labels == self.labels[members[0]]).tolist() if members else []

    @cached_property
    def token_sars(self) -> Floats:
        """Token SAR of each answer, shape (M,)."""
        assert self.relevance is not None  # estimate checks it
        values = []
        logprobs_of, tokens_of, *_ = self.question.token_values
        for tokens, logprobs in zip(tokens_of, logprobs_of, strict=True):
            without = [tokens[:index] + tokens[index + 1 :] for index in range(len(tokens))]
            texts = [f"{self.question.text} {''.join(part)}" for part in (tokens, *without)]
            relevance = 1 - self.relevance(texts)[0, 1:]
            values.append(token_sar(np.array(logprobs), relevance))
        return np.array(values)

    @cached_property
    def hedge(self) -> Hedge | NoValue:
        """The probability phrase in the greedy answer, or else in the judged answer."""
        text = self.judged_answer if self.question.greedy is None else self.question.greedy
        return read_hedge(text or "")

    def _compared(self, similarity: Similarity) -> Floats:
        """Compare each pair of distinct answers once."""
        distinct = list(dict.fromkeys(self.question.answers))
        row_of = {text: index for index, text in enumerate(distinct)}
        # repeat rows and columns for answers that occur several times
        rows = [row_of[text] for text in self.question.answers]
        return similarity(distinct)[np.ix_(rows, rows)]


class SampleList:
    """Features of many questions, computed again at each use, since storing all of them would need much
    memory.

    Args:
        make: makes the features of one.
    """

    def __init__(
        self, questions: Sequence[AnsweredQuestion], make: Callable[[AnsweredQuestion], Samples]
    ) -> None:
        self._questions = questions
        self._make = make
        self._labels: list[Labels | None] = [None] * len(questions)
        self._known: dict[bytes, Labels] = {}
        """Class numbers by content: few samples can be sorted into classes in only a few ways."""

    def __getitem__(self, index: int) -> Samples:
        samples = self._make(self._questions[index])
        if (labels := self._labels[index]) is not None:
            samples.labels = labels
        return samples

    def __iter__(self) -> Iterator[Samples]:
        for index in range(len(self._questions)):
            samples = self[index]
            yield samples
            if "labels" in vars(samples):
                labels = samples.labels
                self._labels[index] = self._known.setdefault(labels.tobytes(), labels)


# Entropies of one answer's tokens are of lists with the largest probabilities, p_1 >= ... >= p_k, in nats. A
# list leaves out the rest r = 1 - p_1 - ... - p_k, so it gives no entropy, but an interval that holds it.
LARGEST_VOCABULARY = 2**18
"""Largest vocabulary assumed if unknown, as large as any in use."""
GROUP = 32
"""Number of neighbouring tokens whose confidence is averaged, if there are as many."""


class EntropyBounds(NamedTuple):
    """Bounds on each prediction's entropy, shape (T,) each."""

    low: Floats
    high: Floats


def probabilities(top: Floats | Sequence[Sequence[float]]) -> Floats:
    """Compute probabilities in descending order from lists of equal length, shape (T, K)."""
    falling: Floats = -np.sort(-np.exp(np.asarray(top, dtype=np.float64)), axis=1)
    return falling


def truncated_entropy(shares: Floats) -> Floats:
    """Sum -p ln p over each list, shape (T,). Its mean is EPR (arXiv 2509.04492)."""
    entropies: Floats = -_p_log_p(shares).sum(axis=1)
    return entropies


def renormalised_entropy(shares: Floats) -> Floats:
    """Compute each list's entropy after renormalisation, shape (T,)."""
    return truncated_entropy(shares / shares.sum(axis=1, keepdims=True))


def rest_bucket_entropy(shares: Floats) -> Floats:
    """Compute a lower bound of each token's entropy, with all unlisted tokens as one: shape (T,)."""
    return truncated_entropy(shares) - _p_log_p(_rest(shares))


def entropy_interval(shares: Floats, vocabulary: int = LARGEST_VOCABULARY) -> EntropyBounds:
    """Bound each prediction's entropy by its list of likely tokens.

    Each probability that is left out is at most min(r, p_k), and the entropy is largest if they are even.

    Args:
        vocabulary: tokens that there are, at most.
    """
    rest, smallest = _rest(shares), shares[:, -1]
    truncated = truncated_entropy(shares)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = truncated - np.where(rest > 0, rest * np.log(np.minimum(rest, smallest)), 0.0)
        even = rest / max(1, vocabulary - shares.shape[1])
        # the rest spread evenly over the vocabulary has the most entropy
        high = truncated - np.where(rest > 0, rest * np.log(even), 0.0)
    return EntropyBounds(low, np.maximum(low, high))


PER_RANK = 2
"""Values of :func:`rank_contributions` per rank: mean and maximum."""


def rank_contributions(top: Floats | Sequence[Sequence[float]]) -> Floats:
    """Compute the mean and the maximum over tokens of -p ln p at each rank, shape (2K,).

    These are the features of weighted EPR (arXiv 2509.04492); the first K add up to EPR.
    """
    contributions = -_p_log_p(probabilities(top))
    return np.concatenate([contributions.mean(axis=0), contributions.max(axis=0)])


def margins(shares: Floats) -> Floats:
    """Subtract each list's second probability from its first, shape (T,)."""
    differences: Floats = shares[:, 0] - shares[:, 1]
    return differences


def token_confidences(top: Floats | Sequence[Sequence[float]]) -> Floats:
    """Average -ln p over the top candidates of each token, shape (T,) (Fu et al. 2025, arXiv 2508.15260).

    Values are comparable only for equal numbers of candidates.
    """
    confidences: Floats = -np.asarray(top, dtype=np.float64).mean(axis=1)
    return confidences


def group_confidence(confidences: Floats, window: int = GROUP) -> float:
    """Find the lowest mean of ``window`` neighbouring tokens, or the plain mean of fewer tokens."""
    if len(confidences) <= window:
        return float(confidences.mean())
    sums = np.cumsum(np.concatenate([[0.0], confidences]))
    return float((sums[window:] - sums[:-window]).min() / window)


UNSURE = tuple(np.log([1.5, 2, 4]).tolist())
"""Entropies of 1.5, 2 and 4 equally likely words, used as levels of uncertainty."""


class UnsureWord(NamedTuple):
    """A word of an answer, with the model's uncertainty about its tokens."""

    text: str
    """Word with the space before it."""
    probability: float
    """Product of the tokens' probabilities."""
    entropy: float
    """Entropy of the likely tokens at the most uncertain token, in nats."""
    low: float
    """Bounds of the whole prediction's entropy, each the maximum over tokens."""
    high: float

    @property
    def level(self) -> int:
        """Level of uncertainty from 0 to 3, by entropy."""
        return unsure_level(self.entropy)


def unsure_level(surprise: float) -> int:
    """Count the steps of ``UNSURE`` up to an entropy or negative log-probability in nats."""
    return int(np.searchsorted(UNSURE, surprise, "right"))


def unsure_words(
    texts: Sequence[str], logprobs: Sequence[float], top: Sequence[Sequence[float]]
) -> list[UnsureWord]:
    """Join an answer's tokens to words with uncertainty; empty for impossible or unequal lists."""
    if not texts or len(set(map(len, top))) > 1 or not top[0]:
        return []
    shares = probabilities(top)
    low, high = entropy_interval(shares)
    columns = np.column_stack([renormalised_entropy(shares), low, high])
    if not np.isfinite(columns).all():
        return []
    words = []
    # a word is as open as its most open token
    for word in word_tokens(texts):
        probability = float(np.exp(sum(logprobs[word])))
        numbers = columns[word].max(axis=0).tolist()
        words.append(UnsureWord("".join(texts[word]), probability, *numbers))
    return words


def leveled_words(tokens: AnswerTokens) -> list[tuple[str, int]]:
    """Split an answer into words with levels, by likely tokens or else by probability."""
    if tokens.top and (words := unsure_words(tokens.texts, tokens.logprobs, tokens.top)):
        return [(word.text, word.level) for word in words]
    return [
        ("".join(tokens.texts[word]), unsure_level(-sum(tokens.logprobs[word])))
        for word in word_tokens(tokens.texts)
    ]


def word_tokens(texts: Sequence[str]) -> list[slice]:
    """Find the tokens of each word, ending at white space; unspaced scripts get one token per word."""
    starts, before = [], " "
    for index, text in enumerate(texts):
        if text and (text[0].isspace() or before.isspace() or re.match(f"[{UNSPACED}]", text)):
            # tokens without text are parts of the character that the next one completes
            while index > 0 and not texts[index - 1]:
                index -= 1
            starts.append(index)
        before = text[-1:] or before
    starts = sorted({0, *starts})
    return list(map(slice, starts, [*starts[1:], len(texts)]))


def _rest(shares: Floats) -> Floats:
    # sums of rounded probabilities may exceed 1
    rest = 1 - shares.sum(axis=1)
    return np.where(rest < _ROUNDING, 0.0, rest)


def _p_log_p(shares: Floats) -> Floats:
    """Compute p ln p, with 0 at 0."""
    logs: Floats = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    return shares * logs
