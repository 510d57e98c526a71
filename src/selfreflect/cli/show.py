"""Terminal display of results, single questions, costs of a dry run, and JSON lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import typer
from rich.text import Text

from selfreflect.cli.console import context_line, emit, print_notes_first, print_table, say, stdout
from selfreflect.cli.options import Overrides
from selfreflect.grouping import merged_groups
from selfreflect.logprobs import AnswerTokens
from selfreflect.metric.measure import measure_of
from selfreflect.records import AnswerSet, Controls, WordBits
from selfreflect.report.compare import comparison, main_measure_of, worse_table
from selfreflect.report.findings import (
    controls_caution,
    controls_place,
    controls_sentence,
    headline,
    show_case_note,
    value_sentence,
)
from selfreflect.report.overview import failure_table, overview
from selfreflect.report.results import best_first, score_text
from selfreflect.report.run_records import RunRecords, SummaryOutcome
from selfreflect.report.words import MarkKind, marks, telling_answers, worst_words
from selfreflect.run.cost import cost_table, sum_up
from selfreflect.table import Table, compact
from selfreflect.text import counted, one_line

if TYPE_CHECKING:
    from selfreflect.report.thresholds import Condition, Pairs
    from selfreflect.run.dry_run import DryRun


THRESHOLD = 3
"""Exit status if a condition of --fail-if holds; 1 means recorded failures, and 2 an error."""

# Characters of an answer that are shown; of a summary, three times as many.
_WIDTH = 110

# Words of a test answer that are shown.
_WORDS = 30

# Sign and style of a word. Each style differs in more than its colour.
_MARKS: Mapping[MarkKind, tuple[str, str]] = MappingProxyType(
    {
        "plain": ("", ""),
        "covered": ("+", "cyan"),
        "missed": ("-", "yellow underline"),
        "misleading": ("!", "magenta reverse"),
    }
)

_MEANINGS: Mapping[MarkKind, str] = MappingProxyType(
    {
        "covered": " by the summary, ",
        "missed": " by it, ",
        "misleading": ": less believable after it, ",
        "plain": ": neither covers it",
    }
)


# Sign and style of a word by how unsure the model was of it, from level 0 to 3.
_UNSURE = (("", ""), ("~", "underline"), ("~~", "bold underline"), ("~~~", "reverse underline"))


def show_results(
    records: RunRecords, json: bool, details: Table | None = None, *, explain: bool = False, label: str = ""
) -> None:
    """Print the finding, ``details``, the results of every strategy and the failures, or JSON lines.

    Args:
        explain: print the controls too, and what the numbers mean and rest on.
        label: the name of the run, where there are others.
    """
    if not json:
        _print_headline(records, label)
        _print_sentence(show_case_note(records))
        if details is not None:
            print_table(details)
        if records.measures or records.failures:
            _print_overview(records, explain)
        if records.controls and explain:
            from selfreflect.report.length import pasted_table, run_pasted

            # how many pasted answers each strategy is worth
            curve = run_pasted(records)
            for note in pasted_table(*curve).notes if curve is not None else ():
                stdout.print(Text(one_line(note)))
        show_failures(records)
        if records.measures and not explain:
            say("For controls, and what the numbers mean, add --explain.")
        return
    from selfreflect.report.document import result_lines

    for line in result_lines(records):
        emit(line)


def _print_sentence(note: str) -> None:
    """Print a note as a sentence, if there is one."""
    if note:
        stdout.print(Text(f"{note[:1].upper()}{note[1:]}."))


def _print_headline(run: RunRecords, label: str) -> None:
    stdout.print(Text(one_line(f"{label}: {headline(run)}" if label else headline(run))))


def _print_overview(run: RunRecords, explain: bool) -> None:
    """Print the results of every strategy, without repeating :func:`show_results`."""
    table = compact(overview(run, with_controls=explain), explain=explain)
    show_case = show_case_note(run)
    print_table(replace(table, notes=tuple(note for note in table.notes if note != show_case)))


def print_differences(table: Table, explain: bool) -> None:
    """Print the differences from a baseline in sentences, then as a table."""
    common = table.headings.index("n common")
    rows = table.rows if any(row[common] for row in table.rows) else ()
    print_notes_first(compact(replace(table, rows=rows), explain=explain))


def show_versions(runs: Sequence[RunRecords], pairs: Pairs, explain: bool) -> None:
    """Print the differences of new versions from old ones, the worst losses, and both results."""
    for base, candidate in pairs:
        if base is None:
            continue
        measure = main_measure_of(candidate.run)
        table = comparison(base, [candidate], measure)
        print_differences(table, explain)
        _print_sentence(show_case_note(candidate.run))
        worse = worse_table(base, candidate, measure)
        if worse.rows:
            print_table(worse)
        else:
            print_notes_first(worse)
    for run in runs:
        _print_headline(run, run.distinct_label)
        _print_overview(run, explain)
        show_failures(run)


def show_failures(records: RunRecords) -> None:
    """Print the failures with their remedies."""
    if records.failures:
        print_table(failure_table(records, Overrides({}).name_of))


ONE_GROUP = "All answers say the same, so a summary that recovers less than 100 % only misses their wording."


class GroupedAnswers(NamedTuple):
    """Groups of equal answers to a question."""

    by: str
    """The rule that made the groups."""
    groups: list[tuple[str, int]]
    """The most common text of each group with its size, the largest first."""


def grouped_answers(records: RunRecords, question_id: str) -> GroupedAnswers:
    """Group the answers to a question without a model."""
    from selfreflect.sameness import same_groups

    answer_set = records.answers.get(question_id)
    answers = answer_set.answers if answer_set else ()
    question = records.questions.get(question_id)
    groups = same_groups(answers, question.text if question else "")
    groups = merged_groups(answers, groups, records.merged_texts(question_id))
    return GroupedAnswers("same", [(answers[group[0]], len(group)) for group in groups])


def print_question(
    records: RunRecords, query: str, *, answers: int = 5, grouped: GroupedAnswers | None = None
) -> None:
    """Print a question, its most frequent answers, and each summary with its worst words, best first.

    Args:
        query: its id, its text, or a part of its text.
        grouped: its answers as they were grouped; by default without a model.
    """
    question = records.question(query)
    question_id = question.id
    by, groups = grouped or grouped_answers(records, question_id)
    if merged := records.merged_texts(question_id):
        by += f", with {counted(len(merged), 'merge')} by hand"
    stdout.print(Text(f"\n{one_line(question.text)}", style="bold"))
    if question.context:
        stdout.print(context_line(question))
    total = sum(count for _, count in groups)
    about = counted(total, "sampled answer")
    if len(groups) == total > 1:
        _print_dim(f"{about}, all different:")
    else:
        _print_dim(
            f"{about} in {counted(len(groups), 'group')} that say the same (an estimate by the rule {by}), "
            "the largest first:"
        )
    marked = [unsure_answer(records.answers.get(question_id), text, _no_colour()) for text, _ in groups]
    if any(marked[:answers]):
        _print_unsure_legend()
    for (text, count), line in list(zip(groups, marked, strict=True))[:answers]:
        number = f"  {count:3d} x  "
        answer = Text(number).append(line or _cut(text, _WIDTH))
        stdout.print(answer, soft_wrap=True, indent=len(number))
    if len(groups) > answers:
        _print_dim(f"   … and {len(groups) - answers} more")
    if not records.strategies:
        return
    if len(groups) == 1 < total:
        stdout.print(Text(ONE_GROUP))
    stdout.print()
    _print_sentence(show_case_note(records, named_models_only=True))
    outcomes = best_first(records, question_id)
    sampled = records.answers.get(question_id)
    conditioning = len(sampled.conditioning) if sampled else None
    texts = {outcome.strategy: outcome.summary.text if outcome.summary else "" for outcome in outcomes}
    results = [outcome.information for outcome in outcomes if outcome.information is not None]
    if all(information.recovered is None for information in results):
        reasons = dict.fromkeys(value_sentence(information, conditioning) for information in results)
        for reason in reasons:  # mostly one for all summaries
            stdout.print(Text(one_line(reason)))
        doubtful = {
            result.summary: measure.doubtful(result) for result in results if (measure := measure_of(result))
        }
        shares = [f"{one_line(name)} {value.text}" for name, value in doubtful.items() if value is not None]
        if shares:
            _print_dim(f"It would be: {'; '.join(shares)}")
        results = []
        outcomes = [outcome._replace(information=None) for outcome in outcomes]
        has_scores = any(outcome.score for outcome in outcomes)
        explained = ", with their SelfReflect score (0 is perfect, lower is better)" if has_scores else ""
        _print_dim(f"Summaries{explained}:")
    else:
        _print_legend()
    positions = telling_answers([(result.answers, texts[result.summary]) for result in results], 2)
    controls = records.controls.get(question_id)
    for outcome in outcomes:
        _print_summary(outcome, controls, conditioning, positions)
    if controls is not None and results:
        stdout.print()
        _print_dim(controls_sentence(controls))
        if caution := controls_caution(
            controls, [result.bits for result in results if result.bits is not None]
        ):
            stdout.print(Text(caution))


def _print_summary(
    outcome: SummaryOutcome, controls: Controls | None, conditioning: int | None, positions: Sequence[int]
) -> None:
    """Print one summary, and the test answers at ``positions`` with marked words."""
    score, information = outcome.score, outcome.information
    result = "not scored"
    if score is not None:
        position = controls_place(score.value, controls, conditioning)
        result = f"score {score_text(score)}" + (f": {position}" if position else "")
    elif outcome.failure is not None:
        result = one_line(f"no score: {outcome.failure.message}")
    headline = result if information is None else value_sentence(information, conditioning)
    line = Text(f"{one_line(outcome.strategy)}  ", style="bold cyan")
    stdout.print(line.append(one_line(headline), style="not bold default"))
    if outcome.summary is not None:
        stdout.print(Text(f"    {_cut(outcome.summary.text, 3 * _WIDTH)}"))
    for measurement in outcome.measurements:
        _print_dim(f"    {one_line(value_sentence(measurement))}")
    if information is not None:
        for index in positions if information.recovered is not None else ():
            if index < len(information.answers):
                text = outcome.summary.text if outcome.summary else ""
                words = marked_words(information.answers[index], text, _no_colour())
                stdout.print(Text("    ").append(words))
        if score is not None or outcome.failure is not None:
            _print_dim(f"    SelfReflect {result}")
        return
    worst = worst_words(score.words, 3) if score else []
    if worst:
        texts = ", ".join(f"{one_line(word)} ({mean:.3f})" for word, mean in worst)
        _print_dim(f"    least expected words: {texts}")


def _print_legend() -> None:
    line = Text("Summaries, and words of test answers: ", style="dim")
    for kind, meaning in _MEANINGS.items():
        sign, style = _MARKS[kind]
        if _no_colour():
            line.append(f"{sign}{kind}")
        else:
            line.append(kind, style=f"not dim {style}")
        line.append(meaning)
    stdout.print(line)


def marked_words(words: Sequence[WordBits], summary: str, signs: bool) -> Text:
    """Colour the words of a test answer by how a summary covers them, or prefix ``signs``."""
    line = Text()
    for word, look in zip(words[:_WORDS], marks(words, summary), strict=False):
        sign, style = _MARKS[look.kind]
        if line:
            line.append(" ")
        if signs:
            line.append(sign + one_line(word.text))
        else:
            line.append(one_line(word.text), style=f"bold {style}" if look.strength >= 0.5 else style)
    return line.append(" …") if len(words) > _WORDS else line


def unsure_answer(answers: AnswerSet | None, text: str, signs: bool) -> Text | None:
    """Underline the words of an answer that the model was unsure of; None without stored tokens."""
    from selfreflect.uncertainty.features import leveled_words

    if answers is None or not answers.logprobs:
        return None
    tokens = answers.logprobs[answers.answers.index(text)]
    if not isinstance(tokens, AnswerTokens):
        return None
    line, has_gap = Text(), False
    for word, level in leveled_words(tokens):
        sign, style = _UNSURE[level]
        has_gap = has_gap or word[:1].isspace()
        if shown := one_line(word):
            if line and has_gap:
                line.append(" ")
            line.append(sign + shown if signs else shown, style="" if signs else style)
            has_gap = word[-1:].isspace()
    line.truncate(_WIDTH, overflow="ellipsis")
    return line


def _print_unsure_legend() -> None:
    line = Text("Words of an answer by how many words were about as likely: ", style="dim")
    for (sign, style), number in zip(_UNSURE[1:], ("1.5", "2", "4 and more"), strict=True):
        line.append(f"{sign}{number}" if _no_colour() else number, style=f"not dim {style}")
        line.append("" if number == "4 and more" else ", ")
    stdout.print(line)


def _no_colour() -> bool:
    return stdout.color_system is None or stdout.no_color


def _print_dim(text: str) -> None:
    stdout.print(Text(text, style="dim"))


def _cut(text: str, limit: int) -> str:
    return one_line(text, limit) or "(blank)"


def exit_if(conditions: Sequence[Condition], *groups: Pairs) -> None:
    """Exit with :data:`THRESHOLD` if a ``--fail-if`` condition holds, and with 2 if one is undecided.

    Args:
        groups: what to look at, for each judge.
    """
    exit_with_verdict(*verdict(conditions, *groups))


def exit_with_verdict(sentences: Sequence[str], code: int) -> None:
    """Print the outcome of conditions, and exit unless all pass."""
    for sentence in sentences:
        say(sentence)
    if code:
        raise typer.Exit(code)


def verdict(conditions: Sequence[Condition], *groups: Pairs) -> tuple[list[str], int]:
    """Describe the outcome of ``--fail-if`` conditions, passed ones first, and choose the exit code."""
    if not conditions:
        return [], 0
    from selfreflect.report.thresholds import check_conditions

    passes: list[str] = []
    holds: list[str] = []
    undecided: list[str] = []
    by_group = [check_conditions(conditions, pairs) for pairs in groups]
    for outcomes in zip(*by_group, strict=True):  # of one condition
        text = outcomes[0].condition.text
        holds += chain.from_iterable(outcome.holds for outcome in outcomes)
        gaps = list(chain.from_iterable(outcome.gaps for outcome in outcomes))
        for allowance, why in gaps:
            remedy = allowance and f" To allow N that are {allowance}: --fail-if '{allowance} > N'."
            undecided.append(f"{text} is undecided: {why}.{remedy}")
        if not gaps and not any(outcome.holds for outcome in outcomes):
            findings = ("; ".join(outcome.findings) for outcome in outcomes)
            passes += [": ".join(filter(None, ("passed", text, finding))) for finding in findings]
    code = THRESHOLD if holds else 2 if undecided else 0
    return [one_line(sentence, 600) for sentence in dict.fromkeys([*passes, *holds, *undecided])], code


def show_costs(dry_run: DryRun, json: bool) -> None:
    """Print the costs of a dry run."""
    stages, total = sum_up(dry_run)
    if json:
        emit({"dry_run": stages, "total": total, "notes": dry_run.notes})
        return
    print_table(cost_table(stages, total))
    for note in dry_run.notes:
        say(one_line(note))
    say("dry run: nothing was written, and no server was called.")


def log_runs(tracker: str | None, runs: Sequence[RunRecords]) -> None:
    """Log finished runs.

    Raises:
        MissingExtraError: the tracker's package is not installed.
        DataError: the tracker refused.
    """
    if tracker is None:
        return
    from selfreflect.report.export import log_run

    for run in runs:
        say(one_line(f"logged {run.label}: {log_run(tracker, run)}"))


def log_result(tracker: str | None, records: RunRecords, out: Path | None = None) -> None:
    """Log a command's results, and warn if logging fails.

    Args:
        out: the run directory that holds it. If several judges scored it, the name says whose scores these
            are.
    """
    from selfreflect.store.run import Run

    again = "" if out is None else " `selfreflect report --log` tries again."
    try:
        if tracker is not None and out is not None and len(Run.load(out).scorings) > 1:
            records = replace(records, label=f"{records.label}, judge {records.judge}")
        log_runs(tracker, [records])
    except Exception as error:  # another program's code, which must not cost a result
        say(one_line(f"Warning: the results were not logged: {error}{again}", 600))
