"""Say in one paragraph what a run found, and what to beware of."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose

from selfreflect.records import Reader
from selfreflect.report.comparison import Contender, compare
from selfreflect.report.measures import INFORMATION, Measure, conditioning_count, control_values, run_measures
from selfreflect.report.run_records import RunRecords
from selfreflect.report.sentences import percent, sampling_warning, share_sentence
from selfreflect.report.strategy_results import StrategyResult, main_measure, sorted_results
from selfreflect.stats import FEWEST_TESTED, clear_sign
from selfreflect.text import counted, listed

CUT_OFF = 0.05
"""Share of cut-off answers from which a run is cautioned against."""

_UNDEFINED = 1 / 3
"""Share of questions where nothing can be told, above which that is said."""

_EQUAL = 1e-12
"""Means that differ by less are the same number, added up in another order."""

_REPEATED = 3
"""Questions with only one answer, from which the sampling is doubted."""


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
    leaders = [one for one in whole if isclose(_mean(one, measure), _mean(best, measure), abs_tol=_EQUAL)]
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
        sentence = share_sentence(estimate.mean, interval, conditioning_count(run), reader, subject)
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
    measures = run_measures(run)
    sentences += _control_cautions(run, results, measures)
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


def _control_cautions(
    run: RunRecords, results: Sequence[StrategyResult], measures: Sequence[Measure]
) -> list[str]:
    """Name the texts that say nothing and yet do as well as the best strategy."""
    sentences = []
    is_blind = any("blind" in result.readers for result in results)
    for measure in measures:
        ranking = [result for result in results if result.estimate(measure).mean is not None]
        if not ranking:
            continue
        sign = 1 if measure.higher_is_better else -1
        best = max(ranking, key=lambda result: sign * (result.estimate(measure).mean or 0.0)).strategy
        subject = f"the best strategy, {best}" if len(ranking) > 1 else best
        own = measure.of_strategy(run, best)
        for control in control_values(run):
            repeated = control.name == "question repeated"
            if control.name.endswith(" pasted") or (repeated and is_blind):
                continue  # raw answers should do better, and a blind judge learns much from the question
            theirs = control.by_measure[measure.mean]
            ids = theirs.values.keys() & own.values.keys()
            mean, best_mean = theirs.mean(ids), own.mean(ids)
            if mean is not None and best_mean is not None and sign * mean >= sign * best_mean:
                what = {"empty": "an empty summary", "question repeated": "the repeated question"}
                paired = measure.pair(own, theirs, ids)
                advice = "Do not rank summaries by it with this judge."
                verdict = "does better than" if mean != best_mean else "does as well as"
                if mean != best_mean and not clear_sign(paired.difference, paired.p_value):
                    verdict = "is ahead, though not clearly, of"
                    advice = "Take more questions before you rank summaries by it."
                sentences.append(
                    f"Beware: by {measure.short}, {what.get(control.name, control.name)} "
                    f"({mean:{measure.form}}) {verdict} {subject} "
                    f"({best_mean:{measure.form}}). {advice}"
                )
    return sentences


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
    sampled = [answers for answers in sets if answers.temperature and len(answers.answers) > 2]
    equal = sum(len(set(answers.answers)) == 1 for answers in sampled)
    sentences += [f"Beware: {sampling_warning(check)}" for check in run.sampling if check.is_suspect]
    if not run.sampling and equal >= _REPEATED and 2 * equal >= len(sampled):
        sentences.append(
            f"All answers to {equal} of {counted(len(sampled), 'question')} are the same text although they "
            "were sampled: does the model's server ignore the temperature, or cache replies?"
        )
    return sentences
