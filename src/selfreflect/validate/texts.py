"""Metrics that compare texts: marks by a model, embeddings, words and length.

Embeddings need the extra ``embed``; transport between them and ROUGE-L need ``validate``.
"""

from __future__ import annotations

import hashlib
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from statistics import fmean

from selfreflect.errors import MissingExtraError, excerpt, optional
from selfreflect.metric.prompts import CannotScoreError
from selfreflect.models.base import Generator, Message, Refusal, Reply, Request, Sampling, as_done
from selfreflect.models.embed import SentenceEmbedder
from selfreflect.prompts import bundled_texts
from selfreflect.records import dump_line
from selfreflect.sources.items import Item
from selfreflect.stats import Floats
from selfreflect.text import fill, normalise_question, numbered, quoted
from selfreflect.validate.base import Family, MetricInfo, Result, Results, Undefined, model_name


class TextMetrics(Family):
    """Text metrics over all answers of both halves. Blank texts have no value."""

    def measure(self, item: Item) -> Mapping[str, Results]:
        answers = [answer for answer in (*item.masked_out, *item.conditioning) if answer.strip()]
        if not answers:
            raise CannotScoreError("no_answers", "every answer is blank, or there is no answer")
        reason = Undefined(reason="blank", message="the summary is blank")
        blank: Results = {info.name: reason for info in self.metrics}
        results = dict.fromkeys(item.summaries.values(), blank)
        summaries = [text for text in results if text.strip()]
        if summaries:
            results |= zip(summaries, self.compare(item.question, answers, summaries), strict=True)
        return results

    @abstractmethod
    def compare(self, question: str, answers: Sequence[str], summaries: Sequence[str]) -> Iterator[Results]:
        """Compute all metrics of each summary, given at least one answer and one summary, none of them
        blank."""


# Room for a mark and some words around it. A longer reply is not in the form that was asked for.
RATING_TOKENS = 64

_RATING = re.compile(r"(?:(?:rating|score) ?:? ?)?(10|[0-9])(?: ?/ ?10| out of 10)? ?\.?", re.IGNORECASE)


def parse_rating(reply: str) -> Result:
    """Parse a lone number from 0 to 10: ``7``, ``7/10``, ``Rating: 7 out of 10.``, ``**7**``.

    A number within a sentence is refused: it may be a count of answers, or an answer.
    """
    match = _RATING.fullmatch(re.sub(r"[\s*]+", " ", reply).strip())
    if match:
        return float(match[1])
    message = f"the model was asked for a number from 0 to 10 and replied {excerpt(reply, 200)}"
    return Undefined(reason="unparsed", message=message)


class Rated(TextMetrics):
    """A generator's marks from 0 to 10, one greedy request per summary.

    The prompt is ``data/validate_prompts.toml``, which no run configures: its digest is part of the model's
    name, since another prompt makes another metric.
    """

    def __init__(self, generator: Generator, metrics: Sequence[MetricInfo]) -> None:
        super().__init__(metrics)
        self._generator = generator
        prompts = bundled_texts("validate_prompts.toml")["llm_judge"]
        self._template = prompts["rate"]
        digest = hashlib.sha256(dump_line(prompts).encode()).hexdigest()[:8]
        name = model_name(generator.name, generator.revision, getattr(generator, "facts", {}))
        self.by = f"{name}, prompts {digest}"

    def compare(self, question: str, answers: Sequence[str], summaries: Sequence[str]) -> Iterator[Results]:
        # texts from files or models are quoted as JSON on a line of their own, so that they cannot pass for
        # part of the prompt
        texts = {"question": quoted(normalise_question(question)), "answers": numbered(answers)}
        sampling = Sampling(temperature=0.0, max_new_tokens=RATING_TOKENS)
        requests = []
        for summary in summaries:
            content = fill(self._template, {**texts, "summary": quoted(summary)}).strip()
            requests.append(Request(messages=(Message(role="user", content=content),), sampling=sampling))
        replies = dict(as_done(self._generator, requests))
        for index in range(len(summaries)):
            yield {"llm_judge": _mark(replies[index])}


def _mark(reply: Reply | Refusal) -> Result:
    """Parse the mark in a complete response, or give the reason for its absence."""
    if isinstance(reply, Refusal):
        return Undefined(reason=reply.kind, message=reply.message)
    finish = reply.completions[0].finish
    if finish == "unclosed_reasoning":
        return Undefined(reason="unclosed_reasoning", message="the reply never ended its reasoning trace")
    if finish == "length":
        message = f"the token limit was reached after {excerpt(reply.text, 200)}"
        return Undefined(reason="cut_off", message=message)
    return parse_rating(reply.text)


_END = re.compile(r"(?<=[.!?…])(?<!\b\d\.)\s+|(?<=[。！？])|\n+")


def sentences(text: str) -> list[str]:
    """Split a text into sentences, at line ends and after ``.``, ``!``, ``?`` or ``…``.

    Where that leaves nothing, the text itself is the only sentence.
    A single digit with its full stop ("1. Paris") begins a sentence and ends none. Abbreviations are not
    known: "Dr. Who" is cut in two.
    """
    parts = [part.strip() for part in _END.split(text)]
    return [part for part in parts if any(character.isalnum() for character in part)] or [text]


def transport(costs: Floats) -> float:
    """Compute the least mean cost of moving equal masses from rows to columns, by the network simplex of
    Bonneel et al. (2011, ACM TOG 30) in POT.

    Args:
        costs: shape (rows, columns), finite, at least one of each.
    """
    import ot

    # Without weights POT takes equal ones. It would stop early, with a mere warning, at its default of
    # 100,000 steps.
    cost = ot.emd2([], [], costs, numItermax=2**31 - 1)
    return max(0.0, float(cost))


class Embedded(TextMetrics):
    """Distances between a summary's and answers' sentence embeddings by all-MiniLM-L6-v2. All answers count,
    as often as they were given.

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
        """Compute a cosine distance and a transport cost, both in [0, 2]."""
        embedded = self._embed(answers).astype(float)
        for summary in summaries:
            distances = {}
            for info in self.metrics:
                whole = info.name == "embedding_cosine"
                texts = [summary] if whole else sentences(summary)
                # rounding may step out of the range
                costs = (1.0 - embedded @ self._embed(texts).T.astype(float)).clip(0, 2)
                distances[info.name] = float(costs.mean()) if whole else transport(costs)
            yield distances


class WordTokenizer:
    """Tokenizer of lower-case words like rouge-score's, but for every script."""

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
        with optional("ROUGE-L", "validate"):
            from rouge_score.rouge_scorer import RougeScorer
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


class Length(Family):
    """Number of words in a summary; blank ones have none."""

    def measure(self, item: Item) -> dict[str, Results]:
        """Count the words of each summary."""
        return {text: {"length": float(len(text.split()))} for text in item.summaries.values()}
