"""Say in words what a run found, what a summary tells, and where its score stands between two anchors."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from selfreflect.records import Controls, Information, Reader, SamplingCheck
from selfreflect.report.comparison import Contender, compare
from selfreflect.report.results import (
    INFORMATION,
    ControlLead,
    Measure,
    StrategyResult,
    best_strategy,
    conditioning_count,
    control_lead,
    control_text,
    control_values,
    differing_halves,
    main_measure,
    run_measures,
    sorted_results,
)
from selfreflect.report.run_records import RunRecords
from selfreflect.stats import CONFIDENCE, FEWEST_TESTED, is_tie, student_quantile
from selfreflect.text import counted, in_english, listed
from selfreflect.traits import traits_of

CUT_OFF = 0.05
"""Share of cut-off answers from which a run is cautioned against."""

_UNDEFINED = 1 / 3
"""Share of questions where nothing can be told, above which that is said."""

_REPEATED = 3
"""Questions with only one answer, from which the sampling is doubted."""

_NUMBERS = "no one two three four five six seven eight nine ten eleven twelve".split()

_CONTROLS = {"empty": "an empty summary", "question repeated": "the repeated question"}
_PLURAL = {
    "does as well as": "do as well as",
    "does better than": "do better than",
    "is ahead, though not clearly, of": "are ahead, though not clearly, of",
}

OTHER_READER = "another judge, a context that only the model reads, or the blind reader"
"""What to use where the judge already knows the answers."""
OTHER_JUDGE = "another judge, or a context that only the model reads"
"""The same where the judge does not see the question anyway."""


_SOUND = (-1.0, 2.0)
"""Shares that are shown, in brackets at least."""


class Reason(NamedTuple):
    """Why there is no share, in words."""

    word: str
    """In tables, behind a value in brackets."""
    short: str
    """In notes."""
    sentence: str
    """Of a summary, with ``{sampled}`` answers, a ``{way_out}``, ``{why}``, ``{bits}``, ``{available}``."""
    shows_share: bool = True
    """Whether the share is shown in brackets; not where its bits do not speak of the answers."""


REASONS: Mapping[str, Reason] = {
    "known": Reason(
        "known",
        "the judge already knows the answers",
        "The judge already knows these answers: it learns hardly anything from {sampled}, so no summary can "
        "tell it much. Use {way_out}.",
    ),
    "worse": Reason(
        "worse",
        "with the reference answers the judge predicts the test answers worse; see whether both halves "
        "answer alike, and use another judge if this one gave the answers itself",
        "After {sampled} the judge expects the other answers less than without them, so no share can be "
        "said. Either it gave these answers itself and knows them already, or the two halves of the answers "
        "differ. "
        f"Use {OTHER_JUDGE}, or see whether both halves answer alike.",
        shows_share=False,
    ),
    "format": Reason(
        "format",
        "closed answers, and to this judge their format tells at least a fifth of what they tell; use a "
        "larger judge",
        "These are closed answers, and to this judge a text with the wrong answer, or with none, tells at "
        "least a fifth of what they tell: how an answer is written. So no share can be said of what is "
        "believed. Use a larger judge.",
        shows_share=False,
    ),
    "few_answers": Reason(
        "unclear",
        "too few answers to say; draw more",
        "Too few answers ({sampled}) to say what a summary tells of them. Draw more answers.",
    ),
    "different_answers": Reason(
        "unclear",
        "too different answers to say; draw shorter ones",
        "Too different answers ({sampled}) to say what a summary tells of them. Draw shorter answers, or see "
        "whether both halves answer alike.",
    ),
    "out_of_range": Reason(
        "unclear",
        "the share is below -100% or above 200%, which is no result; its bits are in the records",
        "No result: this summary tells {bits:.1f} bits where {sampled} tell {available:.1f}, which is below "
        "-100 % or above 200 %. See whether both halves answer alike, and draw more answers.",
    ),
    "unclear": Reason(
        "unclear",
        "too few answers, or too different ones, to say; draw more answers, or shorter ones",
        "Too few answers ({sampled}), or too different ones, to say what a summary tells of them. Draw more "
        "answers, or shorter ones.",
    ),
    "unmeasured": Reason(
        "unmeasured", "it could not be measured", "What this summary tells was not measured: {why}."
    ),
}
"""One row for each reason of :class:`~selfreflect.records.Information`."""


def reason_of(undefined: str) -> Reason:
    """The row of a reason; one that has none is named as it is."""
    word = undefined.replace("_", " ")
    return REASONS.get(undefined, Reason(word, word, f"There is no share: {word}. {{why}}"))


class Tentative(NamedTuple):
    """A share that does not count as a result, for readers who want to see why."""

    bits: float
    available: float
    interval: tuple[float, float] | None
    undefined: str

    @property
    def share(self) -> float:
        return self.bits / self.available

    @property
    def text(self) -> str:
        """The share in brackets, and why it does not count, as ``(97 %, -70 to 238 %) unclear``.

        Where it would be a wild number, the bits.
        """
        word = reason_of(self.undefined).word
        if not _SOUND[0] <= self.share <= _SOUND[1]:
            return f"({self.bits:.1f} of {self.available:.1f} bits) {word}"
        between = "" if self.interval is None else f", {percent_range(*self.interval)}"
        return f"({percent(self.share)}{between}) {word}"


def tentative(information: Information) -> Tentative | None:
    """What would be the share where it is undefined; None without available bits to share.

    The interval is that of a ratio of means over answers, by linearisation with Student's t.
    """
    bits, available = information.bits, information.bits_available
    if information.reason is None or bits is None or available is None or available <= 0:
        return None
    if not reason_of(information.reason).shows_share:
        return None
    share = bits / available
    if information.interval is not None:
        return Tentative(bits, available, information.interval, information.reason)
    residuals = []
    for words in filter(None, information.answers):
        residuals.append(math.fsum(word.told - share * word.available for word in words))
    interval = None
    if len(residuals) > 1:
        stderr = statistics.stdev(residuals) / math.sqrt(len(residuals))
        half = student_quantile((1 + CONFIDENCE) / 2, len(residuals) - 1) * stderr / available
        interval = (share - half, share + half)
    return Tentative(bits, available, interval, information.reason)


HEDGES = (
    "judge smollm2 reads no hedges and no percentages: with them a summary gets about the same numbers as "
    "without. Use a larger judge for summaries that differ in them."
)
"""Measured in benchmarks/RESULTS.md, "What the embedded judge does not read"."""


def show_case_note(run: RunRecords, *, known: bool = False) -> str:
    """Warn of a judge too small for these answers: another model's, or not in English; empty elsewhere.

    Args:
        known: answers by nobody knows whom do not count.
    """
    small = [judge for judge in run.judges if traits_of(judge).is_show_case]
    models = {answers.model for answers in run.answers.values()}
    if known:
        models.discard("")
    is_other = bool(models - set(small))
    if not small or not (is_other or not in_english([one.text for one in run.questions.values()])):
        return ""
    return (
        f"show-case numbers: judge {listed(small)} is too small for answers of other models and other "
        "languages than English. Take a larger judge (--judge) before you act on them"
    )


def headline(run: RunRecords) -> str:
    """What was found, with the best strategy and how clear its lead is; then all cautions."""
    return " ".join([*findings(run), *cautions(run)])


def findings(run: RunRecords) -> list[str]:
    """Name the best strategy, what it tells, and whether it differs clearly from the next one."""
    results = sorted_results(run)
    measure = main_measure(run, results)
    ranking = [one for one in results if one.estimate(measure).mean is not None]
    if not ranking and not run.awaits_scores:
        answered = counted(len(run.questions), "question")
        return [f"The endpoint answered {answered}; no judge measured its summaries."]
    if not ranking:
        return ["Nothing has been measured yet." if not run.information else "No share could be computed."]
    whole = [one for one in ranking if not one.missing] or ranking
    best = whole[0]
    leaders = [one for one in whole if is_tie(_mean(one, measure), _mean(best, measure))]
    if len(whole) == 1:
        return [_result_sentence(run, measure, leaders, 1, is_clear=True)]
    comparison = compare(Contender(run, whole[1].strategy), Contender(run, best.strategy), measure)
    is_testable = best.estimate(measure).n >= FEWEST_TESTED
    is_clear = is_testable and comparison.verdict == "better"
    sentences = [_result_sentence(run, measure, leaders, len(whole), is_clear)]
    if is_testable and comparison.paired.ties < comparison.paired.difference.n:
        sentence = comparison.sentence
        sentences.append(f"{sentence[:1].upper()}{sentence[1:]}.")
    return sentences


def _mean(result: StrategyResult, measure: Measure) -> float:
    mean = result.estimate(measure).mean
    assert mean is not None  # findings has left the others out
    return mean


def _result_sentence(
    run: RunRecords, measure: Measure, leaders: Sequence[StrategyResult], strategies: int, is_clear: bool
) -> str:
    """Say what the best strategy reaches, or several that are exactly equal.

    Args:
        strategies: number of strategies that are compared.
        is_clear: whether the lead over the next strategy is clear.
    """
    best = leaders[0]
    estimate = best.estimate(measure)
    assert estimate.mean is not None
    on = f" on {counted(estimate.n, 'question')}"
    interval = None
    if estimate.low is not None and estimate.high is not None:
        interval = (estimate.low, estimate.high)
    complete = "" if strategies == len(run.strategies) else "complete "
    subject = listed([one.strategy for one in leaders])
    if strategies > len(leaders):
        subject = f"Of {strategies} {complete}strategies, {subject}"
    if measure is INFORMATION:
        reader: Reader = "blind" if set(best.readers) == {"blind"} else "informed"
        empty = "the repeated question" if run.zero == "repeated" else "an empty one"
        answers = conditioning_count(run)
        sentence = share_sentence(estimate.mean, interval, answers, reader, subject, empty)
        if len(leaders) > 1:
            sentence = sentence.replace(f"{subject} tells", f"{subject} tell equally much:", 1)
        elif strategies > 1 and estimate.mean > 0:
            verb = "tells most:" if is_clear else "is ahead, though not clearly: it tells"
            sentence = sentence.replace(f"{subject} tells", f"{subject} {verb}", 1)
        return sentence.removesuffix(".") + f",{on}."
    between = "" if interval is None else f", 95 % interval {interval[0]:.4f} to {interval[1]:.4f}"
    verb = "has the best (lowest)" if strategies > 1 else "has a"
    if len(leaders) > 1:
        verb = "share the best (lowest)" if strategies > len(leaders) else "have the same"
    value = f"score: {estimate.mean:.4f}" if strategies > 1 else f"score of {estimate.mean:.4f}"
    return f"{subject} {verb} mean SelfReflect {value}{on} (0 is perfect{between})."


def cautions(run: RunRecords) -> list[str]:
    """Say what makes the result less certain than it looks, the gravest first."""
    sentences = []
    results = sorted_results(run)
    sentences += _control_cautions(run, results)
    sentences += _answer_cautions(run)
    most = max((result.estimate(main_measure(run, results)).n for result in results), default=0)
    if 0 < most < FEWEST_TESTED:
        sentences.append(
            f"{counted(most, 'question')} {'is' if most == 1 else 'are'} too few to tell strategies "
            f"apart: take at least {FEWEST_TESTED}, better 30 or more."
        )
    incomplete: dict[tuple[int, int], list[str]] = {}
    for result in results:
        if result.missing:
            count = result.wanted - result.missing
            incomplete.setdefault((count, result.wanted), []).append(result.strategy)
    for (count, total), names in incomplete.items():
        verb = "is" if len(names) == 1 else "are"
        sentences.append(f"Incomplete {verb} {', '.join(names)}: {count} of {total} questions.")
    undefined = max((sum(result.undefined.values()) for result in results), default=0)
    if undefined > _UNDEFINED * len(run.questions):
        sentences.append(
            f"On {undefined} of {counted(len(run.questions), 'question')} it cannot be said what summaries "
            "tell (see the notes below the table)."
        )
    return sentences


def _control_cautions(run: RunRecords, results: Sequence[StrategyResult]) -> list[str]:
    """Name the texts that say nothing and yet do as well as the best strategy, once for each measure."""
    sentences = []
    for measure in run_measures(run):
        best = best_strategy(results, measure)
        if best is None:
            continue
        several = sum(result.estimate(measure).mean is not None for result in results) > 1
        subject = f"the best strategy, {best}" if several else best
        by_verdict: dict[tuple[str, str, str], list[str]] = {}
        for control in control_values(run):
            lead = control_lead(run, control, best, measure)
            if lead is None:
                continue
            verb, advice = _lead_verdict(lead)
            text = f"{_CONTROLS.get(lead.control, lead.control)} ({lead.mean:{measure.form}})"
            strategy = f"{subject} ({lead.strategy_mean:{measure.form}})"
            by_verdict.setdefault((verb, strategy, advice), []).append(text)
        for (verb, strategy, advice), texts in by_verdict.items():
            if len(texts) > 1:
                verb = _PLURAL[verb]
            sentences.append(f"Beware: by {measure.short}, {listed(texts)} {verb} {strategy}. {advice}")
    return sentences


def _lead_verdict(lead: ControlLead) -> tuple[str, str]:
    """How much better a control does, and what to do about it."""
    if is_tie(lead.mean, lead.strategy_mean):
        return "does as well as", "Do not rank summaries by it with this judge."
    if lead.is_clear:
        return "does better than", "Do not rank summaries by it with this judge."
    return "is ahead, though not clearly, of", "Take more questions before you rank summaries by it."


def _answer_cautions(run: RunRecords) -> list[str]:
    sets = [run.answers[id_] for id_ in run.questions if id_ in run.answers]
    each = 2 * run.manifest.get("config", {}).get("answers", {}).get("num_answers", 0)
    total = sum(len(answers.answers) or each for answers in sets)  # whose texts may not be loaded
    cut = sum(answers.truncated for answers in sets)
    sentences = []
    if total and cut > CUT_OFF * total:
        limits = {answers.max_new_tokens for answers in sets if answers.truncated}
        limit = f" after {limits.pop()} tokens" if len(limits) == 1 and None not in limits else ""
        sentences.append(
            f"{cut:,} of {total:,} answers ({percent(cut / total)}) were cut off{limit}: the summaries are "
            "measured against broken sentences. Draw longer answers."
        )
    differing = differing_halves(run)
    if differing:
        sentences.append(
            f"On {len(differing)} of {counted(len(sets), 'question')} the two halves of the answers differ "
            "more than chance (exact test on equal answers, 5 % false discoveries): one half then says "
            "little about the other. One list of answers is shuffled before it is halved."
        )
    sampled = [answers for answers in sets if answers.temperature and len(answers.answers) > 2]
    equal = sum(len(set(answers.answers)) == 1 for answers in sampled)
    sentences += [f"Beware: {sampling_warning(check)}" for check in run.sampling if check.is_suspect]
    if not run.sampling and equal >= _REPEATED and 2 * equal >= len(sampled):
        sentences.append(
            f"All answers to {equal} of {counted(len(sampled), 'question')} are the same text although they "
            "were sampled: does the model's server ignore the temperature, or cache replies?"
        )
    return sentences


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
        empty = "the repeated question" if information.zero == "repeated" else "an empty one"
        share = information.recovered, information.interval
        sentence = share_sentence(*share, answers, information.reader, nothing=empty)
        if information.shared_phrase is None:
            return sentence
        return (
            f"{sentence} Of what they tell, {percent(information.shared_phrase)} lies in a phrase that they "
            "all share: the share says little about which of them a summary names."
        )
    sentence = reason_of(information.reason or "unmeasured").sentence.format(
        sampled=answers_text(answers),
        way_out=OTHER_READER if information.reader == "informed" else OTHER_JUDGE,
        why=information.why.rstrip("."),
        bits=information.bits or 0,
        available=information.bits_available or 0,
    )
    return sentence.strip()


def share_sentence(
    share: float,
    interval: tuple[float, float] | None,
    answers: int | None,
    reader: Reader,
    subject: str = "This summary",
    nothing: str = "an empty one",
) -> str:
    """Say which share of what the conditioning answers tell is told; below 0 it misleads, if that is clear.

    Args:
        answers: number of conditioning answers; None if it differs between the questions of a run.
        reader: a blind one is named.
        subject: the summary's name at the start of the sentence.
        nothing: what 0 % is.
    """
    sampled = answers_text(answers)
    between = "" if interval is None else f"95 % interval: {percent_range(*interval)}"
    judge = "the judge" if reader == "informed" else "a judge that does not see the question"
    if interval is not None and interval[1] < 0:
        return (
            f"{subject} misleads: after reading it, {judge} expects fresh answers less than after "
            f"{nothing} ({percent(share)} of what {sampled} would tell; {between})."
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


def controls_sentence(controls: Controls) -> str:
    """List what the controls of a question tell, in % of what all answers tell; empty if undefined."""
    shares = []
    most = controls.most_answers
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
    if controls.reader == "blind" and "the repeated question" in names and controls.zero != "repeated":
        reason = " It does not see the question, so it learns from every word that repeats it."
    return (
        f"Beware: this judge learns as much from {' and '.join(names)} as from the best summary.{reason} "
        "A wrong summary in the right words looks good to it."
    )


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


def controls_place(score: float, controls: Controls | None, answers: int | None = None) -> str | None:
    """Say where a score stands between the controls of its question; None if they were not scored.

    Args:
        answers: number of conditioning answers; None takes that of the controls, which count equal ones once.
    """
    if controls is None:
        return None
    most = controls.most_answers
    empty, pasted = controls.find("empty"), controls.find("pasted", most)
    if empty is None or pasted is None or empty.score is None or pasted.score is None:
        return None
    return place_text(score, empty.score, pasted.score, answers or most)
