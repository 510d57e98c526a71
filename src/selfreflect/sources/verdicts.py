"""Words and numbers by which files call an answer right or wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from selfreflect.errors import excerpt

Verdict = bool | None
"""Right, wrong, or neither."""


class Graded(NamedTuple):
    """A verdict on an answer."""

    answer: str | None
    """None for the judged answer, whichever that is."""
    right: Verdict


_RIGHT = "c correct true t yes y 1 1.0 right pass passed is_correct wahr ja vrai oui vero verdadero si sí ✓ ✔"
_WRONG = "i incorrect false f no 0 0.0 wrong fail failed is_incorrect falsch nein faux non falso ✗ ✘"
_NEITHER = (
    "p partial partially_correct n na n/a noanswer no_answer not_attempted is_not_attempted none null nan "
    "unknown unclear"
)
VERDICTS: Mapping[str, Verdict] = {
    **dict.fromkeys(_RIGHT.split(), True),
    **dict.fromkeys(_WRONG.split(), False),
    **dict.fromkeys(_NEITHER.split()),
}
"""In lower case; letters as inspect_ai writes them: correct, incorrect, partly correct, no answer; also
true and false as spreadsheets write them in German, French, Italian and Spanish."""


def verdict(value: object) -> Verdict:
    """Read a verdict; None where it is neither right nor wrong, as a score of 0.5, or unknown."""
    return VERDICTS.get(_plain(value))


def label(value: object) -> Verdict:
    """Read the label of an answer.

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
    return str(value).strip().rstrip(".").lower().replace(" ", "_").replace("-", "_")


def are_labels(values: Iterable[object]) -> bool:
    """Tell whether all values are known verdicts or missing, and some are right or wrong."""
    plain = [_plain(value) for value in values if value is not None and value != ""]
    return all(name in VERDICTS for name in plain) and any(VERDICTS[name] is not None for name in plain)


def is_grader(values: Iterable[object]) -> bool:
    """Tell whether verdicts are among values, and no score in between, as those of BLEU are."""
    column = list(values)
    scores = [value for value in column if isinstance(value, int | float)]
    return any(verdict(value) is not None for value in column) and all(
        value in (0, 0.5, 1) or value != value for value in scores
    )
