"""Removed flags, settings and studies, each with advice on what to do instead."""

from __future__ import annotations

_FEWER_WORDS = (
    "Use --budget, a number of judge tokens per question that is spent on the same words of all summaries."
)

SCORES = {"standard_error": _FEWER_WORDS, "race": _FEWER_WORDS}
"""Removed keys of ``[scores]``, which old run directories also contain."""

KEYS: dict[str, dict[str, str]] = {"scores": SCORES}
"""Removed keys by section of a settings file."""

SCHEDULE_B = "Compare (a) with (c): (b) sent the same requests in batches."
_CURVES = "To time items of other sizes, use --items."

_RANKED = "Its numbers are now columns in the table of metrics of --study ranked."
STUDIES = {
    "controls": _RANKED,
    "length": _RANKED,
    "dose": "Use --study choice, which shows whether a judge reads percentages, or --study interventions.",
}
"""Removed studies of ``validate``."""

METRICS = {
    **dict.fromkeys(
        ("kl", "jensen_shannon", "hellinger", "top1", "per_word", "all_words", "tv_t1"),
        "Use selfreflect.",
    ),
    **dict.fromkeys(
        ("p_true", "pmi"), "Use information, which also measures how likely the judge finds whole answers."
    ),
    **dict.fromkeys(
        ("claims_precision", "claims_recall", "claims_f1"),
        "Use llm_judge, which needs one request per summary.",
    ),
    "all": "Leave out {metrics}: all that can be computed is the default.",
    "ablations": "Use selfreflect.",
    "competitors": "Use llm_judge, embedding_cosine, embedding_transport and rouge_l.",
    "controls": "Use length.",
}
"""Removed metrics of ``validate``, and groups of metrics, with stored values kept."""

CORRECTNESS = dict.fromkeys(("rouge", "embedding"), "Use squad_f1, contains or judge.")
"""Removed kinds of correctness."""

PREDICTION = {
    "ece_10_right": "Use ece_10_left, which differs where confidences are multiples of 0.1, or smooth_ece.",
    "ece_10_mass": "Use ece_exact for few distinct confidences, or smooth_ece.",
    **dict.fromkeys(("auprc", "auprc_wrong", "recall_at_fpr_05"), "Use auroc, or prr."),
    "e_aurc": "Use aurc, or prr, which is relative to the best order.",
    **dict.fromkeys(
        ("brier_reliability", "brier_resolution"), "Use ece_exact for calibration, auroc for order."
    ),
}
"""Removed measures of ``uncertainty``."""

BETWEEN_NAMES = (
    "a name can no longer be compared with another name. Instead of 'losses > wins', write 'difference < 0'."
)
"""Removed conditions of ``--fail-if``."""

_TOGETHER = "Score all summaries of a question in one command: they share its reference answers."
_SCORING = ("run", "score", "ask")
_HEDGE = "Use `dataset sft`: a summary says in words how likely each answer is."
_SCORED = "Use `selfreflect run --strategies sayself --model ADAPTER`, which scores what the model states."
_STEPS = ("sample", "cluster", "rationale", "dataset", "train", "eval")
_ONE_COMMAND = "Use `selfreflect sayself run`, which does all steps that are not done yet."
_WITH_QUESTIONS = ("run", "questions", "answers")
_WITH_MODELS = ("run", "answers", "summarize")
_WITH_ITEMS = ("convert", "import", "claims", "validate", "bench", "score")

FLAGS: dict[tuple[str, str], str] = {
    **{(command, "--se"): _FEWER_WORDS for command in _SCORING},
    **{(command, "--race"): _FEWER_WORDS for command in _SCORING},
    **{
        (command, "--shard"): "Spread a model over GPUs with --device-map auto."
        for command in ("summarize", "score")
    },
    ("app", "--config"): "To see what questions would cost, use `selfreflect run --dry-run --config FILE`.",
    **{(command, "--cache"): _TOGETHER for command in ("run", "score")},
    ("import", "--leave-out"): "Only whole directories can be joined.",
    ("report", "--leave-out"): "Large pages leave out the judge's guesses automatically.",
    **{("bench", flag): _CURVES for flag in ("--scaling", "--no-scaling")},
    ("bench", "--random-model"): "Name a small model with --judge; benchmarks/gpu.py times random weights.",
    (
        "validate",
        "--pad",
    ): "The study ranked shows the win rate at equal length, and the preference for length.",
    **dict.fromkeys((("sayself", step) for step in _STEPS), _ONE_COMMAND),
    ("run", "--measured"): _SCORED,
    ("run", "--train"): "Train whole statements with `trl grpo` and a reward from selfreflect.train.rewards.",
    **{(command, "--part"): "It is now called --shard." for command in _WITH_QUESTIONS},
    **{(command, "--engine"): "It is now called --executor." for command in (*_WITH_MODELS, "score")},
    ("dataset", "--split"): "It is now called --parts.",
    **{(command, "--split"): "It is now called --separator." for command in _WITH_ITEMS},
    **dict.fromkeys((("dataset", "hedge"), ("dataset", "--classes")), _HEDGE),
    **dict.fromkeys(
        (("uncertainty", "--class-order"), ("calibrate", "--class-order")),
        "An answer now always joins the first class whose first answer it matches.",
    ),
    ("uncertainty", "--sizes"): "Run the command once for each M, with --num-answers M.",
    ("validate", "--writer"): "Statements are now written by a template; your own summaries are edited too.",
}
"""Removed flags and first arguments, by command."""
