"""Metrics that compare texts: a language model's marks, embeddings, words and length.

Embeddings need the extra ``embed``; transport between them and ROUGE-L need ``validate``.
"""

from __future__ import annotations

import hashlib
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from statistics import fmean
from typing import TypeVar

from selfreflect.errors import MissingExtraError, excerpt
from selfreflect.metric.measure import MeasureItem, measures_of
from selfreflect.metric.prompts import CannotScoreError
from selfreflect.models.base import Generator, Message, Refusal, Reply, Request, Sampling, as_done
from selfreflect.models.embed import SentenceEmbedder
from selfreflect.prompts import bundled_texts
from selfreflect.records import dump_line
from selfreflect.sources.items import Item
from selfreflect.stats import Floats
from selfreflect.text import fill, normalise_question, numbered, quoted
from selfreflect.validate.base import Family, MetricInfo, Result, Results, Undefined, model_name

T = TypeVar("T")


class TextMetrics(Family):
    """Metrics that hold no answers out: both halves count. Blank texts have no value."""

    def measure(self, item: Item) -> Mapping[str, Results]:
        answers = [answer for answer in (*item.masked_out, *item.conditioning) if answer.strip()]
        if not answers:
            raise CannotScoreError("no_answers", "every answer is blank, or there is none")
        reason = Undefined(reason="blank", message="the summary is blank")
        blank: Results = {info.name: reason for info in self.metrics}
        results = dict.fromkeys(item.summaries.values(), blank)
        summaries = [text for text in results if text.strip()]
        if summaries:
            results |= zip(summaries, self.compare(item.question, answers, summaries), strict=True)
        return results

    @abstractmethod
    def compare(self, question: str, answers: Sequence[str], summaries: Sequence[str]) -> Iterator[Results]:
        """Compute all metrics of each summary. There are answers and summaries, none of them blank."""


# Room for a mark and some words around it. A longer reply is not in the form that was asked for.
RATING_TOKENS = 64

_RATING = re.compile(r"(?:(?:rating|score) ?:? ?)?(10|[0-9])(?: ?/ ?10| out of 10)? ?\.?", re.IGNORECASE)


def parse_rating(reply: str) -> float | Undefined:
    """Read a whole number from 0 to 10 and next to nothing else: ``7``, ``7/10``, ``Rating: 7 out of 10.``,
    ``**7**``.

    A number within a sentence is refused: it may be a count of answers, or an answer.
    """
    match = _RATING.fullmatch(re.sub(r"[\s*]+", " ", reply).strip())
    return float(match[1]) if match else unparsed(reply, "a number from 0 to 10")


class Rated(TextMetrics):
    """A generator's marks, one request for each summary."""

    def __init__(self, generator: Generator, metrics: Sequence[MetricInfo]) -> None:
        super().__init__(metrics)
        self._generator = generator
        self._template = prompts()["llm_judge"]["rate"]
        self.by = name_with_prompts(generator, prompts()["llm_judge"])

    def compare(self, question: str, answers: Sequence[str], summaries: Sequence[str]) -> Iterator[Results]:
        """Ask for marks 0, 1, …, 10."""
        description = described(question, answers)
        questions = [filled(self._template, description, summary=quoted(summary)) for summary in summaries]
        for mark in ask(self._generator, questions, RATING_TOKENS, parse_rating):
            yield {"llm_judge": mark}


def prompts() -> Mapping[str, Mapping[str, str]]:
    """Read ``data/validate_prompts.toml``, by metric. No run configures them."""
    return bundled_texts("validate_prompts.toml")


def described(question: str, answers: Sequence[str]) -> dict[str, str]:
    """Write what every prompt may say of an item.

    Texts from files or models are quoted as JSON on a line of their own, so that they cannot pass for part of
    the prompt.
    """
    return {"question": quoted(normalise_question(question)), "answers": numbered(answers)}


def filled(template: str, description: Mapping[str, str], **texts: str) -> str:
    """Put a description and further quoted texts in place of their names."""
    return fill(template, {**description, **texts}).strip()


def name_with_prompts(generator: Generator, texts: Mapping[str, str]) -> str:
    """Name the model with a digest of its prompts: other prompts make another metric."""
    name = model_name(generator.name, generator.revision, getattr(generator, "facts", {}))
    return f"{name}, prompts {hashlib.sha256(dump_line(texts).encode()).hexdigest()[:8]}"


def ask(
    generator: Generator, questions: Sequence[str], max_new_tokens: int, parse: Callable[[str], T | Undefined]
) -> list[T | Undefined]:
    """Ask each question greedily, and parse the replies, in order. Equal questions are asked once.

    Raises:
        BackendError: the generator has given up, so that further questions are pointless.
    """
    sampling = Sampling(temperature=0.0, max_new_tokens=max_new_tokens)
    distinct = list(dict.fromkeys(questions))
    requests = [
        Request(messages=(Message(role="user", content=text),), sampling=sampling) for text in distinct
    ]
    results: dict[str, T | Undefined] = {}
    for index, reply in as_done(generator, requests) if requests else ():
        text = _text(reply)
        results[distinct[index]] = text if isinstance(text, Undefined) else parse(text)
    return [results[question] for question in questions]


def unparsed(reply: str, request: str) -> Undefined:
    """Record that a reply has another form than was asked for."""
    message = f"the model was asked for {request} and replied {excerpt(reply, 200)}"
    return Undefined(reason="unparsed", message=message)


def _text(reply: Reply | Refusal) -> str | Undefined:
    """Take the text of a whole reply, or say why there is none."""
    if isinstance(reply, Refusal):
        return Undefined(reason=reply.kind, message=reply.message)
    finish = reply.completions[0].finish
    if finish == "unclosed_reasoning":
        return Undefined(reason="unclosed_reasoning", message="the reply never ended its reasoning trace")
    if finish == "length":
        message = f"the token limit was reached after {excerpt(reply.text, 200)}"
        return Undefined(reason="cut_off", message=message)
    return reply.text


_END = re.compile(r"(?<=[.!?…])(?<!\b\d\.)\s+|(?<=[。！？])|\n+")


def sentences(text: str) -> list[str]:
    """Cut a text into sentences, at line ends and after ``.``, ``!``, ``?`` or ``…`` before white space.

    Where that leaves nothing, the text itself is the only sentence.
    A single digit with its full stop ("1. Paris") begins a sentence and ends none. Abbreviations are not
    known: "Dr. Who" is cut in two.
    """
    parts = [part.strip() for part in _END.split(text)]
    return [part for part in parts if any(character.isalnum() for character in part)] or [text]


def transport(costs: Floats) -> float:
    """Compute the least mean cost of moving equal masses at the rows onto equal masses at the columns: by the
    network simplex of Bonneel et al. (2011, ACM TOG 30) in POT.

    Args:
        costs: shape (rows, columns), finite, at least one of each.
    """
    import ot

    # Without weights POT takes equal ones. It would stop early, with a mere warning, at its default of
    # 100,000 steps.
    cost = ot.emd2([], [], costs, numItermax=2**31 - 1)
    return max(0.0, float(cost))


class Embedded(TextMetrics):
    """Distances of a summary from the answers as sentence embeddings of all-MiniLM-L6-v2, which reads the
    first 256 word pieces of a text. All answers count, as often as they were given.

    Raises:
        MissingExtraError: an extra is not installed.
        BackendError: the installed model is not the published one.
    """

    def __init__(self, metrics: Sequence[MetricInfo]) -> None:
        super().__init__(metrics)
        names = [info.name for info in metrics]
        if "embedding_transport" in names and find_spec("ot") is None:
            raise MissingExtraError("Optimal transport between embeddings", "validate")
        self._embed = SentenceEmbedder("Measuring distances between embeddings")
        self.by = self._embed.name

    def compare(self, question: str, answers: Sequence[str], summaries: Sequence[str]) -> Iterator[Results]:
        """Compute a cosine distance in [0, 2], and a transport cost in the same range."""
        embedded = self._embed(answers).astype(float)
        for summary in summaries:
            distances = {}
            for info in self.metrics:
                whole = info.name == "embedding_cosine"
                texts = [summary] if whole else sentences(summary)
                costs = (1.0 - embedded @ self._embed(texts).T.astype(float)).clip(0, 2)
                distances[info.name] = float(costs.mean()) if whole else transport(costs)
            yield distances


class WordTokenizer:
    """Tokenizer of words in lower case, as rouge-score's but of every script, where that drops what is not
    ASCII."""

    _WORD = re.compile(r"[^\W_]+")

    def tokenize(self, text: str) -> list[str]:
        return self._WORD.findall(text.lower())


class Overlap(TextMetrics):
    """ROUGE-L against every answer (Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries").

    The F-measure, not recall: recall grows with every word added to a summary, so it would repeat what the
    control ``length`` says.

    Raises:
        MissingExtraError: rouge-score is not installed.
    """

    def __init__(self, metrics: Sequence[MetricInfo]) -> None:
        super().__init__(metrics)
        try:
            from rouge_score.rouge_scorer import RougeScorer
        except ImportError:
            raise MissingExtraError("ROUGE-L", "validate") from None
        self._words = WordTokenizer()
        self._scorer = RougeScorer(["rougeL"], tokenizer=self._words)

    def compare(self, question: str, answers: Sequence[str], summaries: Sequence[str]) -> Iterator[Results]:
        for summary in summaries:
            if self._words.tokenize(summary):
                scores = [self._scorer.score(answer, summary)["rougeL"].fmeasure for answer in answers]
                yield {"rouge_l": fmean(scores)}
            else:
                message = "the summary has no letter and no digit"
                yield {"rouge_l": Undefined(reason="blank", message=message)}


class Measured(Family):
    """Measures of the table that need no judge, as ``run`` and ``score`` compute them."""

    def measure(self, item: Item) -> dict[str, Results]:
        """Compute each measure."""
        results: dict[str, dict[str, Result]] = {text: {} for text in item.summaries.values()}
        for measure in measures_of([info.name for info in self.metrics]):
            for summary in item.summary_records:
                measured = measure.score(MeasureItem(item.question_record, item.answer_set, summary))
                reason = Undefined(reason="blank", message=measure.reason(measured.undefined))
                value = measured.value
                results[summary.text][measure.name] = reason if value is None else value
        return {**results}


class Length(Family):
    """Number of words of a summary; a blank one has none."""

    def measure(self, item: Item) -> dict[str, Results]:
        """Count the words."""
        return {text: {"length": float(len(text.split()))} for text in item.summaries.values()}
