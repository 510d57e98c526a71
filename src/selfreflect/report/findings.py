"""Findings of a run in sentences, and explanations of a summary's share and score."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from selfreflect.metric.measure import Measure, measure_of
from selfreflect.records import Controls, SamplingCheck
from selfreflect.report.compare import Contender, compare
from selfreflect.report.measures import records_of, run_measures
from selfreflect.report.results import (
    ControlLead,
    StrategyResult,
    best_strategy,
    control_lead,
    control_text,
    control_values,
    differing_halves,
    main_measure,
    reference_count,
    sorted_results,
)
from selfreflect.report.run_records import RunRecords
from selfreflect.report.wording import answers_text, say
from selfreflect.stats import FEWEST_TESTED, is_tie
from selfreflect.text import UNSPACED, counted, in_english, listed
from selfreflect.traits import traits_of

CUT_OFF = 0.05
"""Share of cut-off answers above which a caution is shown."""

# Share of questions without a share, above which that is said.
_UNDEFINED = 1 / 3

# Questions with only one answer, from which the sampling is doubted.
_REPEATED = 3

_UNSPACED = re.compile(f"[{UNSPACED}]{{2}}")

_CONTROLS = {"empty": "an empty summary", "question": "the repeated question"}

HEDGES = (
    "judge smollm2 does not understand hedges or percentages: they hardly change the results of a summary. "
    "Use a larger judge for summaries that differ in hedges or percentages."
)
"""Cautions measured in benchmarks/RESULTS.md, "What the embedded judge does not read"."""


def show_case_note(run: RunRecords, *, named_models_only: bool = False) -> str:
    """Warn about a judge too small for another model's or non-English answers; empty if adequate.

    Args:
        named_models_only: answers by an unknown model do not count.
    """
    judges = [judge for judge in run.judges if traits_of(judge).is_show_case]
    models = {answers.model for answers in run.answers.values()}
    if named_models_only:
        models.discard("")
    is_foreign = bool(models - set(judges))
    if not judges or not (is_foreign or not in_english([item.text for item in run.questions.values()])):
        return ""
    return say("show_case", judges=judges)


def headline(run: RunRecords) -> str:
    """Describe the findings, with the best strategy's lead, and all cautions."""
    return " ".join([*findings(run), *cautions(run)])


def findings(run: RunRecords) -> list[str]:
    """Name the best strategy, its result, and whether it clearly beats the next."""
    results = sorted_results(run)
    measure = main_measure(run, results)
    ranking = [result for result in results if result.estimate(measure).mean is not None]
    if not ranking:
        values = {"questions": len(run.questions), "measured": bool(run.measures)}
        return [say("nothing", asked=not run.awaits_scores, **values)]
    # strategies that lack results lead only where all do
    complete = [result for result in ranking if not result.missing] or ranking
    best = complete[0]
    leaders = [result for result in complete if is_tie(_mean(result, measure), _mean(best, measure))]
    if len(complete) == 1:
        return [_result_sentence(run, measure, leaders, 1, "only")]
    comparison = compare(Contender(run, complete[1].strategy), Contender(run, best.strategy), measure)
    is_testable = best.estimate(measure).n >= FEWEST_TESTED
    if len(leaders) > 1:
        lead = "equal" if len(leaders) == len(complete) else "tied"
    else:
        lead = "best" if is_testable and comparison.verdict == "better" else "ahead"
    sentences = [_result_sentence(run, measure, leaders, len(complete), lead)]
    if is_testable and comparison.paired.ties < comparison.paired.difference.n:
        sentences.append(comparison.opening)
    return sentences


def _mean(result: StrategyResult, measure: Measure) -> float:
    mean = result.estimate(measure).mean
    assert mean is not None  # findings has left the others out
    return mean


def _result_sentence(
    run: RunRecords, measure: Measure, leaders: Sequence[StrategyResult], strategies: int, lead: str
) -> str:
    """Describe the result of the best strategy, or of several tied ones."""
    estimate = leaders[0].estimate(measure)
    interval = None
    if estimate.low is not None and estimate.high is not None:
        interval = (estimate.low, estimate.high)
    subject = listed([run.display_name(result.strategy) for result in leaders])
    if strategies > len(leaders):
        complete = "" if strategies == len(run.strategies) else "complete "
        noun = counted(strategies, f"{complete}{run.noun}")
        subject = f"Of {noun}, {subject}"
    return say(
        measure.sentence,
        subject=subject,
        count=len(leaders),
        lead=lead,
        value=_mean(leaders[0], measure),
        interval=interval,
        questions=estimate.n,
        measure=measure,
        answers=answers_text(reference_count(run)),
        **measure.sentence_values(list(records_of(measure, run, leaders[0].strategy).values())),
    )


def cautions(run: RunRecords) -> list[str]:
    """List the reasons for doubt about the results, the gravest first."""
    results = sorted_results(run)
    sentences = [*_control_cautions(run, results), *_answer_cautions(run)]
    count = max((result.estimate(main_measure(run, results)).n for result in results), default=0)
    if 0 < count < FEWEST_TESTED:
        sentences.append(say("few_questions", count=count, fewest=FEWEST_TESTED, kind=run.noun))
    incomplete: dict[tuple[int, int], list[str]] = {}
    for result in results:
        if result.missing:
            count = result.due - result.missing
            incomplete.setdefault((count, result.due), []).append(run.display_name(result.strategy))
    for (count, total), names in incomplete.items():
        sentences.append(say("incomplete", names=names, count=count, total=total))
    main = main_measure(run, results).name
    undefined = max((sum(result.undefined[main].values()) for result in results), default=0)
    if undefined > _UNDEFINED * len(run.questions):
        sentences.append(say("undefined", count=undefined, questions=len(run.questions)))
    return sentences


def _control_cautions(run: RunRecords, results: Sequence[StrategyResult]) -> list[str]:
    """Name the controls that match the best strategy, per measure."""
    sentences = []
    for measure in run_measures(run):
        best = best_strategy(results, measure)
        if best is None:
            continue
        only = sum(result.estimate(measure).mean is not None for result in results) == 1
        by_verdict: dict[tuple[str, str], list[str]] = {}
        for control in control_values(run):
            lead = control_lead(run, control, best, measure)
            if lead is not None:
                text = f"{_CONTROLS.get(lead.control, lead.control)} ({measure.text(lead.mean)})"
                strategy = f"{run.display_name(best)} ({measure.text(lead.strategy_mean)})"
                by_verdict.setdefault((_lead_verdict(lead), strategy), []).append(text)
        for (verdict, strategy), texts in by_verdict.items():
            values = {
                "controls": texts,
                "noun": measure.short,
                "strategy": strategy,
                "only": only,
                "kind": run.noun,
            }
            sentences.append(say("control_ahead", lead=verdict, **values))
    return sentences


def _lead_verdict(lead: ControlLead) -> str:
    if is_tie(lead.mean, lead.strategy_mean):
        return "equal"
    return "clear" if lead.is_clear else "unclear"


def _answer_cautions(run: RunRecords) -> list[str]:
    sets = [run.answers[id_] for id_ in run.questions if id_ in run.answers]
    # texts may not be loaded
    planned = 2 * run.manifest.get("config", {}).get("answers", {}).get("num_answers", 0)
    total = sum(len(answers.answers) or planned for answers in sets)
    cut = sum(answers.truncated for answers in sets)
    sentences = []
    if total and cut > CUT_OFF * total:
        limits = {answers.max_new_tokens for answers in sets if answers.truncated}
        limit = limits.pop() if len(limits) == 1 else None
        sentences.append(say("cut_off", cut=cut, total=total, limit=limit))
    differing = differing_halves(run)
    if differing:
        sentences.append(say("halves_differ", count=len(differing), questions=len(sets)))
    sentences += [f"Beware: {sampling_warning(check)}" for check in run.sampling if check.is_suspect]
    for facts in run.manifest.get("models", {}).values():
        if changes := facts.get("refused"):
            texts = [f"{name} ({change})" for name, change in changes.items()]
            sentences.append(say("changed_calls", model=facts["name"], changes=texts))
    sentences = list(dict.fromkeys(sentences))  # stages often share a model
    # two equal answers are no sign of a server that does not sample
    sampled = [answers for answers in sets if answers.temperature and len(answers.answers) > 2]
    equal = sum(len(set(answers.answers)) == 1 for answers in sampled)
    unspaced = sum(any(map(_UNSPACED.search, answers.masked_out)) for answers in sets)
    if unspaced:
        sentences.append(say("unspaced", count=unspaced, questions=len(sets)))
    if not run.sampling and equal >= _REPEATED and 2 * equal >= len(sampled):
        sentences.append(say("equal_answers", count=equal, questions=len(sampled)))
    return sentences


def sampling_warning(check: SamplingCheck) -> str:
    """Explain why a server's answers may not be a distribution."""
    return say(
        "sampling",
        model=check.model,
        base_url=check.base_url,
        temperature=f"{check.temperature:g}",
        identical=check.replies == "identical",
        equal=check.identical_questions,
        questions=check.questions,
        accepted=check.accepted,
    )


def value_sentence(record: Any, answers: int | None = None) -> str:
    """Describe a summary's value or the reason for its absence; empty without the measure's package.

    Args:
        answers: number of reference answers; None if it is not known.
    """
    measure = measure_of(record)
    if measure is None:
        return ""
    measurement = measure.measurement(record)
    if measure.sentence == "mean":
        value = measurement.value
        text = measure.reason(measurement.undefined) if value is None else measure.text(value)
        return f"{measure.short}: {text}"
    values = {"answers": answers_text(answers), **measure.sentence_values([record])}
    if measurement.value is None:
        parts = {name: value or 0 for name, value in measurement.parts.items()}
        why = measurement.why.rstrip(".")
        return say("no_share_of", reason=measurement.undefined, why=why, parts=parts, **values)
    return say(
        measure.sentence,
        subject="This summary",
        count=1,
        lead="only",
        value=measurement.value,
        interval=measurement.interval,
        questions=None,
        measure=measure,
        **values,
    )


def controls_sentence(controls: Controls) -> str:
    """Describe the share that each control of a question recovers; empty if undefined."""
    shares = []
    for control in controls.controls:
        if control.bits is not None and controls.bits_available is not None and controls.bits_available > 0:
            share = control.bits / controls.bits_available
            shares.append((control_text(control, controls.most_answers), share))
    return say("controls", shares=shares) if shares else ""


def controls_caution(controls: Controls, bits: Sequence[float]) -> str:
    """Name the controls without content that match a question's best summary; empty if none does.

    Args:
        bits: that each summary tells.
    """
    texts = {"empty": "nothing", "question": "the repeated question", "nonsense": "nonsense"}
    names = []
    for control in controls.controls:
        if control.name in texts and control.bits is not None and bits and control.bits >= max(bits):
            names.append(texts[control.name])
    if not names:
        return ""
    repeats = controls.reader == "blind" and texts["question"] in names and controls.zero != "repeated"
    return say("controls_caution", names=names, repeats=repeats)


def place(score: float, empty: float, pasted: float) -> float | None:
    """Place a SelfReflect score between the empty summary's (0) and the pasted answers' (1).

    Scores outside are below 0 or above 1. None if the empty summary does not score worse (higher) than the
    answers: then the judge cannot tell them apart.
    """
    # equal as reports print them
    if round(empty, 4) <= round(pasted, 4):
        return None
    return (empty - score) / (empty - pasted)


def controls_place(score: float, controls: Controls | None, answers: int | None = None) -> str | None:
    """Describe a score's place between the controls of its question; None without their scores.

    Args:
        answers: number of reference answers; None takes that of the controls, which count equal ones once.
    """
    if controls is None:
        return None
    empty, pasted = controls.find("empty"), controls.find("pasted", controls.most_answers)
    if empty is None or pasted is None or empty.score is None or pasted.score is None:
        return None
    position = place(score, empty.score, pasted.score)
    text = answers_text(answers or controls.most_answers, "pasted")
    return say("place", position=position, empty=empty.score, pasted=pasted.score, answers=text)
