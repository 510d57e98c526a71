"""Classes of sampled answers, and the model's confidence."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from selfreflect.errors import ConfigError
from selfreflect.grouping import ordered_groups
from selfreflect.logprobs import AnswerTokens, NoLogprobs
from selfreflect.models.base import Refusal, Reply, Request
from selfreflect.sameness import same_classes
from selfreflect.server.kinds import ends_of
from selfreflect.server.reply import AnswerShare, Confidence, Guaranteed, NoGuarantee
from selfreflect.server.session import Session, exclusively
from selfreflect.store.journal import RepliesInMemory
from selfreflect.traits import traits_of
from selfreflect.uncertainty.asking.asker import Asker
from selfreflect.uncertainty.calibrator_file import CalibratorFile, digests, read_calibrator
from selfreflect.uncertainty.classes import ClassRule, Labels, members_of
from selfreflect.uncertainty.estimators import ESTIMATORS, estimate
from selfreflect.uncertainty.features import Samples, entropy
from selfreflect.uncertainty.guarantee import DriftWatch
from selfreflect.uncertainty.question import AnsweredQuestion, NoValue, list_lengths, token_fields
from selfreflect.uncertainty.relations import jaccard, make_similarity

NO_CONFIDENCE = "none"
KINDS = tuple(
    name
    for name, estimator in ESTIMATORS.items()
    if estimator.needs == "samples" and estimator.confidence and estimator.is_probability
)
"""Estimators whose value is itself a confidence."""


FEW = 30
"""Maximum number of answers that a quick rule sorts into classes without a thread."""
FEW_CHARACTERS = 20_000
"""Maximum total length of these answers in characters."""

VERDICTS = 20_000
"""Maximum number of cached verdicts on pairs of answers, enough for 200 different answers."""

T = TypeVar("T")


@dataclass(frozen=True)
class LoadedCalibrator:
    """A calibrator with its file's digest."""

    id: str
    saved: CalibratorFile
    watch: DriftWatch | None = None
    """Drift detector against the guarantee's scores, if there is a guarantee."""


class Classes(NamedTuple):
    shares: tuple[AnswerShare, ...]
    labels: tuple[int, ...]
    """Index in ``shares`` of each answer's class."""
    entropy: float
    rule: str = ""
    """Rule that made the classes."""


def classes_of(answers: Sequence[str], labels: Labels, rule: str, shown: Sequence[str] = ()) -> Classes:
    """List the classes of answers, largest first, each by its most frequent spelling.

    Args:
        rule: what made the labels.
        shown: the answers as clients see them, if not as they are.
    """
    shares, ranks = [], [0] * len(answers)
    for rank, group in enumerate(ordered_groups(answers, members_of(labels))):
        shares.append(AnswerShare(text=(shown or answers)[group[0]], share=len(group) / len(answers)))
        for index in group:
            ranks[index] = rank
    return Classes(tuple(shares), tuple(ranks), round(entropy(labels), 12), rule)


class AnswerReading(NamedTuple):
    """Classes and confidence read from a question's answers."""

    classes: Classes
    confidence: Confidence
    notes: tuple[str, ...] = ()
    chosen: int | None = None
    """Index of the answer to return unchanged; None for a summary."""
    fields: dict[str, Any] | None = None
    """Fields by JSON Pointer and the whole ``object``, as in ``selfreflect uncertainty --fields``."""
    text: str | None = None
    """Text to return instead of the chosen answer, merged from several."""


def load_calibrator(path: Path, *, one_call: bool = False) -> LoadedCalibrator:
    """Read a calibrator that needs only sampled answers, or for ``one_call`` one answer's tokens.

    Raises:
        DataError: the file is no calibrator.
        ConfigError: it needs a model to be asked, or anything else that the endpoint does not have then.
    """
    saved = read_calibrator(path)
    estimator = ESTIMATORS.get(saved.estimator)
    needs = ("logprobs", "top_logprobs", "token_entropies", "self_certainty") if one_call else ("samples",)
    if estimator is None or estimator.needs not in needs or saved.model:
        has = "the tokens of one response" if one_call else "sampled answers"
        fitted = "normalised_prob or epr" if one_call else "modal_share or entropy"
        raise ConfigError(
            f"{path}: the estimator {saved.estimator!r} of this calibrator needs more than {has}, "
            "which is all that the endpoint has",
            code="estimator",
            remedy=f"Fit a {{serve.calibrator}} for {fitted}.",
        )
    if one_call and saved.samples != (1,):
        raise ConfigError(
            f"{path}: this calibrator was fitted on questions with several answers",
            code="other_samples",
            remedy="Fit a {serve.calibrator} with --num-answers 1.",
        )
    watch = DriftWatch(saved.guarantee.scores) if saved.guarantee else None
    return LoadedCalibrator(hashlib.sha256(path.read_bytes()).hexdigest()[:16], saved, watch)


class ModelOfSession:
    """A request's model as a generator for threads outside the event loop.

    As a context it ends what is still asked when the request does.
    """

    revision = ""

    def __init__(self, session: Session) -> None:
        self.name = session.model.name
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._futures: list[Future[Reply | Refusal]] = []
        self._lock = threading.Lock()
        self._is_over = False

    def generate(self, requests: Sequence[Request]) -> list[Reply | Refusal]:
        """Send all requests concurrently."""
        with self._lock:
            if self._is_over:  # a thread goes on after its request: nothing more is paid for
                raise CancelledError
            replies = [
                # the session belongs to the event loop, and this is a thread
                asyncio.run_coroutine_threadsafe(self._session.ask(request, in_words=True), self._loop)
                for request in requests
            ]
            self._futures += replies
        return [future.result() for future in replies]

    def __enter__(self) -> None:
        with self._lock:
            # entered for each sorting: adaptive sampling sorts again after every batch of answers
            self._futures.clear()
            self._is_over = False

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_over = True
            # does not stop the thread, but ends its wait for the replies
            for future in self._futures:
                future.cancel()


class BeliefReader:
    """Reader of classes and confidence from sampled answers.

    Args:
        rule: what makes two answers the same.
        calibrator: turns the value of its own estimator into a calibrated confidence.
        asks: whether the model of each request is asked about answers that ``rule`` leaves apart:
            ``always`` about all pairs, ``bounded`` about some for each answer and not if the model is too
            small to judge.
    """

    def __init__(
        self,
        rule: ClassRule,
        calibrator: LoadedCalibrator | None = None,
        *,
        asks: Literal["never", "bounded", "always"] = "never",
    ) -> None:
        self.rule = rule
        self.calibrator = calibrator
        self._asks = asks
        self._replies = RepliesInMemory()
        self._conversation: ModelOfSession | None = None
        self._is_quick = rule.name in ("same", "exact", "numeric")
        self._is_free = asyncio.Lock()
        self._similarity = make_similarity(calibrator.saved.similarity) if calibrator else jaccard

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of confidences that a request may choose."""
        fitted = (self.calibrator.saved.estimator,) if self.calibrator else ()
        return tuple(dict.fromkeys((*fitted, *KINDS, NO_CONFIDENCE)))

    def asking(self, session: Session) -> BeliefReader:
        """Make a reader that asks the session's model, if this reader asks any.

        Its verdicts are kept for later requests, and its requests count as the session's.
        """
        is_bounded = self._asks == "bounded"
        is_small = traits_of(session.model.generator.name).is_show_case
        if self._asks == "never" or (is_bounded and is_small):
            return self
        model = ModelOfSession(session)
        asker = Asker(model.name, lambda: model, self._replies)
        reader = BeliefReader(ClassRule("judge", asker=asker, bounded=is_bounded), self.calibrator)
        reader._conversation = model
        # the oldest verdicts go first: a dict keeps its order
        for key in list(islice(self._replies.records, max(0, len(self._replies.records) - VERDICTS))):
            del self._replies.records[key]
        return reader

    async def run(self, answers: Sequence[str], work: Callable[[], T], *, is_quick: bool = True) -> T:
        """Run work on answers without delaying other requests, in a thread if it may be slow."""
        is_short = len(answers) <= FEW and sum(map(len, answers)) <= FEW_CHARACTERS
        if is_quick and self._is_quick and is_short:
            return work()
        if self._conversation is not None:
            # threads of their own: those of the loop look up host names, which the calls here wait for
            threads = ThreadPoolExecutor(1, "classes")
            try:
                with self._conversation:
                    return await asyncio.get_running_loop().run_in_executor(threads, work)
            finally:
                # waiting for the thread would hold up the event loop
                threads.shutdown(wait=False)
        return await exclusively(self._is_free, work)

    def labels(self, question: str, answers: Sequence[str]) -> Labels:
        """Sort answers into classes, numbered in the order of first answers."""
        labels = self.rule(AnsweredQuestion(id="", text=ends_of(question), answers=tuple(answers)))
        # a server runs for months
        self.rule.forget(VERDICTS)
        return labels

    def read(
        self,
        kind: str,
        question: str,
        answers: tuple[str, ...],
        model: str = "",
        tokens: Sequence[AnswerTokens | NoLogprobs] = (),
    ) -> AnswerReading:
        """Classify the answers and estimate the confidence, calibrated if possible.

        Args:
            kind: the estimator, or ``none``.
            model: that drew the answers, as a run directory names it; a guarantee is about one model.
            tokens: of the answers, for estimators that read them.
        """
        asked = AnsweredQuestion(id="", text=ends_of(question), answers=answers, **token_fields(tokens))
        weights = (self.calibrator.saved.weights or ()) if self.calibrator is not None else ()
        samples = Samples(asked, self.rule, self._similarity, weights=weights)
        classes = classes_of(answers, samples.labels, self.rule.name)
        confidence = self._confidence(kind, samples, model, question)
        self.rule.forget(VERDICTS)
        notes = (*confidence.notes, self._wording(asked.text, classes, answers), *self.rule.caveats)
        return AnswerReading(classes, confidence, notes=notes)

    def _wording(self, question: str, classes: Classes, answers: tuple[str, ...]) -> str:
        """Describe how many classes differ only in wording; empty if none do."""
        # every other rule joins wordings itself
        if self.rule.name != "exact":
            return ""
        fewer = len(set(same_classes(question, answers)))
        if fewer == len(classes.shares):
            return ""
        return f"the {len(classes.shares)} classes by spelling are {fewer} by the class rule same"

    def _confidence(self, kind: str, samples: Samples, model: str, question: str) -> Confidence:
        answered = samples.question
        number = len(answered.answers)
        fitted = self.calibrator.saved if self.calibrator is not None else None
        # a guarantee is about the calibrator's score, so a request for another confidence goes without
        other: NoGuarantee | None = "other_confidence" if fitted is not None and fitted.guarantee else None
        if kind == NO_CONFIDENCE:
            return Confidence(None, None, number, no_guarantee=other)
        value = estimate(ESTIMATORS[kind], samples)
        # the entropy of the k likeliest tokens grows with k, so a fit holds for its own k alone
        ranks = fitted.ranks if fitted is not None and fitted.estimator == kind else None
        if ranks and not isinstance(value, NoValue) and list_lengths([answered]) != [ranks]:
            value = NoValue(
                "too_few_ranks", f"the calibrator was fitted on {ranks} likely tokens at each position"
            )
        if isinstance(value, NoValue):
            notes: tuple[str, ...] = (f"no confidence: {value.message}",)
            return Confidence(None, None, number, notes=notes, no_guarantee=other and "no_value")
        if self.calibrator is None or fitted is None or fitted.estimator != kind:
            return Confidence(value, kind, number, no_guarantee=other)
        score = ESTIMATORS[kind].score(value)
        is_known = not set(fitted.questions).isdisjoint(digests([AnsweredQuestion(id="", text=question)]))
        reason = self._lack(score, number, model, is_known)
        # a calibrator is too sure on questions that it was fitted on
        if is_known:
            note = "not calibrated: the calibrator was fitted on this very question"
            # an entropy is not a probability, so without its calibrator it is no confidence
            value_as_is = value if ESTIMATORS[kind].is_probability else None
            kind_as_is = None if value_as_is is None else kind
            return Confidence(value_as_is, kind_as_is, number, notes=(note,), no_guarantee=reason)
        notes = ()
        if number not in fitted.samples:
            sizes = ", ".join(map(str, fitted.samples))
            notes = (f"the calibrator was fitted on questions with {sizes} answers, not {number}",)
        if reason == "drift":
            notes = (
                *notes,
                "the guarantee no longer applies, because the distribution of scores has changed",
            )
        guaranteed = None
        if (found := fitted.guarantee) and reason is None:
            answer = samples.modal_answer or ""
            guaranteed = Guaranteed(risk=found.risk, confidence=found.confidence, n=found.n, answer=answer)
        calibrated = float(fitted.calibrator([score])[0])
        return Confidence(calibrated, kind, number, self.calibrator.id, notes, guaranteed, reason)

    def _lack(self, score: float, answers: int, model: str, is_known: bool) -> NoGuarantee | None:
        """Explain why a guarantee does not cover a score; None if it does, or without a guarantee."""
        assert self.calibrator is not None  # the caller has looked
        guarantee, watch = self.calibrator.saved.guarantee, self.calibrator.watch
        if not guarantee or watch is None:
            return None
        if guarantee.model and model and guarantee.model != model:
            return "other_model"
        if answers != guarantee.samples:
            return "other_number"
        # before the next returns: drift is that of all questions, also of those that are not covered
        watch.add(score)
        if is_known:
            return "known_question"
        if not guarantee.covers(score):
            return "below"
        return "drift" if watch.has_drifted else None
