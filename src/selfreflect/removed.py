"""Removed flags, settings and studies, each with advice on what to do instead."""

from __future__ import annotations

_FEWER_WORDS = "Give --budget: judge tokens per question, spent on the same words of all summaries."

SCORES = {"standard_error": _FEWER_WORDS, "race": _FEWER_WORDS}
"""Removed keys of ``[scores]``, which old run directories also contain."""

KEYS: dict[str, dict[str, str]] = {"scores": SCORES}
"""Removed keys by section of a settings file."""

SCHEDULE_B = "Compare (a) with (c): (b) sent the same requests in batches."
_CURVES = "Time items of your own sizes with --items."

_RANKED = "Its numbers are columns of --study ranked, in the table of metrics."
STUDIES = {
    "controls": _RANKED,
    "length": _RANKED,
    "dose": "Take --study choice, which shows whether a judge reads percentages, or --study interventions.",
}
"""Removed studies of ``validate``."""

METRICS = {
    **dict.fromkeys(
        ("kl", "jensen_shannon", "hellinger", "top1", "per_word", "all_words", "tv_t1"),
        "Take selfreflect.",
    ),
    **dict.fromkeys(
        ("p_true", "pmi"), "Take information, which reads the judge's belief in whole answers too."
    ),
    **dict.fromkeys(
        ("claims_precision", "claims_recall", "claims_f1"), "Take llm_judge, which one request asks for."
    ),
    "all": "Leave out {metrics}: all that can be computed is the default.",
    "ablations": "Take selfreflect.",
    "competitors": "Take llm_judge, embedding_cosine, embedding_transport and rouge_l.",
    "controls": "Take length.",
}
"""Removed metrics of ``validate``, and groups of metrics, with stored values kept."""

CORRECTNESS = dict.fromkeys(("rouge", "embedding"), "Take squad_f1, contains or judge.")
"""Removed kinds of correctness."""

PREDICTION = {
    "ece_10_right": "Take ece_10_left, which differs where confidences are multiples of 0.1, or smooth_ece.",
    "ece_10_mass": "Take ece_exact for few distinct confidences, or smooth_ece.",
    **dict.fromkeys(("auprc", "auprc_wrong", "recall_at_fpr_05"), "Take auroc, or prr."),
    "e_aurc": "Take aurc, or prr, which is relative to the best order.",
    **dict.fromkeys(
        ("brier_reliability", "brier_resolution"), "Take ece_exact for calibration, auroc for order."
    ),
}
"""Removed measures of ``uncertainty``."""

BETWEEN_NAMES = "a name is no longer compared with another name. For 'losses > wins' give 'difference < 0'."
"""Removed conditions of ``--fail-if``."""

_TOGETHER = "Score all summaries of a question in one command: they share its reference answers."
_SCORING = ("run", "score", "ask")
_HEDGE = "Take `dataset sft`: a summary says in words how likely each answer is."
_SCORED = "Take `selfreflect run --strategies sayself --model ADAPTER`, which scores what the model states."
_STEPS = ("sample", "cluster", "rationale", "dataset", "train", "eval")
_ONE_COMMAND = "Take `selfreflect sayself run`, which does all steps, and no step twice."
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
    ("app", "--config"): "Count what questions cost with `selfreflect run --dry-run --config FILE`.",
    **{(command, "--cache"): _TOGETHER for command in ("run", "score")},
    ("import", "--leave-out"): "Join whole directories.",
    ("report", "--leave-out"): "Large pages leave out guesses by themselves.",
    **{("bench", flag): _CURVES for flag in ("--scaling", "--no-scaling")},
    ("bench", "--random-model"): "Name a small model with --judge; benchmarks/gpu.py times random weights.",
    ("validate", "--pad"): "The study ranked has the win rate at equal length, and a preference for length.",
    **dict.fromkeys((("sayself", step) for step in _STEPS), _ONE_COMMAND),
    ("run", "--measured"): _SCORED,
    ("run", "--train"): "Train whole statements with `trl grpo` and a reward of selfreflect.train.rewards.",
    **{(command, "--part"): "It is called --shard." for command in _WITH_QUESTIONS},
    **{(command, "--engine"): "It is called --executor." for command in (*_WITH_MODELS, "score")},
    ("dataset", "--split"): "It is called --parts.",
    **{(command, "--split"): "It is called --separator." for command in _WITH_ITEMS},
    **dict.fromkeys((("dataset", "hedge"), ("dataset", "--classes")), _HEDGE),
    **dict.fromkeys(
        (("uncertainty", "--class-order"), ("calibrate", "--class-order")),
        "An answer joins the first class whose first answer it matches.",
    ),
    ("uncertainty", "--sizes"): "Run the command once for each M, with --num-answers M.",
    ("validate", "--writer"): "Statements come from the template; summaries of your own are edited as well.",
}
"""Removed flags and first arguments, by command."""
