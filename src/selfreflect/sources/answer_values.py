"""Values per answer in a file: tokens, log-probabilities, self-certainty and grades."""

from __future__ import annotations

import shlex
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Any, TypeVar

from selfreflect.errors import excerpt
from selfreflect.logprobs import UNKNOWN_LOGPROB, Logprobs, Tokens, TokenValues, ranked
from selfreflect.records import Graded, Verdict
from selfreflect.sources.cells import gold_texts, right_choice, type_name, usual_choices
from selfreflect.sources.columns import item_columns
from selfreflect.sources.item_rows import ItemRow, finished_answer, list_in, object_in, scalar_text, text_of
from selfreflect.sources.names import (
    CHOICES,
    CORRECT,
    CORRECT_NAMES,
    GOLD,
    GOLD_NAMES,
    GRADES,
    RESPONSE,
    TOKEN_COLUMNS,
    counted_families,
    counts_graders,
    plain_name,
    tells_of_labels,
    tells_of_person,
    tells_of_work,
    uncounted_name,
)
from selfreflect.sources.rows import Row, Rows, is_text_list, listed
from selfreflect.text import counted

# Tokens without text, such as the end of a text, that an answer may have.
_EXTRA_TOKENS = 2

T = TypeVar("T")

_LARGEST = 1e300
_LARGEST_DIVERGENCE = 1e9


def token_values(
    item: ItemRow, answers: Sequence[str], columns: Collection[str] = TOKEN_COLUMNS
) -> TokenValues:
    """Read the values of ``columns`` for a question's answers.

    Raises:
        DataError: an entry is malformed or does not fit its answer.
    """
    fields = {}
    for name in columns:
        fields[name] = _of_each_answer(item, name) if item.one_answer else _of_present(item, name)
    row = Row(item.row.source, item.row.where, fields)
    tokens = _tokens(row, answers)
    logprobs = _logprobs(row, answers, tokens)
    return TokenValues(
        logprobs,
        tokens,
        _self_certainty(row, answers),
        _of_each_token(row, "top_logprobs", logprobs, _ranked),
        _of_each_token(row, "token_entropies", logprobs, _entropy),
    )


def grades(item: ItemRow) -> dict[str, tuple[Graded, ...]]:
    """Read the field ``grades`` of a question: verdicts on its answers by grader.

    They are a list with one for each answer, or with ``[text, verdict]`` for some texts, or one verdict on
    the judged answer; where each answer has a row of its own, on that.
    """
    found: dict[str, tuple[Graded, ...]] = {}
    for index, row in enumerate(item.rows):
        answers = item.answers[index : index + 1] if item.one_answer else item.answers
        verdicts = object_in(row.fields.get(GRADES)) or {}
        labels = label_list(row)
        if labels is not None:
            verdicts = {**verdicts, CORRECT: labels}
        for name, value in verdicts.items():
            if not isinstance(value, list):
                # of several rows each grades its answer, and a row alone what it judges
                graded = [Graded(answers[0] if len(item.rows) > 1 else None, verdict(value))]
            elif value and all(isinstance(entry, list) and len(entry) == 2 for entry in value):
                graded = [
                    Graded(None if text is None else finished_answer(str(text)) or str(text), verdict(entry))
                    for text, entry in value
                ]
            else:
                field = name if value is labels else f"{GRADES}.{name}"
                _require_one_each(row, field, value, answers)
                graded = _verdicts(answers, value)
            found[name] = (*found.get(name, ()), *graded)
    return found


def row_grades(item: ItemRow, column: str) -> tuple[Graded, ...]:
    """Read a column of verdicts, one row per answer."""
    return tuple(_verdicts(item.answers, [field_value(row, column) for row in item.rows]))


def gold_value(value: Any, row: Row, answers: Collection[str] | None = None) -> Any:
    """Read right answers: a list or object may be JSON in a text, and a number or letter a choice of the row.

    Args:
        answers: the model's, if known. Where none is the text of a choice, they are letters or numbers, too.
    """
    choices = next((row.fields[name] for name in CHOICES if name in row.fields), None)
    choices = usual_choices(list_in(choices) if isinstance(choices, str) else choices)
    choice = right_choice(value, choices)
    if answers is None:
        value = choice
    elif isinstance(choice, str | list) and choice != value and _are_chosen(answers, choices):
        value = [choice, value] if str(value) in answers else choice
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        values = list_in(value)
        return values if values is not None else object_in(value) or value
    return value


def _are_chosen(answers: Iterable[str], choices: Any) -> bool:
    texts = choices["text"] if isinstance(choices, Mapping) else choices
    return not {text.strip(" .").casefold() for text in answers}.isdisjoint(map(str.casefold, texts))


def right_texts(value: Any, row: Row, name: str) -> tuple[str, ...]:
    """List the spellings of a right answer. Raises DataError for values that are no answers."""
    try:
        return gold_texts(value)
    except ValueError as error:
        raise row.error(f"the field {excerpt(name)} must hold the right answer as text: {error}") from None


def judged_text(row: Row) -> str | None:
    """Read the judged answer of a row as text, also from an object such as ``{"text": …}``."""
    value = scalar_text(text_of(field_value(row, RESPONSE)))
    text = row._replace(fields={RESPONSE: value}).optional_text(RESPONSE)
    return finished_answer(text) or text or None


def label_list(row: Row) -> list[Any] | None:
    """Read a list of labels, one per answer of a row."""
    value = field_value(row, CORRECT)
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = list_in(value)
    return value if isinstance(value, list) else None


def _verdicts(answers: Sequence[str | None], values: Sequence[object]) -> list[Graded]:
    pairs = zip(answers, values, strict=True)
    return [_graded(answer, verdict(value)) for answer, value in pairs if answer is not None]


def for_each_answer(
    values: Iterable[Graded], answers: Iterable[str]
) -> tuple[tuple[Verdict, ...], tuple[Graded, ...]]:
    """Assign each answer the next verdict on its text; also return the verdicts that are left over."""
    unused: dict[str | None, deque[Graded]] = {}
    for graded in values:
        unused.setdefault(graded.answer, deque()).append(graded)
    verdicts = tuple(unused[text].popleft().right if unused.get(text) else None for text in answers)
    return verdicts, tuple(
        graded for graded in chain.from_iterable(unused.values()) if graded.right is not None
    )


def field_value(row: Row, name: str) -> Any:
    """Look up a field of a row, or of its object ``metadata`` that `selfreflect convert` writes."""
    value = row.get(name)
    if value is None and "metadata" in row.fields:
        value = row.get(f"metadata.{name}")
    return value


def field_list(row: Row, name: str, single: bool = False) -> list[Any]:
    """Read a list, or a text that contains one; empty if missing. ``single`` allows one value."""
    value = row.fields.get(name)
    if isinstance(value, str) and value.lstrip().startswith("["):
        values = list_in(value)
        if values is not None:
            value = values
        elif not single:
            raise row.error(f"the field {excerpt(name)} is not a JSON list")
    if value is None or value == "":
        return []
    if single and not isinstance(value, list):
        return [value]
    if not isinstance(value, list):
        raise row.error(f"the field {excerpt(name)} must be a list, not {type_name(value)}")
    return value


def _of_present(item: ItemRow, name: str) -> Any:
    """Read a field of a row's answers, skipping null answers."""
    value = field_value(item.row, name)
    values = list_in(value) if isinstance(value, str) else value
    if None in item.answers and isinstance(values, list) and len(values) == len(item.answers):
        return [entry for entry, answer in zip(values, item.answers, strict=True) if answer is not None]
    return value


def _of_each_answer(item: ItemRow, name: str) -> list[Any] | None:
    """Read a field of each row's answer; None if every row lacks the field."""
    values = []
    for row, answer in zip(item.rows, item.answers, strict=True):
        if answer is None:
            continue
        value = field_value(row, name)
        if isinstance(value, str):
            value = list_in(value)
        is_single = isinstance(value, list) and len(value) == 1
        if is_single and name == "top_logprobs":  # a list for each token, which may be the only one
            is_single = isinstance(value[0], list) and isinstance(next(iter(value[0]), None), list)
        if is_single and (isinstance(value[0], list) or name == "self_certainty"):
            [value] = value
        values.append(value)
    return values if any(value is not None for value in values) else None


def _tokens(row: Row, answers: Sequence[str]) -> Tokens:
    values = field_list(row, "tokens")
    if not values:
        return ()
    _require_one_each(row, "tokens", values, answers)
    for number, (texts, answer) in enumerate(zip(values, answers, strict=True), 1):
        if not is_text_list(texts):
            raise row.error(f"entry {number} of the field 'tokens' must be a list of texts")
        # an answer may have lost the blanks around it, which its tokens still have
        if "".join(texts).strip() != answer.strip():
            raise row.error(f"the tokens of answer {number} do not spell its text: {excerpt(''.join(texts))}")
    return tuple(map(tuple, values))


def _logprobs(row: Row, answers: Sequence[str], tokens: Tokens) -> Logprobs:
    values = field_list(row, "logprobs")
    if not values:
        return ()
    _require_one_each(row, "logprobs", values, answers)
    lists = []
    for number, (logprobs, answer) in enumerate(zip(values, answers, strict=True), 1):
        entry = f"entry {number} of the field 'logprobs'"
        if not isinstance(logprobs, list) or not logprobs:
            raise row.error(f"{entry} must be a list with the log-probability of each token")
        for value in logprobs:
            # an integer may be too large for a float, so it is compared before it is converted
            if not _is_number(value) or not -_LARGEST <= value <= 0:
                raise row.error(
                    f"{entry} contains {excerpt(value)}, but a log-probability is a number of at most 0"
                )
            if value == UNKNOWN_LOGPROB:
                raise row.error(
                    f"{entry} contains -9999, a server's placeholder for an unknown value; leave it out"
                )
        # a token has at least one byte
        size = len(answer.encode("utf-8", "replace")) + _EXTRA_TOKENS
        if len(logprobs) > size or (tokens and len(tokens[number - 1]) != len(logprobs)):
            raise row.error(
                f"{entry} has {len(logprobs)} values, which do not match answer {number}: they may belong to "
                "another answer or come from another tokenizer"
            )
        lists.append(tuple(map(float, logprobs)))
    return tuple(lists)


def _of_each_token(
    row: Row, name: str, logprobs: Logprobs, read: Callable[[Any], T | None]
) -> tuple[tuple[T, ...], ...]:
    """Read a column with one entry per token with a log-probability."""
    values = field_list(row, name)
    if not values:
        return ()
    lengths = [len(value) if isinstance(value, list) else None for value in values]
    if lengths != list(map(len, logprobs)):
        raise row.error(
            f"the field {name!r} must have an entry for each log-probability in the field 'logprobs'"
        )
    lists = []
    for number, entries in enumerate(values, 1):
        parsed = [read(entry) for entry in entries]
        if None in parsed:
            wrong = excerpt(entries[parsed.index(None)])
            raise row.error(f"entry {number} of the field {name!r} holds {wrong}, which is out of range")
        lists.append(tuple(entry for entry in parsed if entry is not None))
    return tuple(lists)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ranked(entry: Any) -> tuple[float, ...] | None:
    """Sort the log-probabilities at a position; None if there are none."""
    if not isinstance(entry, list) or not all(map(_is_number, entry)):
        return None
    return ranked(entry, len(entry))


def _entropy(entry: Any) -> float | None:
    return float(entry) if _is_number(entry) and 0 <= entry <= _LARGEST_DIVERGENCE else None


def _self_certainty(row: Row, answers: Sequence[str]) -> tuple[float, ...]:
    values = field_list(row, "self_certainty")
    if not values:
        return ()
    _require_one_each(row, "self_certainty", values, answers)
    for number, value in enumerate(values, 1):
        if _entropy(value) is None:
            raise row.error(
                f"entry {number} of the field 'self_certainty' is {excerpt(value)}; it must be from 0 to 1e9"
            )
    return tuple(map(float, values))


def _require_one_each(row: Row, name: str, values: list[Any], answers: Sequence[str | None]) -> None:
    if len(values) != len(answers):
        raise row.error(f"the field {name!r} has {len(values)} entries for {len(answers)} answers")


@lru_cache(maxsize=256)
def _graded(answer: str, right: Verdict) -> Graded:
    """Make a verdict on an answer, cached so that equal verdicts share memory."""
    return Graded(answer, right)


# Words for right and wrong, a pair of languages or habits in each row.
_PAIRS = (
    ("correct true t yes y right is_correct c", "incorrect false f no wrong is_incorrect i"),
    ("pass passed", "fail failed"),
    ("1 1.0 ok okay good valid accepted hit", "0 0.0 not_ok nok bad invalid rejected miss"),
    ("thumbs_up thumb_up thumbsup up 👍", "thumbs_down thumb_down thumbsdown down 👎"),
    ("✓ ✔ ✅ ☑ ○ ◯ 〇 🟢", "✗ ✘ ❌ ✖ × ☒ ❎ 🔴"),
    ("wahr richtig korrekt ja j r", "falsch unwahr inkorrekt nein w nicht_korrekt nicht_richtig"),
    ("vrai juste oui o correcte exact exacte", "faux fausse non incorrecte inexact"),
    ("verdadero correcto correcta cierto sí si s v", "falso incorrecto incorrecta"),
    ("verdadeiro correto correta certo certa sim", "errado errada incorreto incorreta não nao"),
    ("vero giusto giusta corretto corretta", "sbagliato sbagliata errato errata scorretto"),
    ("waar goed juist", "onwaar fout onjuist nee"),
    ("rätt rigtigt riktig sant", "fel forkert feil nej nei"),
    ("tak poprawna poprawny prawda", "nie niepoprawna niepoprawny fałsz błąd"),
    ("はい 正解 正しい 正", "いいえ 不正解 誤り 誤"),
    ("对 正确 是", "错 错误 否"),
    ("да верно", "нет неверно"),
)
_NEITHER = (
    "p partial partially_correct n na n/a noanswer no_answer not_attempted is_not_attempted none null nan "
    "unknown unclear teilweise unklar"
)
VERDICTS: Mapping[str, Verdict] = {
    **{word: True for right, _ in _PAIRS for word in right.split()},
    **{word: False for _, wrong in _PAIRS for word in wrong.split()},
    **dict.fromkeys(_NEITHER.split()),
}
"""In lower case; letters as inspect_ai writes them: correct, incorrect, partly correct, no answer."""

# Letters whose meaning other labels of the column decide: "n" is "no" beside "y", and "no answer" elsewhere.
_NO, _BESIDE = "n", frozenset("y j s o yes ja oui si sí sim vero".split())
_CROSS = "x"
# What a letter means in a column of these two alone: pass and fail, "wahr" and "falsch", right and wrong.
_LETTER_PAIRS = {frozenset("pf"): {"p": "yes"}, frozenset("wf"): {"w": "yes"}, frozenset("rw"): {"w": "no"}}
# Marks that may stand alone in a column, where a blank says the opposite.
_MARKS = frozenset("x ✓ ✔ ✅ ☑ 👍".split())


def verdict(value: object) -> Verdict:
    """Parse a verdict; None if unknown or between right and wrong, such as 0.5."""
    return VERDICTS.get(_plain(value))


def label(value: object) -> Verdict:
    """Parse the label of an answer.

    Raises:
        ValueError: it is no known verdict; the message says which there are.
    """
    if value is None or value == "":
        return None
    plain = _plain(value)
    if plain not in VERDICTS:
        raise ValueError(
            f"must be true or false, 1 or 0, yes or no, correct or incorrect, C or I; it is {excerpt(value)}"
        )
    return VERDICTS[plain]


def _plain(value: object) -> str:
    # graders also write "Correct."; a sign may ask for its coloured form
    return str(value).strip().rstrip(".\ufe0f").lower().replace(" ", "_").replace("-", "_")


def spell_labels(rows: Rows, notes: list[str]) -> None:
    """Write labels in full whose meaning depends on the others: letters, and blanks beside one mark.

    ``n`` is no where another label is ``y``; among others it is inspect_ai's "no answer".
    """
    if CORRECT not in rows.columns:
        return
    labels = Counter(_plain(label) for row in rows for label in _labels_in(row.fields.get(CORRECT)))
    spelling = _spelling(labels)
    if not spelling:
        return
    rows.change(partial(_spelled, spelling))
    if blank := sum(labels[word] for word in _BLANK if word in spelling):
        [mark] = labels.keys() - _BLANK
        notes.append(
            f"{counted(blank, 'blank label')} read as wrong, because the only mark is {excerpt(mark)}"
        )


# How blank cells and missing values are written in plain form.
_BLANK = frozenset(("", "none"))


def _spelling(labels: Collection[str]) -> dict[str, str]:
    """Find the labels of a column that depend on the others, with their meaning."""
    words = frozenset(labels) - _BLANK
    if len(words) == 1 and words <= _MARKS and len({*labels}) > 1:
        return dict.fromkeys(words, "yes") | dict.fromkeys(_BLANK, "no")
    spelling = {}
    if _NO in words and words & _BESIDE:
        spelling[_NO] = "no"
    if _CROSS in words and any(VERDICTS.get(word) for word in words):
        spelling[_CROSS] = "no"
    return spelling | _LETTER_PAIRS.get(words, {})


def _spelled(spelling: Mapping[str, str], row: Row) -> Row:
    value = row.fields.get(CORRECT)
    labels = _labels_in(value)
    spelled = [spelling.get(_plain(label), label) for label in labels]
    is_list = len(labels) != 1 or labels[0] is not value
    return row._replace(fields={**row.fields, CORRECT: spelled if is_list else spelled[0]})


def _labels_in(value: object) -> Sequence[object]:
    """List the labels of a cell, which holds one label, a list, or a list written as text."""
    cell = list_in(value) if isinstance(value, str) and value.lstrip().startswith("[") else value
    return cell if isinstance(cell, list) else [value]


def label_columns(rows: Rows, names: Collection[str], answers: Collection[str] = ()) -> list[str]:
    """Find label columns with names other than ``correct``, if there is no column ``correct``.

    Args:
        answers: columns of answers; a column of words that answers use, too, holds right answers.
    """
    if {CORRECT, GRADES} & {*names}:
        return []
    # "Right answer?" with yes and no asks whether it is right
    asking = [name for name in names if name.rstrip().endswith("?") and plain_name(name) in GOLD_NAMES]
    usual = [*asking, *(name for name in names if plain_name(name) in CORRECT_NAMES)]
    found = [name for name in usual if are_labels(row.fields.get(name) for row in rows)]
    return found or [name for name in names if _are_likely_labels(rows, name, answers)]


def _are_likely_labels(rows: Rows, name: str, answers: Collection[str]) -> bool:
    """Check by name and values whether a column holds labels."""
    if not (tells_of_labels(name) or _names_both_labels(name)) or tells_of_person(name):
        return False
    if not are_labels(row.fields.get(name) for row in rows):
        return False
    # "Reviewed" with yes and no says which rows somebody has reviewed
    if tells_of_work(name):
        labels = {_plain(label) for row in rows for label in _labels_in(row.fields.get(name))}
        if labels & _YES_NO:
            return False
    return not mostly_recurs(rows, name, answers)


_YES_NO = _BESIDE | _MARKS | {_NO, *"no nein non não 0 1".split()}


def _names_both_labels(name: str) -> bool:
    """Check whether a name lists a word for right and one for wrong, such as ``R/W``."""
    words = plain_name(name).split("/")
    spelling = _spelling(words)
    meanings = [verdict(spelling.get(word, word)) for word in words]
    return sorted(map(str, meanings)) == ["False", "True"] and _YES_NO.isdisjoint(words)


def name_labels(rows: Rows, roles: Mapping[str, str], notes: list[str], kept: str = "") -> dict[str, str]:
    """Call the first column of labels ``correct``, unless there is one, and return its new name by the old.

    Columns with one label for each numbered answer become a list; the old name is then their span.

    Args:
        kept: a column that keeps its name.
    """
    free = [name for name in rows.columns if name not in {*roles.values(), kept}]
    answers = item_columns(rows.columns, roles).answers
    labels = label_columns(rows, free, answers)
    blank = {name for name in free if labels and all(row.fields.get(name) in (None, "") for row in rows)}
    for family in counted_families([*labels, *blank]):
        is_one_each = len(family) == len(answers) and counted_families(answers) == [[*answers]]
        if is_one_each and not counts_graders(family) and not blank.issuperset(family):
            rows.join(family, CORRECT, partial(_labels_of, family, answers))
            notes.append(f"{listed(family)} are read as the labels of the answers")
            return {f"{family[0]}..{family[-1]}": CORRECT}
    if labels:
        note = f"{excerpt(labels[0])} is read as the labels of correctness"
        if labels[1:]:
            note += f"; for {excerpt(labels[1])} add --column correct={shlex.quote(labels[1])}"
        notes.append(note)
    renamed = dict.fromkeys(labels[:1], CORRECT)
    rows.rename(renamed)
    return renamed


def join_right_answers(rows: Rows, roles: Mapping[str, str], notes: list[str]) -> None:
    """Make one column ``gold`` of numbered ones with right answers, such as ``Correct answer 2``."""
    usual = {GOLD, *GOLD_NAMES}
    free = [name for name in rows.columns if name not in roles.values()]
    families = [family for family in counted_families(free) if uncounted_name(family[0]) in usual]
    if len(families) == 1 and not any(plain_name(name) in usual for name in free):
        [family] = families
        values = chain.from_iterable((row.fields.get(name) for name in family) for row in rows)
        answers = item_columns(rows.columns, roles).answers
        if are_labels(values) and not mostly_recurs(rows, family[0], answers):
            return  # "Right answer 1" with yes and no
        rows.join(family, GOLD, lambda row: [row.fields[name] for name in family if _is_filled(row, name)])
        notes.append(f"{listed(family)} are read as the right answers")


def _labels_of(names: Sequence[str], answers: Sequence[str], row: Row) -> list[Any]:
    """List the labels of a row's answers, without blank ones after the last answer."""
    present = [number for number, name in enumerate(answers, 1) if _is_filled(row, name)]
    labels = [row.fields.get(name) for name in names]
    while len(labels) > max(present, default=0) and labels[-1] in (None, ""):
        labels.pop()
    return labels


def _is_filled(row: Row, name: str) -> bool:
    value = row.fields.get(name)
    return value is not None and bool(str(value).strip())


def mostly_recurs(rows: Rows, name: str, answers: Collection[str]) -> bool:
    """Check whether an answer is the same word as the label in most rows, as where "yes" is the right one."""
    recurring = labelled = 0
    for row in rows:
        words = {_plain(label) for label in _labels_in(row.fields.get(name))} - _BLANK
        labelled += bool(words)
        texts = (text for column in answers for text in _labels_in(row.fields.get(column)))
        recurring += any(_plain(text) in words for text in texts)
    return recurring * 2 > labelled


def are_labels(values: Iterable[object]) -> bool:
    """Check whether all values are verdicts, lists of verdicts or missing, and some are verdicts."""
    labels = {_plain(label) for value in values for label in _labels_in(value)}
    spelling = _spelling(labels)
    words = labels - _BLANK - spelling.keys()
    if not words <= VERDICTS.keys():
        return False
    return bool(spelling) or any(VERDICTS[word] is not None for word in words)


def is_grader(values: Iterable[object]) -> bool:
    """Check whether values are verdicts rather than scores such as BLEU."""
    column = list(values)
    scores = [value for value in column if isinstance(value, int | float)]
    # 0.5 is a partly right answer, and NaN a missing one
    return any(verdict(value) is not None for value in column) and all(
        value in (0, 0.5, 1) or value != value for value in scores
    )
