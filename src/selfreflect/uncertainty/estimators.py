"""The table of estimators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast

import numpy as np

from selfreflect.errors import ConfigError, excerpt, unknown_name
from selfreflect.metric.measure import DEFAULT_MEASURES, measures_of
from selfreflect.sources.cells import number_in
from selfreflect.sources.names import plain_name
from selfreflect.stats import Floats
from selfreflect.text import counted
from selfreflect.uncertainty import features
from selfreflect.uncertainty.features import Samples
from selfreflect.uncertainty.question import NoValue

Unit = Literal[
    "probability",
    "nats",
    "bits",
    "classes",
    "similarity",
    "distance",
    "share",
    "log-likelihood",
    "log-odds",
    "choices",
]


@dataclass(frozen=True)
class Estimator:
    """A number per question that measures the model's confidence or uncertainty."""

    compute: Callable[[Samples], float | NoValue]
    meaning: str
    variant: str
    source: str
    confidence: bool = False
    """Whether a higher value means more confidence rather than uncertainty."""
    unit: Unit = "nats"
    low: float = 0.0
    high: float = math.inf
    needs: str = "samples"
    """Required contents of a record: ``samples``, their ``logprobs`` or ``tokens``, the ``top_logprobs`` or
    ``token_entropies`` at each token, their ``self_certainty``, a ``confidence``, a ``hedge`` in words, a
    ``column``, the answers' stances on a ``claim``, or a run's measure of its greedy answer. With ``model``,
    a model must be asked."""
    fewest: int = 1
    """Minimum number of samples."""
    replies_variant: str = ""
    """Variant for models without token probabilities."""
    of_greedy: bool = False
    """Whether the estimator applies to a stored greedy answer instead of the judged one."""
    inputs: Callable[[Samples], Floats | NoValue] | None = None
    """Inputs of a fitted estimator's weights, shape (F,); None for others."""

    @property
    def is_probability(self) -> bool:
        """Whether calibration measures apply."""
        return self.unit == "probability"

    @property
    def direction(self) -> str:
        """Direction of the value: confidence or uncertainty."""
        return "confidence" if self.confidence else "uncertainty"

    def score(self, value: float) -> float:
        """Convert a value so that higher means more confidence."""
        return value if self.confidence else -value


def _stated(samples: Samples) -> float | NoValue:
    if samples.question.confidence is None:
        return NoValue("no_confidence", "the record has no confidence")
    return samples.question.confidence


def _hedge_value(samples: Samples) -> float | NoValue:
    return samples.hedge if isinstance(samples.hedge, NoValue) else samples.hedge.band.middle


_NOT_MEASURED = NoValue("not_measured", "the run did not measure its greedy answers with this measure")
_NO_GREEDY = NoValue("no_greedy", "the greedy answer that was measured is not in the run directory")
_NO_RELEVANCE = NoValue(
    "no_relevance", "tokens are weighted by the similarity of sentences: add --similarity embedding"
)
_NO_SELF_CERTAINTY = NoValue(
    "no_self_certainty",
    "self-certainty needs predictions of the whole vocabulary, which local models store with --logprobs",
)


def _of_greedy(name: str) -> Callable[[Samples], float | NoValue]:
    """Make a function that reads the judge's measure of the greedy answer."""

    def compute(samples: Samples) -> float | NoValue:
        value = samples.question.values.get(name, _NOT_MEASURED)
        # a measure of an answer that is not stored cannot be compared with what is right
        return _NO_GREEDY if samples.question.greedy is None and not isinstance(value, NoValue) else value

    return compute


def _greedy_estimators() -> dict[str, Estimator]:
    """Make the estimators that a run's measures provide."""
    table = {}
    for measure in measures_of(DEFAULT_MEASURES):
        for row in measure.estimators:
            table[row.name] = Estimator(
                _of_greedy(row.name),
                row.meaning,
                row.variant,
                row.source,
                confidence=measure.higher_is_better,
                unit=cast(Unit, row.unit),
                low=row.low,
                high=row.high,
                needs=measure.name,
                of_greedy=True,
            )
    return table


_NO_CLAIM = NoValue("not_measured", "it applies to claims of long answers: add --claims words")


def _of_claim(name: str) -> Callable[[Samples], float | NoValue]:
    """Make a function that reads one value of a claim."""
    return lambda samples: samples.question.values.get(name, _NO_CLAIM)


def _probability(
    compute: Callable[[Samples], float | NoValue],
    meaning: str,
    variant: str,
    source: str,
    unit: Unit = "probability",
    **fields: Any,
) -> Estimator:
    """Declare a confidence in [0, 1], by default with calibration measures."""
    return Estimator(compute, meaning, variant, source, True, unit, high=1, **fields)


def _not_asked(samples: Samples) -> NoValue:
    """Refuse a value without a model to ask."""
    return NoValue("no_model", "no model was asked: name one with --model NAME")


def _asked_of_model(meaning: str, variant: str, source: str, replies_variant: str = "") -> Estimator:
    fields: dict[str, Any] = {"needs": "model", "replies_variant": replies_variant}
    return _probability(_not_asked, meaning, variant, source, **fields)


_NOT_SAMPLED = NoValue("not_sampled", "the judged answer is not among the answers with known tokens")
_JUDGED = "of the judged answer, mean over answers of its class"


def _over_spellings(
    compute: Callable[[Floats], float | Floats], column: str
) -> Callable[[Samples], Floats | NoValue]:
    """Make a function of a column's values at the judged answer's tokens, averaged over its spellings."""

    def mean(samples: Samples) -> Floats | NoValue:
        rows, members = getattr(samples.question.token_values, column), samples.judged_members
        if column == "top_logprobs" and not rows:
            return _NO_RANKS
        if not members:
            return _NOT_SAMPLED
        if column == "top_logprobs":
            # servers may return fewer tokens than were asked for
            sizes = {len(ranks) for index in members for ranks in rows[index]}
            smallest, largest = min(sizes, default=0), max(sizes, default=0)
            # lists of unequal length would make a token surer because less is known of it
            if smallest < largest or smallest < 2:
                message = (
                    f"{smallest} to {largest} likely tokens are known per position; all positions "
                    "must have the same number, at least 2"
                )
                return NoValue("too_few_ranks", message)
        values = np.array([compute(np.array(rows[index])) for index in members])
        return np.asarray(values.mean(axis=0))

    return mean


def _of_tokens(
    compute: Callable[[Floats], float], column: str = "logprobs"
) -> Callable[[Samples], float | NoValue]:
    """Make a function of the judged answer's token log-probabilities, or of another column."""
    mean = _over_spellings(compute, column)

    def value(samples: Samples) -> float | NoValue:
        result = mean(samples)
        return result if isinstance(result, NoValue) else float(result)

    return value


_contributions = _over_spellings(features.rank_contributions, "top_logprobs")


def _weighted_contributions(samples: Samples) -> float | NoValue:
    if not samples.weights:
        return _NOT_FITTED
    values = _contributions(samples)
    if isinstance(values, NoValue):
        return values
    # an intercept, then two weights for each rank
    intercept, *weights = samples.weights
    if len(values) != len(weights):
        return NoValue(
            "too_few_ranks",
            f"the weights are for {len(weights) // features.PER_RANK} likely tokens per position",
        )
    return intercept + float(values @ np.array(weights))


def _of_lists(values: Callable[[Floats], Floats]) -> Callable[[Samples], float | NoValue]:
    return _of_tokens(lambda top: float(values(features.probabilities(top)).mean()), "top_logprobs")


_NO_RANKS = NoValue(
    "no_top_logprobs",
    "the largest log-probabilities are not stored: --top-logprobs K stores them with answers",
)
_NOT_FITTED = NoValue("not_fitted", "its weights are fitted on labelled answers, by `selfreflect calibrate`")
_NO_ENTROPIES = NoValue(
    "no_entropies",
    "exact entropies need predictions of the whole vocabulary, which local models store with --top-logprobs",
)
_NO_LOGPROBS = NoValue("no_logprobs", "the record has no log-probabilities")
_OF_TOKENS: dict[str, dict[str, NoValue]] = {
    "logprobs": {"logprobs": _NO_LOGPROBS},
    "tokens": {"logprobs": _NO_LOGPROBS, "tokens": NoValue("no_tokens", "the record has no tokens")},
    "top_logprobs": {},  # checked with the lengths of its lists
    "token_entropies": {"token_entropies": _NO_ENTROPIES},
    "self_certainty": {"self_certainty": _NO_SELF_CERTAINTY},
}
"""Columns of a record that estimators of tokens need, with the reason for a missing one."""
_LISTS = f"mean over tokens, {_JUDGED}"


COLUMN = "column:"
"""Prefix of estimators that are columns of the file."""
_KINDS = {"confidence": "similarity", "uncertainty": "nats", "probability": "probability"}
"""Direction of a column's values, with its unit."""
KNOWN_COLUMNS: dict[str, str] = {
    # uqlm's scorers: from 0 to 1, higher for more confidence
    **dict.fromkeys(
        "semantic_negentropy semantic_sets_confidence noncontradiction entailment cosine_sim bert_score "
        "exact_match normalized_probability min_probability sequence_probability consistency_and_confidence "
        "p_true monte_carlo_probability semantic_density ensemble_score".split(),
        "probability",
    ),
    # lm-polygraph's estimators: higher for more uncertainty
    **dict.fromkeys(
        "maximumsequenceprobability perplexity meantokenentropy montecarlosequenceentropy "
        "montecarlonormalizedsequenceentropy semanticentropy semanticentropy_(direct) "
        "semanticentropyempirical semanticentropyunique numsemsets eigvallaplacian degmat eccentricity sar "
        "sentencesar tokensar ptrue ptruesampling ptrueempirical ccp meanpointwisemutualinformation "
        "kernellanguageentropy luq eigenscore cocoamsp cocoappl cocoamte rauq".split(),
        "uncertainty",
    ),
    **{f"lexicalsimilarity_{name}": "uncertainty" for name in ("rouge1", "rouge2", "rougel", "bleu")},
    **{
        f"{name}_{similarity}": "uncertainty"
        for name in ("eigvallaplacian", "degmat", "eccentricity")
        for similarity in ("nli_score_entail", "nli_score_contra", "jaccard_score")
    },
    # TruthTorchLM's methods: higher for more truth, normalised from 0 to 1
    **{
        f"{name}_{values}": kind
        for name in (
            "attentionscore confidence contextcheck crossexamination directionalentailmentgraph "
            "eccentricityconfidence eccentricityuncertainty entropy googlesearchcheck inside "
            "kernellanguageentropy lars mars matrixdegreeconfidence matrixdegreeuncertainty minicheckmethod "
            "multillmcollab numsemanticsetuncertainty ptrue sar saplma selfdetection semanticentropy sentsar "
            "sumeigenuncertainty tokensar verbalizedconfidence"
        ).split()
        for values, kind in (("value", "confidence"), ("normalized", "probability"))
    },
}
"""Direction of known columns of other libraries, by name in lower case with ``_``."""


def _column_estimator(name: str) -> Estimator:
    """Make the estimator of ``column:NAME`` or ``column:NAME:KIND``.

    Raises:
        ConfigError: nobody says what a higher value means.
    """
    column, _, kind = name.removeprefix(COLUMN).partition(":")
    # plain names: files write the same column with other cases and blanks
    plain = plain_name(column)
    kind = kind or KNOWN_COLUMNS.get(plain, "")
    if kind not in _KINDS:
        raise ConfigError(
            f"it is unknown whether a higher value in the column {excerpt(column)} means more confidence or "
            "more uncertainty",
            code="direction",
            remedy=f"Give {{estimators}} {COLUMN}{column}:confidence or {COLUMN}{column}:uncertainty, or "
            f"{COLUMN}{column}:probability for probabilities.",
        )

    def compute(samples: Samples) -> float | NoValue:
        for key, value in samples.question.columns.items():
            if plain_name(key) == plain:
                return _column_value(value, kind)
        return NoValue("no_number_in_column", f"the record has no column {excerpt(column)}")

    is_probability = kind == "probability"
    low = 0.0 if is_probability else -math.inf
    return Estimator(
        compute,
        f"the column {column!r} of the file",
        "as given",
        "the file",
        confidence=kind != "uncertainty",
        unit=cast("Unit", _KINDS[kind]),
        low=low,
        high=1.0 if is_probability else math.inf,
        needs="column",
    )


def _column_value(value: object, kind: str) -> float | NoValue:
    try:
        number = number_in(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        return NoValue("no_number_in_column", f"the column contains {excerpt(value)}, which is not a number")
    if kind == "probability" and not 0 <= number <= 1:
        return NoValue("out_of_range", f"the column contains {number:g}, which is not a probability")
    return number


class Estimators(dict[str, Estimator]):
    """Estimators by name; ``column:NAME`` is made on demand."""

    def __missing__(self, name: str) -> Estimator:
        # columns are known only once a file is read
        if not name.startswith(COLUMN):
            raise KeyError(name)
        return _column_estimator(name)

    def get(self, name: str, default: Any = None) -> Any:
        is_there = name in self  # columns are, though the dict holds none of them
        return self[name] if is_there else default

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or str(name).startswith(COLUMN)


_GRAPH = "symmetric similarities, normalised Laplacian"
ESTIMATORS = Estimators(
    {
        "modal_share": _probability(
            lambda samples: features.modal_share(samples.labels),
            "share of the largest class",
            "plug-in, biased upwards for few samples",
            "arXiv 2306.13063",
        ),
        "split_half": _probability(
            lambda samples: features.split_half_share(samples.labels),
            "share in one half of the largest class of the other half",
            "both directions, ties averaged",
            "this project",
            fewest=2,
        ),
        "entropy": Estimator(
            lambda samples: features.entropy(samples.labels),
            "discrete semantic entropy",
            "plug-in",
            "Nature 630 (2024)",
        ),
        "entropy_mm": Estimator(
            lambda samples: features.entropy_miller_madow(samples.labels),
            "discrete semantic entropy",
            "Miller-Madow correction",
            "Nature 630 (2024); Miller 1955",
        ),
        "classes": Estimator(
            lambda samples: features.number_of_classes(samples.labels),
            "number of classes",
            "number of semantic sets",
            "arXiv 2305.19187",
            unit="classes",
            low=1,
        ),
        "lexical": Estimator(
            lambda samples: features.mean_similarity(samples.rouge_similarities),
            "mean similarity of pairs of answers",
            "ROUGE-L F1",
            "arXiv 2302.09664",
            confidence=True,
            unit="similarity",
            high=1,
            fewest=2,
        ),
        "eigv": Estimator(
            lambda samples: features.eigenvalue_sum(samples.similarities),
            "soft number of classes",
            _GRAPH,
            "arXiv 2305.19187",
            unit="classes",
            low=1,
        ),
        "deg": Estimator(
            lambda samples: features.degree(samples.similarities),
            "mean distance of pairs of answers",
            "trace(M - D) / M^2",
            "arXiv 2305.19187",
            unit="distance",
            high=1,
        ),
        "ecc": Estimator(
            lambda samples: features.eccentricity(samples.similarities),
            "distance of answers from their centre",
            f"{_GRAPH}, eigenvalues below 0.9",
            "arXiv 2305.19187",
            unit="distance",
        ),
        "kle": Estimator(
            lambda samples: features.kernel_entropy(samples.similarities),
            "kernel language entropy",
            f"heat kernel, t = {features.HEAT_TIME:g}, symmetric similarities, as a share of ln M",
            "arXiv 2405.20003",
            unit="share",
            high=1,
            fewest=2,
        ),
        "predictive_entropy": Estimator(
            lambda samples: features.predictive_entropy(samples.sequence_logprobs),
            "mean negative log-likelihood of the answers",
            "Monte Carlo",
            "arXiv 2002.07650",
            needs="logprobs",
        ),
        "predictive_entropy_ln": Estimator(
            lambda samples: features.predictive_entropy(samples.mean_logprobs),
            "mean negative log-likelihood per token",
            "Monte Carlo, length-normalised",
            "arXiv 2002.07650",
            needs="logprobs",
        ),
        "semantic_entropy": Estimator(
            lambda samples: features.semantic_entropy(samples.mean_logprobs, samples.labels),
            "entropy of the classes' probabilities",
            "length-normalised, normalised over samples",
            "Nature 630 (2024)",
            needs="logprobs",
        ),
        "semantic_entropy_mc": Estimator(
            lambda samples: features.semantic_entropy_monte_carlo(
                samples.sequence_logprobs, samples.labels, samples.distinct
            ),
            "mean negative log probability of the samples' classes",
            "whole sequences, equal ones once, not normalised, mean over samples",
            "lm-polygraph, unique responses",
            needs="logprobs",
        ),
        "semantic_entropy_direct": Estimator(
            lambda samples: features.semantic_entropy_direct(
                samples.sequence_logprobs, samples.labels, samples.distinct
            ),
            "-p log p of the samples' classes, summed over samples",
            "whole sequences, equal ones once, a class counts once for each member",
            "lm-polygraph, direct, unique responses",
            needs="logprobs",
        ),
        "sentence_sar": Estimator(
            lambda samples: features.sentence_sar(samples.sequence_logprobs, samples.similarities),
            "negative log-likelihood, shared among similar answers",
            f"temperature {features.SAR_TEMPERATURE:g}",
            "arXiv 2307.01379",
            unit="log-likelihood",
            low=-math.inf,
            needs="logprobs",
        ),
        "token_sar": Estimator(
            lambda samples: float(samples.token_sars.mean()),
            "negative log-likelihood of the tokens that matter",
            "each position removed on its own",
            "arXiv 2307.01379",
            needs="tokens",
        ),
        "sar": Estimator(
            lambda samples: features.sar(samples.token_sars, samples.similarities),
            "token SAR, shared among similar answers",
            f"temperature {features.SAR_TEMPERATURE:g}",
            "arXiv 2307.01379",
            unit="log-likelihood",
            low=-math.inf,
            needs="tokens",
        ),
        "normalised_prob": _probability(
            _of_tokens(lambda logprobs: float(np.exp(logprobs.mean()))),
            "geometric mean of the tokens' probabilities",
            _JUDGED,
            "arXiv 2002.07650",
            unit="share",
            needs="logprobs",
        ),
        "mean_prob": _probability(
            _of_tokens(lambda logprobs: float(np.exp(logprobs).mean())),
            "mean of the tokens' probabilities",
            _JUDGED,
            "arXiv 2507.16806",
            unit="share",
            needs="logprobs",
        ),
        "min_prob": _probability(
            _of_tokens(lambda logprobs: float(np.exp(logprobs.min()))),
            "least of the tokens' probabilities",
            f"{_JUDGED}; falls with its length",
            "arXiv 2303.08896",
            unit="share",
            needs="logprobs",
        ),
        "perplexity": Estimator(
            _of_tokens(lambda logprobs: float(np.exp(-logprobs.mean()))),
            "1 / geometric mean of the tokens' probabilities",
            _JUDGED,
            "Jelinek et al. 1977",
            unit="choices",
            low=1,
            needs="logprobs",
        ),
        "token_entropy": Estimator(
            _of_tokens(lambda entropies: float(entropies.mean()), "token_entropies"),
            "mean entropy of the predictions",
            f"whole vocabulary, {_LISTS}",
            "arXiv 2002.07650",
            needs="token_entropies",
        ),
        "epr": Estimator(
            _of_lists(features.truncated_entropy),
            "-p log p summed over the likely tokens",
            f"truncated lists, {_LISTS}",
            "arXiv 2509.04492",
            needs="top_logprobs",
        ),
        "wepr": Estimator(
            _weighted_contributions,
            "log-odds of a right answer by the likely tokens of each rank",
            f"mean and largest -p log p of each rank over tokens, weights of a saved fit, {_JUDGED}",
            "arXiv 2509.04492",
            confidence=True,
            unit="log-odds",
            low=-math.inf,
            needs="top_logprobs",
            inputs=_contributions,
        ),
        "token_entropy_renormalised": Estimator(
            _of_lists(features.renormalised_entropy),
            "mean entropy of the likely tokens",
            f"lists divided by their sum, {_LISTS}",
            "uqlm",
            needs="top_logprobs",
        ),
        "token_entropy_rest": Estimator(
            _of_lists(features.rest_bucket_entropy),
            "mean entropy of the likely tokens and the rest",
            f"all other tokens as one, {_LISTS}",
            "this project",
            needs="top_logprobs",
        ),
        "token_entropy_low": Estimator(
            _of_lists(lambda shares: features.entropy_interval(shares).low),
            "lower end of the interval of the mean entropy",
            _LISTS,
            "this project",
            needs="top_logprobs",
        ),
        "token_entropy_high": Estimator(
            _of_lists(lambda shares: features.entropy_interval(shares).high),
            "upper end of the interval of the mean entropy",
            f"at most {features.LARGEST_VOCABULARY} tokens in the vocabulary, {_LISTS}",
            "this project",
            needs="top_logprobs",
        ),
        "margin": _probability(
            _of_lists(features.margins),
            "difference of the two largest probabilities",
            _LISTS,
            "Scheffer et al. 2001",
            unit="share",
            needs="top_logprobs",
        ),
        "group_confidence": Estimator(
            _of_tokens(
                lambda top: features.group_confidence(features.token_confidences(top)), "top_logprobs"
            ),
            "mean negative log of the likely tokens' probabilities",
            f"lowest mean of {features.GROUP} neighbouring tokens, depends on K; {_JUDGED}",
            "arXiv 2508.15260",
            confidence=True,
            needs="top_logprobs",
        ),
        "self_certainty": Estimator(
            lambda samples: float(np.mean(samples.question.token_values.self_certainty)),
            "mean divergence of predictions from the uniform one",
            "KL(uniform, prediction), mean over tokens, then over answers",
            "arXiv 2502.18581",
            confidence=True,
            needs="self_certainty",
        ),
        "stated": _probability(
            _stated,
            "the confidence in the file",
            "as given",
            "the file",
            needs="confidence",
        ),
        **_greedy_estimators(),
        "hedge": _probability(
            _hedge_value,
            "what people mean by the word of probability in the answer",
            "median of 123 people, of the greedy answer, else of the judged one",
            "Fagen-Ulmschneider 2019",
            needs="hedge",
            of_greedy=True,
        ),
        "support": _probability(
            _of_claim("support"),
            "share of the answers that make the claim",
            "of the answers with a verdict",
            "arXiv 2403.20279",
            needs="claim",
        ),
        "contradicted": Estimator(
            _of_claim("contradicted"),
            "share of the answers that contradict the claim",
            "of the answers with a verdict",
            "arXiv 2303.08896",
            unit="share",
            high=1,
            needs="claim",
        ),
        "mentioned": Estimator(
            _of_claim("mentioned"),
            "how far the answers mention the claim",
            "of the closest sentence, mean over answers",
            "arXiv 2403.20279",
            confidence=True,
            unit="share",
            high=1,
            needs="claim",
        ),
        "p_true": _asked_of_model(
            "how likely the model calls the judged answer true",
            "probability of the token True among True and False, no samples shown",
            "arXiv 2207.05221",
            "share of True in the clear ones of 10 replies at temperature 1, no samples shown",
        ),
        "p_true_samples": _asked_of_model(
            "how likely the model calls the judged answer true, when it sees its own samples",
            "probability of the token True among True and False, the first 10 samples shown",
            "arXiv 2207.05221",
            "share of True in the clear ones of 10 replies at temperature 1, the first 10 samples shown",
        ),
        "self_evaluation": _asked_of_model(
            "probability that the model states for the judged answer",
            "the answer is shown, percent, temperature 0",
            "arXiv 2306.13063, self-probing",
        ),
        "verbalized": _asked_of_model(
            "probability that the model states with its own answer, if that is the judged one",
            "1S top-1, percent, temperature 0",
            "arXiv 2305.14975",
        ),
        "verbalized_top4": _asked_of_model(
            "probability that the model states for the judged answer among its 4 best guesses",
            "1S top-4, percent, as stated (the sum may be above 1), temperature 0",
            "arXiv 2305.14975",
        ),
        "verbalized_2s": _asked_of_model(
            "probability that the model states for the judged answer, after it named its 4 best guesses",
            "2S top-4, percent, as stated (the sum may be above 1), temperature 0",
            "arXiv 2305.14975",
        ),
    }
)


def choose_estimators(names: Sequence[str]) -> dict[str, Estimator]:
    """Look up estimators by name.

    Raises:
        ConfigError: there is no such estimator.
    """
    for name in names:
        if name not in ESTIMATORS:
            raise unknown_name("estimator", name, ESTIMATORS)
    return {name: ESTIMATORS[name] for name in names}


def estimate(estimator: Estimator, samples: Samples) -> float | NoValue:
    """Compute a question's value to 12 digits, or the reason for its absence.

    Unrounded, questions with the same classes in another order would differ by the last bits, and ties would
    be broken at random.
    """
    question = samples.question
    # these read no sampled answers, so their number does not matter
    if estimator.of_greedy or estimator.needs in ("column", "confidence", "model", "claim"):
        return estimator.compute(samples)
    # the recorded reason says more than "no log-probabilities"
    if question.missing_logprobs and estimator.needs in _OF_TOKENS:
        return NoValue("no_logprobs", question.missing_logprobs)
    for column, missing in _OF_TOKENS.get(estimator.needs, {}).items():
        if not getattr(question.token_values, column):
            return missing
    if estimator.needs == "tokens" and samples.relevance is None:
        return _NO_RELEVANCE
    number = len(question.answers)
    if number < estimator.fewest:
        return NoValue("too_few_samples", f"{number} of at least {counted(estimator.fewest, 'sample')}")
    # the exponential of a very unlikely answer overflows, and is refused below
    with np.errstate(over="ignore"):
        value = estimator.compute(samples)
    if isinstance(value, NoValue):
        return value
    if not math.isfinite(value):  # such as the perplexity of impossible tokens
        return NoValue("out_of_range", "the value is beyond the range of numbers")
    return _rounded(value + 0.0)  # which makes 0 of -0


@lru_cache(maxsize=features.REMEMBERED)
def _rounded(value: float) -> float:
    """Round to 12 digits, cached so that equal values of many questions share memory."""
    return float(f"{value:.12g}")
