"""Every metric, by the family that computes it. Importing this loads no model library."""

from __future__ import annotations

from selfreflect.validate.base import Better, MetricInfo, Need


def _ablation(name: str, about: str, better: Better = "lower") -> MetricInfo:
    return MetricInfo(name=name, better=better, group="ablation", about=about, needs=("judge",))


def _competitor(name: str, about: str, *needs: Need, better: Better = "higher") -> MetricInfo:
    return MetricInfo(name=name, better=better, group="competitor", about=about, needs=needs)


_SELFREFLECT = (
    "Total variation between the judge's predictions of masked words after the summary and after the "
    "answers, at temperature 5."
)
_P_TRUE = "How far the judge's belief in masked-out answers after the summary is from that after the answers."
_PMI = "Pointwise mutual information, log p(answer | summary) - log p(answer), in nats per answer."
_PRECISION = "Share of the summary's claims that the answers support; a language model lists and checks them."
_RECALL = "Share of the answers' claims that the summary supports; a language model lists and checks them."
_COSINE = "Mean cosine distance between the embeddings of the summary and of each answer."
_TRANSPORT = "Optimal transport between the embeddings of the answers and of the summary's sentences."
_ROUGE_L = "Mean F-measure of ROUGE-L, the longest common subsequence of words, between summary and answers."
_LENGTH = "Words of the summary. Good summaries are longer than bad ones, so this control often wins."

MASKED = (
    MetricInfo(name="selfreflect", better="lower", group="selfreflect", about=_SELFREFLECT, needs=("judge",)),
    _ablation("tv_t1", "SelfReflect at judge temperature 1, where synonyms of a masked word hardly count."),
    _ablation("kl", "SelfReflect with the Kullback-Leibler divergence from the answers, in nats."),
    _ablation("jensen_shannon", "SelfReflect with the Jensen-Shannon divergence, in bits."),
    _ablation("hellinger", "SelfReflect with the Hellinger distance."),
    _ablation("top1", "SelfReflect with the share of tokens whose likeliest prediction differs."),
    _ablation("per_word", "SelfReflect as a mean over words, not over their tokens."),
    _ablation("all_words", "SelfReflect with stopwords masked as well."),
)
LIKELIHOOD = (_ablation("p_true", _P_TRUE), _ablation("pmi", _PMI, better="higher"))
RATED = (
    _competitor("llm_judge", "How faithful a language model finds the summary, from 0 to 10.", "generator"),
)
CLAIMS = (
    _competitor("claims_precision", _PRECISION, "generator"),
    _competitor("claims_recall", _RECALL, "generator"),
    _competitor("claims_f1", "Harmonic mean of claims_precision and claims_recall.", "generator"),
)
EMBEDDED = (
    _competitor("embedding_cosine", _COSINE, "embedder", better="lower"),
    _competitor("embedding_transport", _TRANSPORT, "embedder", better="lower"),
)
OVERLAP = (_competitor("rouge_l", _ROUGE_L),)
LENGTH = (MetricInfo(name="length", better="higher", group="control", about=_LENGTH),)
