"""Roles of a file's columns, by name or by assignment."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property, lru_cache
from string import ascii_uppercase
from typing import Any, NamedTuple

from selfreflect.errors import ConfigError, excerpt
from selfreflect.records import Scalar

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
    "confidence certainty sicherheit konfidenz certitude confiance confianza confiança fiducia certezza "
    "zekerheid".split()
)
_PERCENT_WORDS = frozenset("percent percentage pct prozent".split())
# Words beside these that say whose confidence it is, or how it was asked for.
_STATED = frozenset("stated verbalized verbalised reported self own final score level value in".split())
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
IMAGE_COLUMNS = ("image", "picture", "photo", "figure", "audio", "video")
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

METADATA_CHARACTERS = 1000
"""Longest text in characters that becomes question metadata."""
METADATA_COLUMNS = 100

# Names of columns with answers: plural and singular. Any but the first is always a model's
# answer, while ``answer`` may be the reference answer.
_ANSWERS = {
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
SINGLE_ANSWERS = (*_ANSWERS.values(), "svar", "回答", "答え", "答案", "답변", "ответ")
"""Names of a column with one answer per row."""
# Short forms of these where a number stands beside them.
_SHORT = {
    "ans": "answer",
    "resp": "response",
    "gen": "generation",
    "out": "output",
    "pred": "prediction",
}
# Words that may stand before such a name, and those that say that a person got to see the text.
_MODELS = frozenset("model bot chatbot assistant system llm ai".split())
_AUTHORS = _MODELS | frozenset("all sample sampled generated regenerated repeated".split())
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
# What counts columns within their names: a number, also as in "2nd answer", or a capital letter.
_COUNTER = re.compile(
    r"(?<!\d)(?P<number>\d{1,6})(?!\d)(?:(?:st|nd|rd|th)(?![^\W_]))?"
    r"|(?<=[ _(\[-])(?P<letter>[A-Za-z])(?=[ _)\]-]|$)"
)
_LETTERS = re.compile(r"[^\W\d_]+")
_NUMBERED = re.compile(r"(.+?)_?(\d{1,6})")
_SUMMARY = re.compile(r"summar(?:y|ies)[\s._-]++(.+)|(.+)[\s._-]summary", re.IGNORECASE)

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
        _CONFIDENCE_WORDS | _PERCENT_WORDS | _STATED | _AUTHORS | {*SINGLE_ANSWERS}
    )


def is_of_hundred(name: str) -> bool:
    """Check whether a column's name says that its numbers are percentages."""
    return "%" in name or not _PERCENT_WORDS.isdisjoint(words_in(name))


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
        if not tells_of_questions(family[0]) and not _counts_models(family) and not _are_two_sides(family)
    ]


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


def column_range(span: str, names: Collection[str]) -> tuple[str, ...]:
    """List the columns of a span such as ``A1..A6`` or ``run 1 (t=1)..run 6 (t=1)``.

    Empty for other names.
    """
    if span in names:
        return ()
    for dots in re.finditer(r"(?=\.\.)", span):
        first, last = _counters(span[: dots.start()]), _counters(span[dots.start() + 2 :])
        if first.rest != last.rest or len(first.places) != len(last.places) or not first.places:
            continue
        pairs = zip(first.places, last.places, strict=True)
        varying = [at for at, (low, high) in enumerate(pairs) if low != high] or [len(first.places) - 1]
        within: dict[tuple[int, ...], str] = {}
        for name in names:
            counters = _counters(name)
            if counters.rest == first.rest and all(
                low <= place <= high
                for low, place, high in zip(first.places, counters.places, last.places, strict=True)
            ):
                within[tuple(counters.places[at] for at in varying)] = name
        # several numbers may only rise together
        if all(len({*places}) == len(within) for places in zip(*within, strict=True)):
            return tuple(within[places] for places in sorted(within))
    return ()


class _Counters(NamedTuple):
    """What counts a column within its name, and the rest of the name."""

    rest: str
    """Plain name with a mark in place of each number or letter."""
    places: tuple[int, ...]


@lru_cache(maxsize=4096)
def _counters(name: str, *, letters: bool = True) -> _Counters:
    places: list[int] = []

    def mark(match: re.Match[str]) -> str:
        if match["number"]:
            places.append(int(match["number"]))
            return "\0"
        if not letters:
            return match[0]
        places.append(ascii_uppercase.index(match["letter"].upper()))
        return "\1"

    return _Counters(plain_name(_COUNTER.sub(mark, name)), tuple(places))


def counted_families(names: Iterable[str], *, letters: bool = True) -> list[list[str]]:
    """Group names that differ only by a number or letter, in its order.

    Where two numbers differ, as in ``model 1, run 3``, the one with most values counts, or else the last.
    """
    alike: dict[str, list[tuple[tuple[int, ...], str]]] = {}
    for name in names:
        counters = _counters(name, letters=letters)
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


def _counts_models(family: Sequence[str]) -> bool:
    """Check whether the number or letter of a family's names follows a word for a model, as in ``LLM 2``."""
    rest = _counters(family[0]).rest
    before = words_in(re.split("[\0\1]", rest)[0])
    return bool(before) and before[-1] in _MODELS


def words_in(name: str) -> list[str]:
    """List the words of a name in lower case, without numbers and signs."""
    return _LETTERS.findall(name.lower())


def plain_name(name: str) -> str:
    """Normalise a name to lower case, with ``_`` for spaces, dots and dashes."""
    return re.sub(r"[\s._-]+", "_", name.rstrip(" ?").strip().lower())


def fold_assigned(assigned: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Match assigned names loosely, such as ``answer text`` for ``Answer_Text``."""
    plain = {plain_name(name): name for name in names}
    return {
        role: column if column in names else plain.get(plain_name(column), column)
        for role, column in assigned.items()
    }


def is_image(name: str) -> bool:
    """Check whether a column is named like an image, such as ``image_1`` or its URL."""
    return _OF_IMAGE.sub("", plain_name(name)) in IMAGE_COLUMNS


_OF_IMAGE = re.compile(r"s?(?:_(?:url|path|file|bytes|base64))?s?(?:_?(?<!\d)\d++)?$")
_DATA_ADDRESS = re.compile(r"\s*data:(?:image|audio|video)/", re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"<(?:image|audio|video) \d+>|"
    r"(?:\A|\n)[^\S\n]*+<(?:image|audio|video)>|<(?:image|audio|video)>[^\S\n]*+(?:\n|\Z)",
    re.IGNORECASE,
)
_PARTS = {
    **dict.fromkeys("image image_url input_image audio input_audio video video_url input_file".split(), ""),
    "file": "file",
    "document": "source",
}
"""Types of a turn's parts that are not text, each with the object that such a part contains; objects about
documents may have these types, too."""


def holds_image(value: object) -> bool:
    """Check whether a value is or names an image, sound or film, whatever its column's name."""
    if isinstance(value, str):
        return bool(_DATA_ADDRESS.match(value) or _PLACEHOLDER.search(value))
    if isinstance(value, dict):
        is_feature = value.keys() >= {"bytes", "path"} and any(value.values())
        content = _PARTS.get(str(value.get("type")))
        is_part = content == "" or (content is not None and isinstance(value.get(content), dict))
        return is_feature or is_part
    return isinstance(value, list) and any(map(holds_image, value))


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
    while words[0] in _AUTHORS and len(words) > 1:
        words.pop(0)
    # "message_sent_to_customer" is a reply; a lone "sent" may be yes or no
    if "_" in plain and not _DELIVERED.isdisjoint(words) and not _COUNTER.search(plain):
        rest = {*words} - _DELIVERED - _RECIPIENTS
        return _AnswerName("reply" if rest <= {*SINGLE_ANSWERS} and len(rest) < 2 else "", "reply")
    stem = "_".join(words)
    form = "plural" if stem in _ANSWERS else "single"
    stem = _ANSWERS.get(stem, stem)
    if stem in SINGLE_ANSWERS:
        return _AnswerName(stem, form)
    match = _NUMBERED.fullmatch(plain)
    if match:
        return _AnswerName(_counted_stem(match[1]), "numbered", match[1], int(match[2]))
    return _AnswerName("", form)


def _counted_stem(name: str) -> str:
    """Find the word for an answer in a numbered name; empty if other words stand beside it."""
    words = words_in(name)
    telling = [word for word in words if word not in _AUTHORS | _COUNTING]
    if telling:
        stems = [_SHORT.get(word, _ANSWERS.get(word, word)) for word in telling]
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
        stem = "" if _counts_models(family) else _counted_stem(_counters(family[0], letters=False).rest)
        for number, name in enumerate(family):
            parsed[name] = _AnswerName(stem, "numbered", family[0], number)
    families: dict[tuple[str, str, str], list[tuple[int, str]]] = {}
    for name, (stem, form, series, number) in parsed.items():
        if stem and (stem not in _REPEATS or (stem in repeats and form == "numbered")):
            families.setdefault((stem, form, series), []).append((number, name))
    return {key: [name for _, name in sorted(columns)] for key, columns in families.items()}


def numbered_columns(names: Iterable[str]) -> list[str]:
    """List the first columns with equal names except for a number, if there are several."""
    return next(iter(counted_families(names, letters=False)), [])


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


def is_divided(value: object, name: str) -> bool:
    """Check whether a text in a plural column holds several right answers, ``A; B``."""
    return isinstance(value, str) and ";" in value.strip(" ;") and plain_name(name) in _SEVERAL_GOLD


_SEVERAL_GOLD = {name for name in GOLD_NAMES if name.endswith("s")}


def right_choice(target: Any, choices: object) -> Any:
    """Find the right choice's text by number or letter, or return the target unchanged.

    A number that no choice has stands for none.
    """
    texts = choices.get("text") if isinstance(choices, Mapping) else choices
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        return target
    labels = choices.get("label") if isinstance(choices, Mapping) else None
    has_labels = isinstance(labels, list) and len(labels) == len(texts)
    letters = list(map(str, labels if has_labels and labels else ascii_uppercase[: len(texts)]))
    if isinstance(target, bool) or not isinstance(target, str | int) or target in texts:
        return target
    # choices that are called 1 to 4 are not counted from 0
    if str(target) in letters:
        return texts[letters.index(str(target))]
    if isinstance(target, str) and not target.isdecimal():
        return target
    return texts[int(target)] if is_place(target, texts) else None


def is_place(target: str | int, texts: Sequence[object]) -> bool:
    """Check whether a number or its digits are a position in a list."""
    # Python refuses to convert thousands of digits
    is_number = isinstance(target, int) or (target.isdecimal() and len(target) < _LONGEST_PLACE)
    return is_number and 0 <= int(target) < len(texts)


_LONGEST_PLACE = 20


def gold_texts(value: object) -> tuple[str, ...]:
    """Read the spellings of a right answer from a text, number, truth value or list.

    Of an object the texts are in ``value`` and ``aliases``, as in TriviaQA, where ``"<unk>"`` marks a
    withheld answer; or in ``text``, as in SQuAD, or ``spans``, as in DROP.

    Raises:
        ValueError: it is something else; the message says what.
    """
    values = value if isinstance(value, list | tuple) else [value]
    if isinstance(value, Mapping) and "value" in value:
        aliases = value.get("aliases") or []
        aliases = aliases if isinstance(aliases, list) else [aliases]
        values = [text for text in [value["value"], *aliases] if text != "<unk>"]
    elif isinstance(value, Mapping):
        lists = [value[name] for name in ("text", "spans") if isinstance(value.get(name), list)]
        values = lists[0] if lists else values
    texts = []
    for number, entry in enumerate(values, 1):
        if isinstance(entry, bool):
            texts.append("true" if entry else "false")
        elif isinstance(entry, float) and not math.isfinite(entry):
            raise ValueError(f"{entry:g} is not an answer")
        elif isinstance(entry, float) and entry.is_integer():  # 204.0 stands for 204 beside missing ones
            texts.append(str(int(entry)))
        elif isinstance(entry, int | float):
            texts.append(str(entry))
        elif isinstance(entry, str):
            texts.append(entry)
        elif entry is not None:
            where = f"entry {number} is" if isinstance(value, list) else "it is"
            raise ValueError(f"{where} {type_name(entry)}")
    return tuple(dict.fromkeys(text for text in texts if text.strip()))


_PERCENT = re.compile(r"(.+?)\s*(?:%|％|per ?cent)", re.IGNORECASE)
# One comma before decimals, and none that may divide thousands.
_DECIMAL_COMMA = re.compile(r"[+-]?(?!0*[1-9]\d{0,2},\d{3}$)\d+,\d+")


def is_percent(value: object) -> bool:
    """Check whether a number has a per cent sign or word."""
    return isinstance(value, str) and _PERCENT.fullmatch(value.strip()) is not None


def number_in(value: object) -> float:
    """Parse a number as written in files: 0.85, ``"85%"``, ``"72 per cent"``, or ``"0,85"``.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, str):
        percent = _PERCENT.fullmatch(value.strip())
        text = percent[1] if percent else value.strip()
        number = float(text.replace(",", ".") if _DECIMAL_COMMA.fullmatch(text) else text)
        return number / 100 if percent else number
    # an integer may be too large for a float
    if isinstance(value, float) or (type(value) is int and abs(value) < 1e300):
        return float(value)
    raise ValueError(f"{type_name(value)} is not a number")


_TYPE_NAMES = {
    type(None): "null",
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
}


def type_name(value: object) -> str:
    """Name the type of a value for a message."""
    return _TYPE_NAMES.get(type(value), type(value).__name__)


def scalar(value: object) -> Scalar | None:
    """Convert a value to question metadata; None if missing, blank, too long, not finite or an object."""
    if isinstance(value, list) and value and all(isinstance(entry, str | int | float) for entry in value):
        if any(isinstance(entry, float) and not math.isfinite(entry) for entry in value):
            return None
        value = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str):
        return value if value.strip() and len(value) <= METADATA_CHARACTERS else None
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else None  # what every reader of JSON can hold
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, date | datetime):
        return value.isoformat()
    return None


def metadata(fields: Mapping[str, object], columns: Iterable[str]) -> dict[str, Scalar]:
    """Collect question metadata from columns and from a ``metadata`` object."""
    values: dict[str, Scalar] = {}
    for column in columns:
        cell = fields.get(column)
        entries = cell.items() if column == "metadata" and isinstance(cell, dict) else [(column, cell)]
        for name, entry in entries:
            value = scalar(entry)
            if value is not None and len(values) < METADATA_COLUMNS:
                values[name] = value
    return values
