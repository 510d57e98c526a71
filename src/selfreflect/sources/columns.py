"""Roles of a file's columns, by name or by assignment."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from selfreflect.errors import ConfigError, excerpt
from selfreflect.sources.names import (
    ANSWERS,
    AUTHORS,
    CONDITIONING,
    CONTEXT_COLUMN,
    COUNTER,
    ID_COLUMNS,
    LIKELY_WORDS,
    MASKED_OUT,
    QUESTION_COLUMNS,
    SINGLE_ANSWERS,
    column_range,
    counted_families,
    counters_in,
    counts_models,
    likely_questions,
    plain_name,
    words_in,
)

# Short forms of these where a number stands beside them.
_SHORT = {
    "ans": "answer",
    "resp": "response",
    "gen": "generation",
    "out": "output",
    "pred": "prediction",
}
_DELIVERED = frozenset(
    "final sent shown displayed delivered says said gesendet gesendete enviada inviata".split()
)
_REPLY = ("reply", "reply", "")
_RECIPIENTS = frozenset("message to the user users customer customers client clients".split())
# Words for one of several answers where a number follows, and no column with several has a usual name.
_REPEATS = ("run", "try", "attempt", "trial", "draw", "draft", "candidate", "rollout", "seed", "guess")
# Words beside the number and the word for an answer, as in "Antwort Nr. 3" and "gen 4 (t=0.7)".
_COUNTING = frozenset(
    (*_REPEATS, *"no nr n num number nummer numéro número numero t temp temperature text content".split())
) | frozenset("rep repeat repetition iteration iter index idx".split())
_NUMBERED = re.compile(r"(.+?)_?(\d{1,6})")
_SUMMARY = re.compile(r"summar(?:y|ies)[\s._-]++(.+)|(.+)[\s._-]summary", re.IGNORECASE)


@dataclass(frozen=True)
class ItemColumns:
    """Columns by role; an empty name or tuple means no column."""

    question: str = ""
    id: str = ""
    context: str = ""
    order: str = ""
    halves: tuple[str, ...] = ()
    """Columns of the test and reference answers; both, one or none."""
    answers: tuple[str, ...] = ()
    """Answer columns: one with one answer or a list, or several numbered ones."""
    plural: bool = False
    """Whether the only column's name is plural, for several answers."""
    rivals: tuple[str, ...] = ()
    """Other columns that may hold the answers."""
    beside: tuple[str, ...] = ()
    """Single-answer columns next to a column of several answers: a summary, or the judged answer."""
    reference: str = ""
    """``answer`` or ``answers``, if another column has the model's answers."""
    summaries: str = ""
    """Column with one or several summaries."""
    named_summaries: tuple[tuple[str, str], ...] = ()
    """Columns with one summary each, with the summary's name."""
    extras: tuple[str, ...] = ()

    def role(self, column: str) -> str:
        """Describe the role of a column; empty for an extra one."""
        return self._roles.get(column, "")

    @cached_property
    def _roles(self) -> dict[str, str]:
        """Roles of all columns, looked up once since a file may have thousands."""
        answers = "one answer each" if len(self.answers) > 1 else "answers"
        roles = {
            self.question: "question",
            self.id: "id",
            self.context: "context",
            self.order: "known order of the summaries, best first",
            self.summaries: "summaries",
            **dict.fromkeys(self.answers, answers),
            **dict(zip(self.halves, ("masked-out answers", "conditioning answers"), strict=False)),
        }
        for name, summary in self.named_summaries:
            roles[name] = f"summary {summary!r}"
        return roles


def item_columns(names: Iterable[str], assigned: Mapping[str, str]) -> ItemColumns:
    """Assign columns to roles by name, with ``assigned`` ones first; answers may span several
    (``A1..A6``)."""
    free = {name: plain_name(name) for name in names}

    def take(role: str, candidates: Iterable[str]) -> str:
        if role in assigned:
            return assigned[role] if free.pop(assigned[role], None) is not None else ""
        for candidate in candidates:
            for name, plain in free.items():
                if plain == candidate and name not in assigned.values():
                    del free[name]
                    return name
        return ""

    question = take("question", [*QUESTION_COLUMNS, *likely_questions(free.values())])
    halves = tuple(filter(None, (take("", MASKED_OUT), take("", CONDITIONING))))
    assigned_answers = column_range(assigned.get("answer", ""), free)
    for name in assigned_answers:
        del free[name]
    if "answer" in assigned and not assigned_answers:
        assigned_answers = tuple(filter(None, [take("answer", [])]))
    id_ = take("id", ID_COLUMNS)
    context = take("context", [CONTEXT_COLUMN])
    summaries = take("summary", ["summaries", "summary"])
    order = take("", ["order"])
    answers, rivals, beside, reference = _answer_columns([*free], assigned_answers)
    plural = len(answers) == 1 and _answer_name(answers[0]).form == "plural"
    if len(answers) > 1 or plural:
        beside += [name for name in free if any(map(plain_name(name).startswith, LIKELY_WORDS["summary"]))]
    for name in (*answers, *rivals):
        free.pop(name, None)
    by_name = _named_summaries(name for name in free if name != reference)
    extras = tuple(name for name in free if name not in by_name)
    return ItemColumns(
        question=question,
        id=id_,
        context=context,
        order=order,
        halves=halves,
        answers=answers,
        plural=plural,
        rivals=tuple(rivals),
        beside=tuple(beside),
        reference=reference,
        summaries=summaries,
        named_summaries=tuple(by_name.items()),
        extras=extras,
    )


def assigned_columns(pairs: Sequence[str] | None) -> dict[str, str]:
    """Parse assignments of columns to roles, such as ``answer=text`` or ``answers=A1..A6``.

    Raises:
        ConfigError: one is no pair, or a role has two columns.
    """
    assigned: dict[str, str] = {}
    for pair in pairs or ():
        role, equals, name = pair.partition("=")
        if not equals:
            raise ConfigError(
                f"{excerpt(pair)} does not assign a column to a role",
                code="columns",
                remedy="Write ROLE=NAME, as in {column} answer=text.",
            )
        role = "answer" if role == "answers" else role
        if role in assigned:
            several = (
                " For several columns with one answer each, write {column} answer=A1..A6."
                if role == "answer"
                else ""
            )
            raise ConfigError(
                f"two columns are given for {role}: {assigned[role]} and {name}",
                code="columns",
                remedy=f"Keep one.{several}",
            )
        assigned[role] = name
    return assigned


def answer_separator(separator: str | None) -> str:
    """Parse the separator of answers, with ``\\n`` for line end and ``\\t`` for tab."""
    if separator == "":
        raise ConfigError(
            "the separator of answers is empty",
            code="separator",
            remedy="Give the text that separates the answers, as in {separator} ';'.",
        )
    return (separator or "").replace("\\n", "\n").replace("\\t", "\t")


def fold_assigned(assigned: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Match assigned names loosely, such as ``answer text`` for ``Answer_Text``."""
    plain = {plain_name(name): name for name in names}
    return {
        role: column if column in names else plain.get(plain_name(column), column)
        for role, column in assigned.items()
    }


class _AnswerName(NamedTuple):
    """What the name of an answer column says."""

    stem: str
    """The word for an answer in singular; empty for other columns."""
    form: str
    """``single``, ``plural``, ``reply`` or ``numbered``."""
    series: str = ""
    """What columns with other numbers share."""
    number: int = -1


def _answer_name(name: str) -> _AnswerName:
    """Parse the name of an answer column."""
    plain = plain_name(re.sub(r"[()]", "", name))
    words = plain.split("_")
    while words[0] in AUTHORS and len(words) > 1:
        words.pop(0)
    # "message_sent_to_customer" is a reply; a lone "sent" may be yes or no
    if "_" in plain and not _DELIVERED.isdisjoint(words) and not COUNTER.search(plain):
        rest = {*words} - _DELIVERED - _RECIPIENTS
        return _AnswerName("reply" if rest <= {*SINGLE_ANSWERS} and len(rest) < 2 else "", "reply")
    stem = "_".join(words)
    form = "plural" if stem in ANSWERS else "single"
    stem = ANSWERS.get(stem, stem)
    if stem in SINGLE_ANSWERS:
        return _AnswerName(stem, form)
    match = _NUMBERED.fullmatch(plain)
    if match:
        return _AnswerName(_counted_stem(match[1]), "numbered", match[1], int(match[2]))
    return _AnswerName("", form)


def _counted_stem(name: str) -> str:
    """Find the word for an answer in a numbered name; empty if other words stand beside it."""
    words = words_in(name)
    telling = [word for word in words if word not in AUTHORS | _COUNTING]
    if telling:
        stems = [_SHORT.get(word, ANSWERS.get(word, word)) for word in telling]
        return stems[-1] if {*stems} <= {*SINGLE_ANSWERS} else ""
    answers = [word for word in words if word in SINGLE_ANSWERS or word in _REPEATS]
    return answers[-1] if answers else ""


def _answer_columns(
    names: Sequence[str], assigned: tuple[str, ...]
) -> tuple[tuple[str, ...], list[str], list[str], str]:
    """Choose the columns of answers, unless assigned.

    Returns:
        These, further ones that could as well hold the answers, columns with one text beside several answers,
        and the column of reference answers.
    """
    families = _answer_families(names)
    # what a person saw is one text beside the answers, and an answer only where there are no others
    beside = families.pop(_REPLY, [])
    if not assigned and all(form == "single" for _, form, _ in families):
        families = _answer_families(names, _REPEATS)
        families.pop(_REPLY, None)
    if not assigned and not families:
        return tuple(beside[:1]), beside[1:], [], ""
    reference = ""
    # "model_answer" says whose it is, and is no reference
    plain_answers = [name for name in names if plain_name(name) in ("answer", "answers")]
    # where other columns hold the model's answers, "answer" is the reference
    if len(plain_answers) == 1 and sum(map(len, families.values())) + len(assigned) > 1:
        [reference] = plain_answers
        families = {
            key: rest
            for key, family in families.items()
            if (rest := [name for name in family if name != reference])
        }
    if len(assigned) > 1 or any(form != "single" for _, form, _ in families):
        for key in [key for key in families if key[1] == "single"]:
            beside += families.pop(key)
    if assigned:
        return assigned, [], beside, reference
    answers: tuple[str, ...] = ()
    rivals: list[str] = []
    for (_, form, _), family in families.items():
        if answers:
            rivals += family
        elif form == "numbered":
            answers = tuple(family)
        else:
            answers, rivals = (family[0],), family[1:]
    return answers, rivals, beside, reference


def _answer_families(
    names: Sequence[str], repeats: Collection[str] = ()
) -> dict[tuple[str, str, str], list[str]]:
    """Group possible answer columns by singular name, form and series, in numbered order.

    Columns called by one of ``repeats`` count where they are numbered.
    """
    parsed: dict[str, _AnswerName] = {name: _answer_name(name) for name in names}
    for family in counted_families(names, letters=False):
        stem = "" if counts_models(family) else _counted_stem(counters_in(family[0], letters=False).rest)
        for number, name in enumerate(family):
            parsed[name] = _AnswerName(stem, "numbered", family[0], number)
    families: dict[tuple[str, str, str], list[tuple[int, str]]] = {}
    for name, (stem, form, series, number) in parsed.items():
        if stem and (stem not in _REPEATS or (stem in repeats and form == "numbered")):
            families.setdefault((stem, form, series), []).append((number, name))
    return {key: [name for _, name in sorted(columns)] for key, columns in families.items()}


def _named_summaries(columns: Iterable[str]) -> dict[str, str]:
    """Find columns ``summary_NAME`` or ``NAME_summary``, with the names of the summaries."""
    names: dict[str, str] = {}
    summary_names: set[str] = set()
    for column in columns:
        match = _SUMMARY.fullmatch(column.strip())
        if match:
            name = match[1] or match[2]
            # a number, or the name of another summary, is no name
            if name.isdigit() or name in summary_names:
                name = column
            names[column] = name
            summary_names.add(name)
    return names
