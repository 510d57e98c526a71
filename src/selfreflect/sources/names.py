"""Names of columns: what each usually holds, and what words in it suggest."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from string import ascii_uppercase
from typing import NamedTuple

QUESTION_COLUMNS = ("question", "problem", "prompt", "query", "input", "instruction", "text")
GOLD = "gold"
GOLD_COLUMNS = ("answer", "answers", GOLD)
GOLD_NAMES = frozenset(
    "ground_truth ground_truths gold_answer gold_answers gold_label golds golden_answer golden_answers "
    "reference reference_answer reference_answers references expected expected_answer expected_answers "
    "expected_output right_answer right_answers correct_answer correct_answers best_answer ideal target "
    "targets possible_answers acceptable_answers accepted_answers valid_answers normalized_answers "
    "short_answer short_answers".split()
)
"""Other names of right answers, for files without a column ``gold``."""
CONFIDENCE = "confidence"
CONFIDENCE_NAMES = (
    "stated_confidence verbalized_confidence confidence_(%) confidence_% confidence_percent certainty "
    "certainty_(%) certainty_%"
).split()
"""Other names of a confidence, from 0 to 100 with a per cent sign or word."""
_CONFIDENCE_WORDS = frozenset(
    "confidence conf certainty sicherheit konfidenz certitude confiance confianza confiança fiducia certezza "
    "zekerheid 置信度 確信度 확신도".split()
)
_PERCENT_WORDS = frozenset("percent percentage pct prozent".split())
# Words beside these that say whose confidence it is, or how it was asked for.
_STATED = frozenset(
    "stated verbalized verbalised verbal reported self own final score level value in".split()
)
CORRECT_NAMES = frozenset(
    "is_correct correctness verdict grade judgment judgement ok is_ok right is_right passed richtig "
    "korrekt".split()
)
"""Other names of labels, used if every value is a known verdict. ``exact_match`` is left out, since uqlm uses
it for a share of equal samples."""
# Words in other names of labels, if every value is a known verdict, and words that say the opposite.
_DONE_WORDS = frozenset(
    "checked reviewed evaluated rated labelled labeled label labels annotated bewertet "
    "geprüft vérifié évalué revisado "
    "verificado verificato beoordeeld".split()
)
"""Words that may say of a row only that somebody looked at it, or which class it belongs to."""
_LABEL_WORDS = _DONE_WORDS | frozenset(
    "correct correctness right accurate accuracy verdict grade graded grading judgment judgement judged ok "
    "okay passed pass check review reviewer human manual feedback thumb thumbs eval evaluation "
    "assessment annotation annotator rater richtig korrekt bewertung prüfung urteil correcte évaluation "
    "jugement correcta correcto revisión evaluación certo correto avaliação giusto corretto valutazione "
    "giudizio juist goed beoordeling stimmt acceptable rätt bedömning rigtigt riktig poprawna poprawny "
    "poprawność ocena 判定 正誤 評価 判断 评价".split()
)
# Words of labels that say who labelled.
_PERSONS = frozenset("human manual reviewer annotator rater".split())
_GRADERS = _PERSONS | frozenset("judge grader expert coder labeler labeller".split())
_WRONG_WORDS = frozenset(
    "not wrong incorrect false error errors mistake hallucination hallucinated hallucinates toxic unsafe "
    "falsch fehler faux erreur incorrecto errado sbagliato errore fout fel błąd".split()
)
_OR = frozenset("or oder ou o eller lub".split())
KIND_COLUMNS = ("kind", "category", "subject")
CONTEXT_COLUMN = "context"
ID_COLUMNS = ("question_id", "qid", "id")
MASKED_OUT = ("masked_out_task_answers", "masked_out")
CONDITIONING = ("conditioning_answers", "conditioning")
IMAGE_COLUMNS = ("image", "img", "picture", "photo", "figure", "audio", "video", "pixel_value")
"""Columns of images, sounds and films that no text model perceives."""
TOKEN_COLUMNS = ("logprobs", "tokens", "self_certainty", "top_logprobs", "token_entropies")
"""Columns with values of each answer's tokens."""

CHOICES = ("choices", "options")
"""Columns with the choices of a multiple-choice question: a list of texts, which the right answer may name by
number or letter, or an object with the lists ``text`` and ``label``."""
GRADES = "grades"
"""Column of verdicts on answers: for each grader, one verdict per answer."""
CORRECT = "correct"
"""Column of labels of the judged answer, or of each row's answer."""
RESPONSE = "response"
"""Column of the judged answer, if the sampled answers are in another column."""
CLAIMS = "claims"
"""Column of claims with text and label."""

READ_BY_NAME = (CONFIDENCE, CORRECT)
"""Roles whose columns are read by name, in any position."""
ROLES = ("question", "answer", "summary", "context", "id", *READ_BY_NAME)
"""Roles that a user can assign to a column."""

# Names of columns with answers: plural and singular. Any but the first is always a model's
# answer, while ``answer`` may be the reference answer.
ANSWERS = {
    "answers": "answer",
    "samples": "sample",
    "responses": "response",
    "generations": "generation",
    "completions": "completion",
    "outputs": "output",
    "replies": "reply",
    "predictions": "prediction",
    "antworten": "antwort",
    "réponses": "réponse",
    "respuestas": "respuesta",
    "respostas": "resposta",
    "risposte": "risposta",
    "antwoorden": "antwoord",
    "odpowiedzi": "odpowiedź",
}
SINGLE_ANSWERS = (*ANSWERS.values(), "svar", "回答", "答え", "答案", "답변", "ответ")
"""Names of a column with one answer per row."""

# Words that may stand before such a name, and those that say that a person got to see the text.
MODELS = frozenset("model bot chatbot assistant system llm ai".split())
AUTHORS = MODELS | frozenset("all sample sampled generated regenerated repeated".split())

# What counts columns within their names: a number, also as in "2nd answer", or a capital letter.
COUNTER = re.compile(
    r"(?<!\d)(?P<number>\d{1,6})(?!\d)(?:(?:st|nd|rd|th)(?![^\W_]))?"
    r"|(?<=[ _(\[-])(?P<letter>[A-Za-z])(?=[ _)\]-]|$)"
)
_LETTERS = re.compile(r"[^\W\d_]+")

# Last words of names of columns with questions, after what says whose they are, as in "User question".
_ASKED = (
    *"question query frage pregunta pergunta domanda vraag pytanie fråga spørgsmål".split(),
    *"вопрос 質問 問題 质问 问题 질문".split(),
)

# Words in names of columns with questions, if their values are sentences, as in "What the customer asked".
_ASKING = frozenset((*QUESTION_COLUMNS, *_ASKED, "asked", "questions", "inquiry", "enquiry", "message"))
# Endings of compounds, as in "Kundenfrage".
_ASKING_ENDS = ("frage", "fragen", "vraag")
# Words in the names of columns of several texts that are no answers.
_NO_ANSWERS = frozenset(
    "choice option distractor context source passage document doc chunk evidence fact hint reference gold "
    "correct right wrong incorrect target expected feature image tag label score rating step turn message "
    "page id metric annotator rater judge reviewer comment note keyword category topic url link column field "
    "unnamed user question prompt name date grade reason explanation rationale reasoning justification "
    "analysis thought feedback".split()
)

_CHOICE_WORDS = frozenset("incorrect wrong false distractor choice choices option options".split())
_REASONS = frozenset("reason explanation rationale reasoning justification analysis solution".split())

# Several are the turns of a conversation, and a single one may be the reply.
_TURNS = frozenset(("message",))

# Words in names of columns with right answers, as in "Correct team", if the texts recur among the answers.
_RIGHT = frozenset(
    "correct right true truth gold golden expected expert reference verified actual solution richtig "
    "gt ref attendue attendu esperada esperado attesa erwartete verwachte rätt rigtige poprawna "
    "richtige lösung korrekt correcte bonne correcta certa corretta giusta juiste juist canonical consensus "
    "musterlösung musterantwort sollantwort referenz référence referencia riferimento 正解 模範解答 参考答案 "
    "标准答案 정답".split()
)

LIKELY_WORDS = {
    "question": (*QUESTION_COLUMNS, *_ASKED, "stem", "goal"),
    "answer": (*SINGLE_ANSWERS, "draft", "candidate"),
    "summary": ("zusammenfassung", "résumé", "resumen", "resumo", "riassunto", "samenvatting"),
}
"""Words in column names that suggest a role, in several languages."""


def likely_questions(names: Iterable[str]) -> list[str]:
    """Find the only normalised column name that marks a question, such as ``user_question``; empty if several
    do."""
    words_by_name = {name: name.removesuffix("_text").split("_") for name in names}
    likely = [name for name, words in words_by_name.items() if words[-1] in _ASKED and len(words) <= 2]
    return likely if len(likely) == 1 else []


def likely_gold(names: Iterable[str]) -> list[str]:
    """List columns whose names mark correct values, such as ``Correct team``."""
    plain = {name: re.sub(r"[()]", "", plain_name(name)) for name in names}
    return [name for name in plain if not _RIGHT.isdisjoint(plain[name].split("_"))]


def asks_by_name(name: str) -> bool:
    """Check whether a column's name contains a usual word for questions."""
    words = plain_name(name).split("_")
    return not _ASKING.isdisjoint(words) or any(word.endswith(_ASKING_ENDS) for word in words)


def tells_of_labels(name: str) -> bool:
    """Check whether a column is named like labels that say which answers are right."""
    words = {*words_in(name)}
    # "Right/Wrong" and "right or wrong" name both values
    names_both = "/" in name or not _OR.isdisjoint(words)
    return not _LABEL_WORDS.isdisjoint(words) and (_WRONG_WORDS.isdisjoint(words) or names_both)


def tells_of_work(name: str) -> bool:
    """Check whether a column's name may say which rows somebody has looked at, such as ``Reviewed``."""
    return not _DONE_WORDS.isdisjoint(words_in(name))


def tells_of_person(name: str) -> bool:
    """Check whether a column is named like the answers of a person, such as ``Human answer``."""
    words = {*words_in(name)}
    return not words.isdisjoint(SINGLE_ANSWERS) and words & _LABEL_WORDS <= _PERSONS


def tells_of_confidence(name: str) -> bool:
    """Check whether a column is named like a model's confidence, such as ``Model certainty (%)``."""
    words = {*words_in(name)}
    return not words.isdisjoint(_CONFIDENCE_WORDS) and words <= (
        _CONFIDENCE_WORDS | _PERCENT_WORDS | _STATED | AUTHORS | {*SINGLE_ANSWERS}
    )


def is_of_hundred(name: str) -> bool:
    """Check whether a column's name says that its numbers are percentages."""
    return "%" in name or "100" in name or not _PERCENT_WORDS.isdisjoint(words_in(name))


def tells_of_choices(name: str) -> bool:
    """Check whether a column is named like the choices of a question, such as ``Incorrect answer 2``."""
    return not _CHOICE_WORDS.isdisjoint(words_in(name))


def tells_of_reasons(name: str) -> bool:
    """Check whether a column is named like what explains an answer, and is not read with the question."""
    return not _REASONS.isdisjoint(words_in(name))


def counts_graders(family: Sequence[str]) -> bool:
    """Check whether the number in a family's names follows a word for a grader, as in ``Rater 2 correct``."""
    return not _GRADERS.isdisjoint(words_in(family[0]))


def tells_of_questions(name: str, *, is_single: bool = False) -> bool:
    """Check whether a column's name suggests choices, passages or scores rather than answers.

    Args:
        is_single: whether no other column has its name with another number.
    """
    words = {word.removesuffix("s") for word in words_in(name)}
    return not (_NO_ANSWERS - _TURNS if is_single else _NO_ANSWERS).isdisjoint(words)


def likely_spans(names: Iterable[str]) -> list[str]:
    """List the spans of columns that differ only by a number or letter, such as ``Versuch 1..Versuch 10``.

    Numbers of models are none, because an answer distribution belongs to one model.
    """
    return [
        f"{family[0]}..{family[-1]}"
        for family in counted_families(names)
        if not tells_of_questions(family[0]) and not counts_models(family) and not _are_two_sides(family)
    ]


def column_range(span: str, names: Collection[str]) -> tuple[str, ...]:
    """List the columns of a span such as ``A1..A6`` or ``run 1 (t=1)..run 6 (t=1)``.

    Empty for other names.
    """
    if span in names:
        return ()
    for dots in re.finditer(r"(?=\.\.)", span):
        first, last = counters_in(span[: dots.start()]), counters_in(span[dots.start() + 2 :])
        if first.rest != last.rest or len(first.places) != len(last.places) or not first.places:
            continue
        pairs = zip(first.places, last.places, strict=True)
        varying = [at for at, (low, high) in enumerate(pairs) if low != high] or [len(first.places) - 1]
        within: dict[tuple[int, ...], str] = {}
        for name in names:
            counters = counters_in(name)
            if counters.rest == first.rest and all(
                low <= place <= high
                for low, place, high in zip(first.places, counters.places, last.places, strict=True)
            ):
                within[tuple(counters.places[at] for at in varying)] = name
        # several numbers may only rise together
        if all(len({*places}) == len(within) for places in zip(*within, strict=True)):
            return tuple(within[places] for places in sorted(within))
    return ()


class Counters(NamedTuple):
    """What counts a column within its name, and the rest of the name."""

    rest: str
    """Plain name with a mark in place of each number or letter."""
    places: tuple[int, ...]


@lru_cache(maxsize=4096)
def counters_in(name: str, *, letters: bool = True) -> Counters:
    places: list[int] = []

    def mark(match: re.Match[str]) -> str:
        if match["number"]:
            places.append(int(match["number"]))
            return "\0"
        if not letters:
            return match[0]
        places.append(ascii_uppercase.index(match["letter"].upper()))
        return "\1"

    return Counters(plain_name(COUNTER.sub(mark, name)), tuple(places))


def counted_families(names: Iterable[str], *, letters: bool = True) -> list[list[str]]:
    """Group names that differ only by a number or letter, in its order.

    Where two numbers differ, as in ``model 1, run 3``, the one with most values counts, or else the last.
    """
    alike: dict[str, list[tuple[tuple[int, ...], str]]] = {}
    for name in names:
        counters = counters_in(name, letters=letters)
        if counters.places:
            alike.setdefault(counters.rest, []).append((counters.places, name))
    families: list[list[str]] = []
    for columns in alike.values():
        values = [{*places} for places in zip(*(places for places, _ in columns), strict=True)]
        varying = [at for at, different in enumerate(values) if len(different) > 1]
        if not varying:
            continue
        counting = max(varying, key=lambda at: (len(values[at]), at))
        if all(len(values[at]) == len(columns) for at in varying):
            families.append([name for _, name in sorted(columns)])
            continue
        by_rest: dict[tuple[int, ...], list[tuple[int, str]]] = {}
        for places, name in columns:
            rest = places[:counting] + places[counting + 1 :]
            by_rest.setdefault(rest, []).append((places[counting], name))
        families += [[name for _, name in sorted(family)] for family in by_rest.values() if family[1:]]
    return families


def _are_two_sides(family: Sequence[str]) -> bool:
    """Check whether two columns are called a and b, as replies of two models are in a comparison."""
    return len(family) == 2 and [name[-1] for name in family] == ["a", "b"]


def counts_models(family: Sequence[str]) -> bool:
    """Check whether the number or letter of a family's names follows a word for a model, as in ``LLM 2``."""
    rest = counters_in(family[0]).rest
    before = words_in(re.split("[\0\1]", rest)[0])
    return bool(before) and before[-1] in MODELS


def uncounted_name(name: str) -> str:
    """Normalise a name without its numbers, such as ``correct_answer`` for ``Correct answer 2``."""
    return re.sub("_*[\0\1]_*", "", counters_in(name).rest)


def words_in(name: str) -> list[str]:
    """List the words of a name in lower case, without numbers and signs."""
    return _LETTERS.findall(name.lower())


def plain_name(name: str) -> str:
    """Normalise a name to lower case, with ``_`` for spaces, dots and dashes."""
    return re.sub(r"[\s._-]+", "_", name.rstrip(" ?").strip().lower())


def is_image(name: str) -> bool:
    """Check whether a column is named like an image, such as ``image_1`` or its URL."""
    return _OF_IMAGE.sub("", plain_name(name)) in IMAGE_COLUMNS


_OF_IMAGE = re.compile(r"s?(?:_(?:url|path|file|bytes|base64|b64))?s?(?:_?(?<!\d)\d++)?$")


def numbered_columns(names: Iterable[str]) -> list[str]:
    """List the first columns with equal names except for a number, if there are several."""
    return next(iter(counted_families(names, letters=False)), [])
