"""Reflection on a question: answers, summary, classes, confidence and measures."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from selfreflect.answers import answer_set
from selfreflect.errors import DataError, excerpt, nearest
from selfreflect.metric.measure import Measured, Measures, measure_named, measure_names, measure_of
from selfreflect.models.base import Reply, Request, Sampling, ToolCall
from selfreflect.models.openai.client import together
from selfreflect.prompts import Prompts
from selfreflect.records import AnswerSet, Failure, Finish, Question, Summary, question_id
from selfreflect.server.belief import NO_CONFIDENCE, AnswerReading, BeliefReader, Classes
from selfreflect.server.chat import ChatRequest
from selfreflect.server.clarify import AGREEMENTS, FinalText, UnsurePolicy, clarify
from selfreflect.server.errors import REFUSED_FIELD, ChatError
from selfreflect.server.kinds import ends_of
from selfreflect.server.reply import Belief, ChatChoice, ChatResponse, Confidence, Ending, Spending
from selfreflect.server.session import (
    ConversationTask,
    Session,
    TokenPrice,
    WithFields,
    exclusively,
    held_out,
)
from selfreflect.server.stopping import StoppingRule
from selfreflect.server.structured import calls_of, read_calls, read_objects
from selfreflect.settings import ServeConfig
from selfreflect.strategies import STRATEGIES, StrategyFunction, load_strategy
from selfreflect.strategies.task import FRESH, GREEDY
from selfreflect.text import counted, percent
from selfreflect.uncertainty.claims.placed import ToldClaim, told_claims
from selfreflect.uncertainty.fields.values import parse, without_fence
from selfreflect.uncertainty.question import AnsweredQuestion

if TYPE_CHECKING:
    from selfreflect.uncertainty.claims.labelled import ClaimCalibrator


NOT_COUNTED = "the model's server does not count tokens, so token counts are null"
_OBJECTS = "most answers are JSON objects, so the most common one comes back, not a summary"
_NO_TOOLS = "the tools that came with the question were ignored (--ignore-tools)"


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Defaults of the endpoint that requests may override."""

    prompts: Prompts
    options: ServeConfig
    strategies: tuple[str, ...] = ("sample_and_summarize",)
    """Permitted strategies, the default first. Requests may name any of these and any built-in one."""
    sampling: Sampling = FRESH
    """Sampling settings of answers."""
    summary: Sampling = GREEDY
    thinking: bool = False
    confidence: str = "modal_share"
    measures: tuple[str, ...] = ()
    claims_calibrator: ClaimCalibrator | None = None
    prices: Mapping[str, TokenPrice] = field(default_factory=dict)
    """Prices by generator name."""

    @property
    def unsure(self) -> UnsurePolicy | None:
        """The action below a threshold of confidence, if any."""
        options = self.options
        if options.when_unsure is None:
            return None
        return UnsurePolicy(
            options.when_unsure, options.below, options.ask_candidates, options.ask_hypotheses
        )


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A question with its full result."""

    response: ChatResponse
    question: Question
    answers: AnswerSet
    classes: Classes
    summaries: tuple[Summary, ...]
    results: tuple[Measured, ...] = ()
    first_seconds: float | None = None
    """Seconds until the first answer, the time of a plain answer."""

    @property
    def belief(self) -> Belief:
        assert self.response.belief is not None  # a question has one
        return self.response.belief


ONE_CALL = "one_call"
"""Strategy that returns one response unchanged."""
MODAL_OBJECT, MODAL_CALL = "modal_object", "modal_call"
"""Strategies that return the most common JSON object or tool call."""
MERGED_OBJECT = "merged_object"
"""Strategy of JSON that combines each field's most common value."""
RANKS = 20
"""Number of likely tokens requested per token of one response, unless the calibrator was fitted on another
number. Servers return no more."""


REFUSED_SECONDS = 3600.0
"""Seconds before sampling settings that were refused for a summary are tried again."""
MOST_REFUSED = 256
"""Maximum number of refused sampling settings to remember."""


@dataclass(frozen=True)
class _Plan:
    """Settings of one request, including defaults."""

    strategy: str
    confidence: str
    measures: tuple[str, ...]
    rule: StoppingRule | None
    tasks: tuple[ConversationTask, ...]
    """Tasks, one per choice."""
    ranks: int = RANKS
    """Number of likely tokens to request, for one response."""

    @property
    def request(self) -> Request:
        """The request that draws the answers, or one answer with likely tokens."""
        request = self.tasks[0].sample_request()
        if self.strategy != ONE_CALL:
            return request
        return replace(request, n=1, logprobs=True, top_logprobs=self.ranks)


class _Drawn(NamedTuple):
    """A request's sampled answers, their distribution, and the texts to return."""

    plan: _Plan
    reply: Reply
    drafts: Sequence[Summary]
    reading: AnswerReading


class Reflector:
    """Service that answers questions with summaries of their answer distribution.

    Args:
        reader: classes and confidence.
        judge: measures summaries, by the names of the measures that are wanted.
    """

    def __init__(
        self, settings: ServeSettings, reader: BeliefReader, judge: Mapping[str, Measures] | None = None
    ) -> None:
        self.settings = settings
        self._reader = reader
        self._judge = dict(judge or {})
        self._judge_is_free = asyncio.Lock()
        self._claims_are_free = asyncio.Lock()
        self._refused: dict[tuple[str, str, Sampling], tuple[float, str]] = {}
        """Time and reason of refusals, by model, strategy and summary sampling."""
        self._strategies: dict[str, StrategyFunction] = dict(STRATEGIES)
        for name in settings.strategies:
            self._strategies[name] = load_strategy(name)

    async def answer(
        self, chat: ChatRequest, model: WithFields, belief: Belief, on_open: Callable[[], None]
    ) -> Exchange:
        """Answer a question.

        Args:
            belief: before anything but the decision is known.
            on_open: called as soon as the model has said anything.

        Raises:
            ChatError: an option of the request is unknown, or the model or a strategy failed.
        """
        id_ = belief.id
        session = Session(model, on_open, self.settings.prices.get(model.generator.name))
        reader = self._reader.asking(session)
        plan, reply, drafts, reading = await self._drawn(chat, self._plan(chat), session, reader)
        classes, confidence = reading.classes, reading.confidence
        if confidence.guarantee is not None and self._cuts(chat, reply):
            confidence = confidence._replace(guarantee=None, no_guarantee="cut_off")
        question = Question(id=id_, text=chat.question, context=chat.context)
        summaries = _named(drafts, id_)
        answers, results = await self._measure(plan, session, question, reply, summaries)
        calls = () if reading.chosen is None else calls_of(reply.completions[reading.chosen])
        # an answer in words is a text even where tools were offered; JSON is none
        is_text = reading.chosen is None or (bool(chat.tools) and not calls and chat.response_format is None)
        if is_text:
            cuts = [cut_at(summary.text, chat.stop) for summary in summaries]
            wordings = await self._word(session, question, confidence, classes, [text for text, _ in cuts])
        else:  # nobody else's words fit into JSON
            cuts = [(summary.text, None) for summary in summaries]
            wordings = [FinalText(text, None) for text, _ in cuts]
        claims, unlisted = await self._claims(chat, reply.texts, wordings[0].text, reading.chosen is None)
        values, reasons = _values(results)
        by_key = {measure_named(name).key: value for name, value in values.items()}
        notes = (
            *field_notes(chat, model),
            _cut_off(reply),
            *reading.notes,
            *reasons,
            unlisted,
            wordings[0].note,
            "" if session.counts_tokens else NOT_COUNTED,
        )
        belief = replace(
            belief,
            strategy=plan.strategy,
            confidence=confidence.value,
            confidence_kind=confidence.kind,
            calibrated=confidence.calibrator_id is not None,
            calibrator_id=confidence.calibrator_id,
            num_answers=len(reply.texts),
            classes=classes.shares,
            classes_by=classes.rule,
            entropy=classes.entropy,
            recovered=by_key.get("recovered"),
            score=by_key.get("score"),
            measured=values,
            action=wordings[0].action,
            # a hedge, or a question back, is not the answer that the guarantee is about
            guarantee=confidence.guarantee if wordings[0].action is None else None,
            no_guarantee=confidence.no_guarantee,
            cost=session.spending,
            notes=tuple(dict.fromkeys(filter(None, notes))),
            fields=reading.fields,
            claims=claims,
        )
        choices = []
        for summary, wording, (text, stopped_at) in zip(summaries, wordings, cuts, strict=True):
            is_ours = wording.text != text
            text = wording.text
            if self.settings.options.footer and is_text:
                text = f"{text}\n\n{footer(belief)}"
            # words of our own are whole, whatever the summary was
            is_cut = summary.truncated and wording.action in (None, "hedge") and stopped_at is None
            finish: Finish = "length" if is_cut else "stop"
            choices.append(choice_of(text, calls, finish, None if is_ours else stopped_at))
        return Exchange(
            response=response_to(
                chat,
                id_,
                choices,
                session.spending,
                (plan.tasks[0] if is_text else plan.request).sampling,
                belief,
            ),
            question=question,
            answers=answers,
            classes=classes,
            summaries=summaries,
            results=results,
            first_seconds=session.first_seconds,
        )

    def _cuts(self, chat: ChatRequest, reply: Reply) -> bool:
        """Check whether the client's token limit, lower than the server's, cut off an answer."""
        limit = self.settings.sampling.max_new_tokens
        is_lower = chat.max_tokens is not None and chat.max_tokens < limit
        return is_lower and any(completion.finish == "length" for completion in reply.completions)

    async def _drawn(self, chat: ChatRequest, plan: _Plan, session: Session, reader: BeliefReader) -> _Drawn:
        """Draw the answers as the request demands, and read their distribution."""
        if chat.structure:
            reply = await session.draw(plan.request)
            return await self._structured(chat, plan, session, reader, reply)
        single = await self._one_call(chat, plan, session, reader)
        if single is not None and not self._could_change(single.reading.confidence):
            return single
        reply, drafts = await self._draw(plan, session, reader)
        # a client that asks for JSON in words reads no summary of it
        objects = sum(isinstance(parse(text), dict) for text in reply.texts)
        if chat.n == 1 and objects > len(reply.texts) / 2:
            drawn = await self._structured(chat, plan, session, reader, reply)
            return drawn._replace(reading=drawn.reading._replace(notes=(_OBJECTS, *drawn.reading.notes)))
        name = session.model.generator.name
        read = partial(reader.read, plan.confidence, chat.question, reply.texts, name)
        reading = await reader.run(reply.texts, read)
        if single is not None and single.reading.confidence.value is None:  # why one call was not enough
            notes = (f"in one call, {note}" for note in single.reading.confidence.notes)
            reading = reading._replace(notes=(*notes, *reading.notes))
        return _Drawn(plan, reply, drafts, reading)

    async def _structured(
        self, chat: ChatRequest, plan: _Plan, session: Session, reader: BeliefReader, reply: Reply
    ) -> _Drawn:
        """Answer with the most common sampled answer unchanged: JSON, or tool calls."""
        read = (
            partial(
                read_calls,
                ends_of(chat.question),
                reply.completions,
                chat.tools,
                reader.rule,
                must_call=chat.must_call,
            )
            if chat.tools
            else partial(
                read_objects,
                ends_of(chat.question),
                reply.texts,
                chat.response_format or {},
                reader.rule,
                merges=self.settings.options.merge == "field",
            )
        )
        # a client's schema, and what a model writes, may take long
        reading = await reader.run(reply.texts, read, is_quick=False)
        notes = (*reading.confidence.notes, *reading.notes)
        if plan.measures:
            notes = (f"not measured for JSON and tools: {', '.join(plan.measures)}", *notes)
        if plan.confidence == NO_CONFIDENCE:
            reading = reading._replace(confidence=Confidence(None, None, len(reply.texts)))
        asked = {"strategy": chat.options.strategy, "confidence": chat.options.confidence}
        unheeded = [name for name, value in asked.items() if value not in (None, NO_CONFIDENCE)]
        if unheeded:
            notes = (f"ignored for JSON and tools: {', '.join(unheeded)}", *notes)
        has_guarantee = self._reader.calibrator is not None and self._reader.calibrator.saved.guarantee
        if has_guarantee:
            reading = reading._replace(
                confidence=reading.confidence._replace(no_guarantee="other_confidence")
            )
        strategy = MODAL_CALL if chat.tools else MODAL_OBJECT
        plan = dataclasses.replace(plan, strategy=strategy, measures=())
        draft = _as_drawn(plan, session, reply, reading.chosen or 0)
        if reading.text is not None:
            draft = replace(draft, text=reading.text, name=MERGED_OBJECT)
            plan = dataclasses.replace(plan, strategy=MERGED_OBJECT)
        return _Drawn(plan, reply, [draft], reading._replace(notes=notes))

    def plain_request(self, chat: ChatRequest) -> Request:
        """Make the request for an answer without reflection."""
        settings = self.settings
        # an essay may be as long as its client allows
        limit = chat.max_tokens or settings.summary.max_new_tokens
        sampling = _requested(settings.sampling, chat, limit)
        seed = secrets.randbits(48) if chat.seed is None else chat.seed % 2**48
        return Request(
            messages=chat.messages, sampling=sampling, n=chat.n, seed=seed, thinking=settings.thinking
        )

    def _plan(self, chat: ChatRequest) -> _Plan:
        settings, options = self.settings, chat.options
        strategy = options.strategy or settings.strategies[0]
        _check_known("strategy", strategy, self._strategies)
        confidence = options.confidence or settings.confidence
        _check_known("confidence", confidence, self._reader.kinds)
        measures = settings.measures if options.measures is None else options.measures
        for name in measures:
            self._check_measure(name)
        number = options.num_answers or settings.options.num_answers
        rule = self._stopping(number, confidence)
        tasks = tuple(self._task(chat, strategy, number, index) for index in range(chat.n))
        return _Plan(strategy, confidence, tuple(measures), rule, tasks)

    def _check_measure(self, name: str) -> None:
        """Prepare a measure that needs no judge. Raises ChatError if the measure is unknown or needs a
        judge."""
        if name in self._judge:
            return
        _check_known("measure", name, measure_names())
        if "judge" in measure_named(name).needs:
            message = (
                f"{name} cannot be measured, because the server has no judge for it (--judge, --measures)"
            )
            raise ChatError(400, message, param="selfreflect")
        self._judge[name] = Measures(None, wanted_names=[name], controls=False)

    def _stopping(self, number: int, confidence: str) -> StoppingRule | None:
        """Choose the rule for stopping the sampling. If ``unsure`` depends on the share of the most likely
        class, sampling goes on until this share is clearly above or below the threshold."""
        settings, calibrator = self.settings, self._reader.calibrator
        if settings.options.at_least is None:
            return None
        is_share = confidence in AGREEMENTS and (
            calibrator is None or calibrator.saved.estimator != confidence
        )
        share = settings.unsure.below if settings.unsure is not None and is_share else None
        if share == 1:  # no share is above it
            share = None
        return StoppingRule(fewest=min(settings.options.at_least, number), most=number, share=share)

    def _task(self, chat: ChatRequest, strategy: str, number: int, index: int) -> ConversationTask:
        """Make the task of one choice. Without a seed, every request draws new answers."""
        settings = self.settings
        seed = secrets.randbits(48) if chat.seed is None else chat.seed
        answers = settings.sampling
        # a client's limit holds for each answer too, or they would cost more than it expects
        limit = min(answers.max_new_tokens, chat.max_tokens or answers.max_new_tokens)
        if chat.structure:  # one of the answers comes back as it is
            limit = chat.max_tokens or max(answers.max_new_tokens, settings.summary.max_new_tokens)
        return ConversationTask(
            question=Question(
                id=question_id(chat.question, chat.context), text=chat.question, context=chat.context
            ),
            prompts=settings.prompts,
            name=strategy,
            sampling=_requested(settings.summary, chat, settings.summary.max_new_tokens),
            sample_sampling=replace(answers, max_new_tokens=limit),
            num_samples=number,
            # the answers are drawn with the seed of the first choice; the others only write another summary
            seed=seed + index,
            thinking=settings.thinking,
            conversation=chat.messages,
        )

    async def _draw(self, plan: _Plan, session: Session, reader: BeliefReader) -> tuple[Reply, list[Summary]]:
        """Draw the answers and run the strategy, concurrently where possible."""
        task = plan.tasks[0]
        request = task.sample_request()
        # without the limit of tokens, which has no part in a refusal and differs between requests
        key = (session.model.name, plan.strategy, replace(task.sampling, max_new_tokens=1))
        refused_at, reason = self._refused.get(key, (-math.inf, ""))
        # the answers of a summary that its model refuses would be paid for nothing
        if time.monotonic() - refused_at < REFUSED_SECONDS:
            raise ChatError(400, reason, code=REFUSED_FIELD)
        # the answers are drawn while a strategy that needs none of them works
        reply = asyncio.create_task(session.draw(request, self._next_count(plan, reader)))
        function = self._strategies[plan.strategy]
        try:
            drafts = await together(session.summarize(task, function, reply) for task in plan.tasks)
            return await reply, drafts
        except ChatError as error:
            # what a client's fields met holds for no other request
            if error.code == REFUSED_FIELD and not session.model.takes_fields:
                if len(self._refused) >= MOST_REFUSED:  # clients choose the sampling
                    self._refused.clear()
                self._refused[key] = (time.monotonic(), error.message)
            raise
        finally:
            # where a strategy failed, nobody reads the answers
            reply.cancel()

    async def _one_call(
        self, chat: ChatRequest, plan: _Plan, session: Session, reader: BeliefReader
    ) -> _Drawn | None:
        """Answer with one response; None if the request needs several."""
        asked = (chat.options.strategy, chat.options.num_answers, chat.options.confidence)
        is_plain = asked == (None, None, None) and chat.n == 1 and not plan.measures
        if not self.settings.options.one_call or reader.calibrator is None or not is_plain:
            return None
        saved = reader.calibrator.saved
        kind = saved.estimator
        plan = dataclasses.replace(plan, strategy=ONE_CALL, confidence=kind, ranks=saved.ranks or RANKS)
        reply = await session.draw(plan.request)
        tokens = (reply.completions[0].logprobs or "not_returned",)
        reading = reader.read(kind, chat.question, reply.texts, session.model.generator.name, tokens)
        return _Drawn(plan, reply, [_as_drawn(plan, session, reply, 0)], reading)

    def _could_change(self, confidence: Confidence) -> bool:
        """Check whether further answers could change the action. A guarantee covers one response only."""
        policy = self.settings.unsure
        if confidence.guarantee is not None or confidence.no_guarantee is not None:
            return False
        if confidence.value is None:
            return True
        return policy is not None and abs(confidence.value - policy.below) <= self.settings.options.band

    @property
    def takes_one_call(self) -> bool:
        """Whether questions are answered with one response by default."""
        calibrator = self._reader.calibrator
        has_guarantee = calibrator is not None and bool(calibrator.saved.guarantee)
        return self.settings.options.one_call and has_guarantee and not self.settings.measures

    def _next_count(
        self, plan: _Plan, reader: BeliefReader
    ) -> Callable[[Sequence[str]], Awaitable[int]] | None:
        """Make a function that decides how many more answers to draw."""
        rule = plan.rule
        if rule is None:
            return None
        question = plan.tasks[0].conversation[-1].content

        async def more(answers: Sequence[str]) -> int:
            return await reader.run(
                answers, lambda: rule.soonest(reader.labels(question, answers) if answers else [])
            )

        return more

    async def _measure(
        self,
        plan: _Plan,
        session: Session,
        question: Question,
        reply: Reply,
        summaries: tuple[Summary, ...],
    ) -> tuple[AnswerSet, tuple[Measured, ...]]:
        """Measure the summaries on separately drawn answers."""
        generator = session.model.generator
        request = plan.request
        if not plan.measures:
            # the record wants two halves, but without a measure no answer is held out
            half = len(reply.completions) // 2
            return answer_set(question, request, reply, generator, half), ()
        # a summary must not be judged by the answers that made it
        further = await session.draw(held_out(plan.tasks[0], len(reply.completions)))
        # an answer set begins with the held-out answers
        answers_and_more = replace(reply, completions=further.completions + reply.completions)
        answers = answer_set(question, request, answers_and_more, generator, len(further.completions))
        results: list[Measured] = []
        for name in plan.measures:
            measure = partial(self._judge[name].measure, question, answers, summaries, controls=False)
            results += await exclusively(self._judge_is_free, measure)
        return answers, tuple(results)

    async def _claims(
        self, chat: ChatRequest, answers: Sequence[str], text: str, is_prose: bool
    ) -> tuple[tuple[ToldClaim, ...] | None, str]:
        """List the claims of answers and text on request, or explain their absence."""
        if not chat.options.claims:
            return None, ""
        if not is_prose:
            return None, "claims are not read where answers are JSON or may call tools"
        calibrator, caveat = self.settings.claims_calibrator, ""
        if calibrator is not None:
            caveat = calibrator.caveat(len(answers))
            if calibrator.knows(chat.question):
                calibrator, caveat = None, "claims not calibrated: the calibrator was fitted on this question"
        rate = None if calibrator is None else calibrator.rate
        try:
            # long answers take seconds, in which others would wait
            told = partial(told_claims, ends_of(chat.question), answers, text, rate)
            return tuple(await exclusively(self._claims_are_free, told)), caveat
        except DataError as error:
            return None, str(error)

    async def _word(
        self,
        session: Session,
        question: Question,
        confidence: Confidence,
        classes: Classes,
        texts: Sequence[str],
    ) -> list[FinalText]:
        """Phrase the summaries, or replace them if the confidence is too low."""
        policy = self.settings.unsure
        if policy is None:
            return [FinalText(text, None) for text in texts]
        clarification = None
        if policy.action == "ask" and policy.is_unsure(confidence):
            answered = AnsweredQuestion(id=question.id, text=question.text, context=question.context)
            conversation = clarify(
                answered, classes.shares, candidates=policy.candidates, hypotheses=policy.hypotheses
            )
            clarification = await session.converse(conversation)
        return [policy.word(confidence, text, clarification) for text in texts]


def _requested(sampling: Sampling, chat: ChatRequest, limit: int) -> Sampling:
    """Apply a request's sampling settings, up to ``limit`` tokens."""
    return replace(sampling, **chat.sampling, max_new_tokens=min(limit, chat.max_tokens or limit))


def _cut_off(reply: Reply) -> str:
    """Describe how many answers were cut off; empty if none."""
    broken = sum(completion.finish == "length" for completion in reply.completions)
    if not broken:
        return ""
    return (
        f"{broken} of {counted(len(reply.completions), 'answer')} reached the token limit before their end: "
        "answers that mean the same may count as different"
    )


def cut_at(text: str, stop: Iterable[str]) -> tuple[str, str | None]:
    """Cut a text at the first of the client's stop strings, and return the text and that string."""
    stopped_at = None
    for ending in stop:
        before, found, _ = text.partition(ending)
        if found:
            text, stopped_at = before, ending
    return text, stopped_at


def field_notes(chat: ChatRequest, model: WithFields) -> list[str]:
    """List the fields that were passed on and those that were ignored."""
    handed_on = [name for name in chat.handed_on if name not in model.refused]
    ignored = [name for name in (*chat.ignored, *model.refused) if name != "tools"]
    notes = {"handed to the model's server": handed_on, "ignored": ignored}
    lines = [f"{what}: {', '.join(names)}" for what, names in notes.items() if names]
    return [*([_NO_TOOLS] if "tools" in chat.ignored else []), *lines]


def footer(belief: Belief) -> str:
    """Describe the confidence in one line for text-only clients."""
    answers = counted(belief.num_answers, "answer")
    if belief.confidence is None or belief.confidence_kind is None:
        return f"[selfreflect: {answers} drawn, id {belief.id}]"
    # "Confidence" sounds like being right: only a calibrated one may be read so.
    if belief.calibrated:
        certainty = f"right for about {percent(belief.confidence)} of questions like this"
    elif belief.confidence_kind in AGREEMENTS:
        certainty = f"{percent(belief.confidence)} of {answers} agree ({belief.classes_by}), not calibrated"
    else:
        kind = belief.confidence_kind.replace("_", " ")
        certainty = f"{kind} {belief.confidence:.2f} of {answers}, not calibrated"
    return f"[selfreflect: {certainty}, id {belief.id}]"


def _check_known(option: str, name: str, choices: Iterable[str]) -> None:
    names = list(choices)
    if name not in names:
        message = f"unknown {option} {excerpt(name)}.{nearest(name, names)} Known: {', '.join(names)}"
        raise ChatError(400, message, param="selfreflect")


def _named(drafts: Sequence[Summary], id_: str) -> tuple[Summary, ...]:
    """Add the question's id to summaries, and numbers to their names if there are several."""
    summaries = []
    for number, draft in enumerate(drafts, start=1):
        name = draft.name if len(drafts) == 1 else f"{draft.name}#{number}"
        summaries.append(replace(draft, question_id=id_, name=name))
    return tuple(summaries)


def _as_drawn(plan: _Plan, session: Session, reply: Reply, chosen: int) -> Summary:
    """Make a summary whose text is one unchanged answer."""
    completion, generator = reply.completions[chosen], session.model.generator
    return Summary(
        question_id=plan.tasks[0].question.id,
        name=plan.strategy,
        text=without_fence(completion.text) if plan.strategy == MODAL_OBJECT else completion.text,
        model=generator.name,
        revision=generator.revision,
        tokens=reply.tokens,
        calls=1,
        truncated=completion.finish == "length",
    )


_PARTS: Mapping[Finish, Ending] = {
    **dict.fromkeys(("length", "unclosed_reasoning"), "length"),
    "content_filter": "content_filter",
}
"""Finish reasons of incomplete texts, by their names in responses."""


def choice_of(
    text: str, calls: Sequence[ToolCall], finish: Finish, stopped_at: str | None = None
) -> ChatChoice:
    """Make the choice for a text or its tool calls."""
    whole: Ending = "tool_calls" if calls else "stop"
    ending = whole if stopped_at is not None else _PARTS.get(finish, whole)
    # a client sends the id back with the result
    named = [call if call.id else replace(call, id=f"call_{secrets.token_hex(12)}") for call in calls]
    return ChatChoice(text="" if calls else text, finish=ending, stopped_at=stopped_at, calls=tuple(named))


def response_to(
    chat: ChatRequest,
    id_: str,
    choices: Sequence[ChatChoice],
    spending: Spending,
    sampling: Sampling,
    belief: Belief | None = None,
) -> ChatResponse:
    """Build the response to a request."""
    return ChatResponse(
        id=id_,
        choices=tuple(choices),
        spending=spending,
        belief=belief,
        previous=chat.previous,
        stores=chat.stores,
        sampling=sampling,
        echo=chat.echo,
    )


def _values(results: Iterable[Measured]) -> tuple[dict[str, float | None], list[str]]:
    """List the first summary's values by measure, and reasons for missing ones."""
    values: dict[str, float | None] = {}
    notes = []
    # backwards, so that the value of the first summary is the one that stays
    for record in reversed(list(results)):
        if isinstance(record, Failure):
            notes.append(f"no score ({record.kind}): {record.message}")
        elif measure := measure_of(record):
            measurement = measure.measurement(record)
            values[measure.name] = measurement.value
            if measurement.undefined:
                why = measurement.why or measure.reason(measurement.undefined)
                notes.append(f"{measure.name} is undefined ({measurement.undefined}): {why}")
    return values, notes
