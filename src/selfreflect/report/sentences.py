"""Say in one sentence what a summary tells, and where its SelfReflect score stands between two anchors."""

from __future__ import annotations

from collections.abc import Sequence

from selfreflect.records import Control, Controls, Information, Reader, SamplingCheck

_NUMBERS = "no one two three four five six seven eight nine ten eleven twelve".split()

OTHER_READER = "another judge, a context that only the model reads, or the blind reader"
"""What to use where the judge already knows the answers."""
OTHER_JUDGE = "another judge, or a context that only the model reads"
"""The same where the judge does not see the question anyway."""

HEDGES = (
    "judge smollm2 reads no hedges and no percentages: with them a summary gets about the same numbers as "
    "without. Use a larger judge for summaries that differ in them."
)
"""Measured in benchmarks/RESULTS.md, "What the embedded judge does not read"."""


def sampling_warning(check: SamplingCheck) -> str:
    """Say why the answers of a server may be no distribution."""
    place = f"{check.model} at {check.base_url}"
    if check.replies == "identical":
        tries = "gave the same random words twice in each of three tries"
        symptom = f"{place} {tries} at temperature {check.temperature:g}"
    else:
        symptom = f"{place} was sampled at temperature {check.temperature:g}"
    if check.questions:
        symptom += (
            f"; in {check.identical_questions} of {check.questions} questions all of its answers are one text"
        )
    choice = " Whoever started the run was told, and went on." if check.accepted else ""
    return (
        f"{symptom}. The server seems to ignore temperature and seed, or a cache replies: its answers are "
        "then one answer repeated, not a distribution, and results mean little. Make it sample (transformers "
        "serve does if the model's generation_config.json sets do_sample to true), and start a new run."
        f"{choice}"
    )


def information_sentence(information: Information, answers: int | None) -> str:
    """Say what a summary tells, or why nobody can say.

    Args:
        answers: number of conditioning answers; None if it is not known.
    """
    if information.recovered is not None:
        return share_sentence(information.recovered, information.interval, answers, information.reader)
    sampled = answers_text(answers)
    if information.undefined == "known":
        way_out = OTHER_READER if information.reader == "informed" else OTHER_JUDGE
        return (
            f"The judge already knows these answers: it learns nothing from {sampled}, so no summary can "
            f"tell it anything. Use {way_out}."
        )
    if information.undefined == "unclear":
        return (
            f"Too few answers ({sampled}), or too different ones, to say what a summary tells of them. "
            "Draw more answers, or shorter ones."
        )
    return f"What this summary tells was not measured: {information.why.rstrip('.')}."


def share_sentence(
    share: float,
    interval: tuple[float, float] | None,
    answers: int | None,
    reader: Reader,
    subject: str = "This summary",
) -> str:
    """Say which share of what the conditioning answers tell is told; below 0 it misleads, if that is clear.

    Args:
        answers: number of conditioning answers; None if it differs between the questions of a run.
        reader: a blind one is named.
        subject: the summary's name at the start of the sentence.
    """
    sampled = answers_text(answers)
    between = "" if interval is None else f"95 % interval: {percent_range(*interval)}"
    judge = "the judge" if reader == "informed" else "a judge that does not see the question"
    if interval is not None and interval[1] < 0:
        return (
            f"{subject} misleads: after reading it, {judge} expects fresh answers less than before "
            f"({percent(share)} of what {sampled} would tell; {between})."
        )
    share_text = percent(share)
    verb = "tells nothing:" if share_text.startswith("-") else "tells"
    listener = "" if reader == "informed" else f", to {judge}"
    # no width: all held-out answers are equal, which says nothing about others
    is_flat = interval is not None and percent(interval[0]) == percent(interval[1])
    bracket = f" ({between})" if between and not is_flat else ""
    return f"{subject} {verb} {share_text} of what {sampled} would{listener}{bracket}."


def answers_text(answers: int | None, kind: str = "sampled") -> str:
    """Count answers in words, as ``ten sampled answers``; None: ``the sampled answers``."""
    if answers is None:
        return f"the {kind} answers"
    number = _NUMBERS[answers] if answers < len(_NUMBERS) else str(answers)
    return f"{number} {kind} answer{'' if answers == 1 else 's'}"


def control_text(control: Control, all_answers: int) -> str:
    """Name a control; ``all_answers`` is the number of conditioning answers."""
    if control.name == "question":
        return "question repeated"
    if control.name != "pasted":
        return control.name
    count = "all" if control.answers == all_answers else str(control.answers)
    return f"{count} answer{'' if count == '1' else 's'} pasted"


def controls_sentence(controls: Controls) -> str:
    """List what the controls of a question tell, in % of what all answers tell; empty if undefined."""
    shares = []
    most = pasted_answers(controls)
    for control in controls.controls:
        if control.bits is not None and controls.bits_available is not None and controls.bits_available > 0:
            shares.append(f"{control_text(control, most)} {percent(control.bits / controls.bits_available)}")
    return f"controls: {', '.join(shares)}" if shares else ""


def controls_caution(controls: Controls, results: Sequence[Information]) -> str:
    """Name texts that say nothing and yet tell as much as a question's best summary; empty without any."""
    bits = [one.bits for one in results if one.bits is not None]
    texts = {"empty": "nothing", "question": "the repeated question", "nonsense": "nonsense"}
    names = []
    for control in controls.controls:
        if control.name in texts and control.bits is not None and bits and control.bits >= max(bits):
            names.append(texts[control.name])
    if not names:
        return ""
    reason = ""
    if controls.reader == "blind" and "the repeated question" in names:
        reason = " It does not see the question, so it learns from every word that repeats it."
    return (
        f"Beware: this judge learns as much from {' and '.join(names)} as from the best summary.{reason} "
        "A wrong summary in the right words looks good to it."
    )


def pasted_answers(controls: Controls) -> int:
    """Count the conditioning answers, by the control that pastes all of them; 0 without it."""
    return max((control.answers for control in controls.controls), default=0)


def percent(share: float) -> str:
    """Format a share as ``56 %``."""
    return f"{100 * share:z.0f} %"


def percent_range(low: float, high: float) -> str:
    """Format an interval as ``41 to 71 %``."""
    return f"{100 * low:z.0f} to {percent(high)}"


def place(score: float, empty: float, pasted: float) -> float | None:
    """Place a SelfReflect score between those of the empty summary (0) and of the pasted answers (1).

    Scores outside are below 0 or above 1. None if the empty summary does not score worse (higher) than the
    answers: then the judge cannot tell them apart.
    """
    if round(empty, 4) <= round(pasted, 4):
        return None
    return (empty - score) / (empty - pasted)


def place_text(score: float, empty: float, pasted: float, answers: int) -> str:
    """Say where a score stands between two anchors on the same question.

    Args:
        empty: score of the empty summary.
        pasted: score of all conditioning answers, pasted as a summary.
        answers: number of the conditioning answers.
    """
    share = place(score, empty, pasted)
    raw = answers_text(answers, "pasted")
    if share is None:
        return (
            f"says little here, since the empty summary ({empty:.4f}) scores no worse than {raw} "
            f"({pasted:.4f})"
        )
    if share < 0:
        return f"worse than the empty summary ({empty:.4f}); {raw}: {pasted:.4f}"
    if share > 1:
        return f"better than {raw} ({pasted:.4f}); the empty summary: {empty:.4f}"
    return f"{percent(share)} of the way from the empty summary ({empty:.4f}) to {raw} ({pasted:.4f})"


def controls_place(score: float, controls: Controls | None) -> str | None:
    """Say where a score stands between the controls of its question; None if they were not scored."""
    if controls is None:
        return None
    answers = pasted_answers(controls)
    empty, pasted = controls.find("empty"), controls.find("pasted", answers)
    if empty is None or pasted is None or empty.score is None or pasted.score is None:
        return None
    return place_text(score, empty.score, pasted.score, answers)
