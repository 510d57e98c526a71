"""Every metric, by the family that computes it. Importing this loads no model library."""

from __future__ import annotations

from selfreflect.validate.base import Better, Group, MetricInfo, Need


def _info(name: str, better: Better, group: Group, about: str, *needs: Need) -> MetricInfo:
    return MetricInfo(name=name, better=better, group=group, about=about, needs=needs)


def _ablation(name: str, about: str) -> MetricInfo:
    return _info(name, "lower", "ablation", about, "judge")


MASKED = (
    _info(
        "selfreflect",
        "lower",
        "selfreflect",
        "Total variation between the judge's predictions of masked words after the summary and after the "
        "answers, at temperature 5.",
        "judge",
    ),
    _ablation("tv_t1", "SelfReflect at judge temperature 1, where synonyms of a masked word hardly count."),
    _ablation(
        "kl", "SelfReflect with the Kullback-Leibler divergence of the summary from the answers, in nats."
    ),
    _ablation("jensen_shannon", "SelfReflect with the Jensen-Shannon divergence, in bits."),
    _ablation("hellinger", "SelfReflect with the Hellinger distance."),
    _ablation("top1", "SelfReflect with the share of tokens whose likeliest prediction differs."),
    _ablation("per_word", "SelfReflect as a mean over words, not over their tokens."),
    _ablation("all_words", "SelfReflect with stopwords masked as well."),
)

LIKELIHOOD = (
    _ablation(
        "p_true",
        "How far the judge's belief that a masked-out answer is possible, after the summary, is from that after "
        "the answers.",
    ),
    _info(
        "pmi",
        "higher",
        "ablation",
        "Pointwise mutual information of summary and masked-out answer: log p(a | s, q) - log p(a | q), in nats "
        "per answer.",
        "judge",
    ),
)

RATED = (
    _info(
        "llm_judge",
        "higher",
        "competitor",
        "How faithful a language model finds the summary to the listed answers, from 0 to 10.",
        "generator",
    ),
)

CLAIMS = (
    _info(
        "claims_precision",
        "higher",
        "competitor",
        "Share of the summary's claims that the answers support; a language model lists and checks them.",
        "generator",
    ),
    _info(
        "claims_recall",
        "higher",
        "competitor",
        "Share of the answers' claims that the summary supports; a language model lists and checks them.",
        "generator",
    ),
    _info(
        "claims_f1",
        "higher",
        "competitor",
        "Harmonic mean of claims_precision and claims_recall.",
        "generator",
    ),
)

EMBEDDED = (
    _info(
        "embedding_cosine",
        "lower",
        "competitor",
        "Mean cosine distance between the embeddings of the summary and of each answer.",
        "embedder",
    ),
    _info(
        "embedding_transport",
        "lower",
        "competitor",
        "Optimal transport between the embeddings of the answers and of the summary's sentences, over cosine "
        "distances.",
        "embedder",
    ),
)

OVERLAP = (
    _info(
        "rouge_l",
        "higher",
        "competitor",
        "Mean F-measure of ROUGE-L between the summary and each answer: the longest common subsequence of "
        "their words.",
    ),
)

LENGTH = (
    _info(
        "length",
        "higher",
        "control",
        "Words of the summary. Good summaries are longer than bad ones, so this control often wins.",
    ),
)
