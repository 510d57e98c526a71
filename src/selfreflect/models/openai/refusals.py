"""Table of fields that servers refuse, and wordings of calls without them."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from selfreflect.models.base import Request, StreamingGenerator
from selfreflect.models.openai.protocol import CRASHES_THAT_REFUSE, APIError
from selfreflect.records import Record, from_plain

NO_FIELDS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Field:
    """A field that a server may refuse."""

    is_neutral: Callable[[Any], bool] = lambda value: True
    """Whether leaving out a value preserves all probabilities, except for server defaults."""
    lost: str = ""
    """Consequence of leaving out the field."""
    choose: str = ""
    """Advice on which value to choose, if the present one is not neutral."""
    is_last_resort: bool = False
    """Whether other fields named by a refusal are left out first."""


FIELDS: dict[str, Field] = {
    "stream": Field(),
    # Mistral and Gemini answer 422 or 400 to a seed
    "seed": Field(lost="without seed, the same texts cannot be drawn again"),
    **dict.fromkeys(
        ("chat_template_kwargs", "reasoning_effort", "thinking", "enable_thinking", "reasoning"), Field()
    ),
    "logprobs": Field(),
    "top_logprobs": Field(),
    "top_k": Field(lambda value: value <= 0, choose="leave top_k out"),
    "min_p": Field(lambda value: value == 0, choose="leave min_p out"),
    "repetition_penalty": Field(lambda value: value == 1),
    # OpenAI's reasoning models refuse top_p, even at 1
    "top_p": Field(lambda value: value == 1, choose="set {answers.top_p} to 1"),
    "temperature": Field(
        lambda value: value == 1,
        choose="set {answers.temperature} to 1 and {summaries.strategies} to basic#1-2, "
        "since without #1-2 a summary is decoded greedily, at temperature 0",
        is_last_resort=True,
    ),
}
"""Refusable fields by name. A field without neutral values can always be left out: texts come from the same
distribution.
"""

# OpenAI's own defaults are neutral: nothing would be lost there without these, nor without a temperature or
# top_p of 1. But vLLM, SGLang and llama.cpp fill in a missing field from a model's generation_config.json or
# from defaults of theirs (top-k 20 or 40, temperature 0.7, a penalty): another answer distribution, without a
# word. So neutral values are sent, and the first refusal drops them for the whole run.
NEUTRAL: dict[str, Any] = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}

EXTENSIONS = frozenset({*NEUTRAL, "chat_template_kwargs"})
"""Fields that OpenAI's own API does not have."""

# as OpenAI, DeepSeek, OpenRouter and Qwen spell it
THINKING_OFF: tuple[Mapping[str, Any], ...] = (
    {"reasoning_effort": "none"},
    {"thinking": {"type": "disabled"}},
    {"reasoning": {"enabled": False}},
    {"enable_thinking": False},
)
"""Ways to disable reasoning, tried in order if the chat template's argument fails."""

_SYSTEM = re.compile(
    # "system error" and "the system is overloaded" name no turn
    r"\bsystem(?!\w| (?:is |was )?(?:error|busy|overload|fault|failure))|\broles?\b|\bdeveloper\b"
    r"|\bjinja|chat template",
    re.IGNORECASE,
)
"""Servers' names for the system turn that their template lacks."""

_ACCEPTED = re.compile(
    r"(?:did you mean|expected one of|must be one of|one of:|\bknown (?:properties|fields|param\w+)"
    r"|\b(?:supported|allowed|valid|accepted|permitted|available) (?:param\w+|fields?|arguments?|properties"
    r"|keys|options|names)(?: are|:| include)|\bsupports? only|\bonly supports?)[^;\n]*",
    re.IGNORECASE,
)
"""Servers' phrases for accepted values, which name fields other than the refused one."""

# OpenAI says "use max_completion_tokens instead", without a word for unknown
_UNKNOWN_FIELD = re.compile(
    r"max_completion_tokens|unsupported|unknown|unrecogni[sz]ed|unexpected|extra|no such"
    r"|not (?:be )?(?:supported|support|permitted|allowed|recogni[sz]ed|implemented)",
    re.IGNORECASE,
)
_FAULT = re.compile(rf"validation|invalid|input should|{_UNKNOWN_FIELD.pattern}", re.IGNORECASE)
_ONE_CHOICE = re.compile(
    r"[`'\"]n[`'\"]|\bn ?(?:>|=|<|must|should|is |greater)|\bparameter:? n\b|candidate_?count|best_of"
    r"|num_generations|numberof(?:choices|results)"
    r"|(?:multiple|several|only (?:one|1|a single)) (?:completion|choice|candidate|response|generation)"
    r"|\b(?:param\w*|arguments?|fields?|propert\w+|keys?|inputs?|options?)\b[^.;\n]{0,120}"
    r"(?<![\w\\.-])n(?![\w.-])",
    re.IGNORECASE,
)
"""Servers' phrases for one completion per call."""
_NUMBER = re.compile(r"(?<![\w.-])[0-9]{1,3}(?![\w-])")

_AT_LEAST_ONE = re.compile(r"(?:at least|equal to|>=|≥|between|\[) ?1\b", re.IGNORECASE)
"""Servers' phrases for a number that cannot be zero."""

USUALLY_LIKELY = 1000
"""Initial limit on likely tokens, above every known server's."""


class Wording(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A wording of calls that a server accepts."""

    left_out: frozenset[str] = frozenset()
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Server's name for the largest number of new tokens."""
    most_likely: Annotated[int, Meta(ge=0)] = USUALLY_LIKELY
    """Maximum number of likely tokens that the server returns."""
    most_texts: Annotated[int, Meta(ge=1)] | None = None
    """Maximum number of completions per call; None without a limit."""
    all_tokens: Literal[-1, 0] = -1
    """Value of top_k for all tokens; some servers require 0."""
    folds_system: bool = False
    """Whether the system text is merged into the user's turn."""
    thinking_off: Annotated[int, Meta(ge=0, lt=len(THINKING_OFF))] | None = None
    """Index in ``THINKING_OFF`` of further fields to send."""
    is_guess: bool = False
    """Whether the refusal named no field, so that too much may be left out."""

    def __post_init__(self) -> None:
        if not self.left_out <= FIELDS.keys():
            raise ValueError("only fields that a server may refuse are left out")

    @classmethod
    def restored(cls, stored: Any) -> Wording:
        """Restore a wording from a manifest, or return the usual wording for invalid values."""
        # the manifest may be of another version, or edited
        try:
            return from_plain(cls, stored)
        except ValueError:
            return cls()

    @property
    def facts(self) -> dict[str, Any]:
        """Differences from the usual call for a manifest, in words and as JSON."""
        facts = {"refused": self.changes, "wording": msgspec.to_builtins(self, order="deterministic")}
        return {name: value for name, value in facts.items() if value}

    @property
    def changes(self) -> dict[str, Any]:
        """Differences from the usual call, in words."""
        # likely tokens come with log-probabilities alone
        left_out = self.left_out - ({"top_logprobs"} if "logprobs" in self.left_out else set())
        changes: dict[str, Any] = dict.fromkeys(sorted(left_out), "left out")
        if self.limit == "max_completion_tokens":
            changes["max_tokens"] = f"sent as {self.limit}"
        if self.most_likely != USUALLY_LIKELY:
            changes["top_logprobs"] = f"at most {self.most_likely}"
        if self.most_texts is not None:
            one = self.most_texts == 1
            changes["n"] = "one completion per call" if one else f"at most {self.most_texts} per call"
        if self.all_tokens == 0:
            changes["top_k"] = changes.get("top_k", "0 for every token")
        if self.folds_system:
            changes["system role"] = "placed in front of the user's text"
        if self.thinking_off is not None:
            changes = {**THINKING_OFF[self.thinking_off], **changes}
        if self.is_guess:
            changes["named"] = (
                "none: the server did not say which field it refuses, so some may be left out needlessly"
            )
        return changes

    def body(
        self, model: str, request: Request, first: int, count: int, extra: Mapping[str, Any] = NO_FIELDS
    ) -> dict[str, Any]:
        """Build the call for completions ``first`` to ``first + count``; a server may return fewer.

        ``extra`` are the user's fields. Raises APIError if the request needs a field that the server does not
        take.
        """
        sampling = request.sampling
        messages = [
            {"role": message.role, "content": _encodable(message.content)} for message in request.messages
        ]
        body: dict[str, Any] = {
            "model": model,
            "messages": _folded(messages) if self.folds_system else messages,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            # Completion i has the seed of the request plus i, as servers that take `n` count too. Many of
            # them read 32 bits.
            "seed": (request.seed + first) % 2**31,
            self.limit: sampling.max_new_tokens,
            "stream": False,  # some stream where nothing is said
            **NEUTRAL,
            "min_p": sampling.min_p,
            "chat_template_kwargs": {"enable_thinking": request.thinking},
        }
        body["top_k"] = sampling.top_k or self.all_tokens
        if self.thinking_off is not None and not request.thinking:
            body |= THINKING_OFF[self.thinking_off]
        if request.logprobs or request.first_tokens:
            body["logprobs"] = True
            # some servers give none where no likely token is asked for as well
            body["top_logprobs"] = min(request.ranks or 1, self.most_likely)
        for name in sorted((self.left_out & body.keys()) - extra.keys()):
            if not FIELDS[name].is_neutral(body[name]):
                raise refused_field([name], body)
            del body[name]
        if count > 1:
            body["n"] = count
        # the user's fields come last, so that they win; objects are merged
        for name, value in extra.items():
            both = isinstance(value, Mapping) and isinstance(body.get(name), dict)
            body[name] = {**body[name], **value} if both else value
        return body

    def without(
        self,
        error: APIError,
        body: dict[str, Any],
        request: Request,
        accepted: Collection[tuple[str, str]],
        extra: Mapping[str, Any] = NO_FIELDS,
        first: Wording | None = None,
    ) -> Wording | None:
        """Find another wording if the refusal of ``body`` suggests one.

        Args:
            accepted: fields with values that the server is known to take.
            extra: the user's fields of ``body``, which are never left out.
            first: how the call was said before the refusals that it has met so far.

        Raises:
            APIError: what it refuses would change the distribution, or is a field of the user, so that
                nothing can be generated.
        """
        text = _ACCEPTED.sub(" ", _without_quotes(error.server_text, request))
        # "did you mean top_k?" and "supported parameters are …" name fields that it takes
        field_names = [
            name
            for name in FIELDS
            if name in body.keys() - extra.keys() and _names(name, text, error.fields, extra)
        ]
        is_unknown = _UNKNOWN_FIELD.search(text) is not None
        # Of likely tokens a server may give fewer, and say how many; the two fields go together otherwise.
        if {"logprobs", "top_logprobs"} & {*field_names}:
            if request.ranks and {*field_names} <= {"logprobs", "top_logprobs"}:
                limit = min(request.ranks, self.most_likely)
                # "must be between 0 and 5" says how many likely tokens there are
                allowed = [int(number) for number in _NUMBER.findall(text) if 0 < int(number) < limit]
                if allowed:
                    return replace(self, most_likely=max(allowed))
            if request.ranks or "top_logprobs" not in body or "logprobs" in field_names:
                field_names = list(dict.fromkeys([*field_names, "logprobs", "top_logprobs"]))
        takes_none = is_unknown or _AT_LEAST_ONE.search(text)
        # a server that wants 0 for all tokens finds fault with the value, not with the field
        if "top_k" in field_names and body["top_k"] == -1 and not takes_none:
            return replace(self, all_tokens=0)
        # A server that names another unknown field each time would do so for all extensions.
        is_second = first is not None and EXTENSIONS & (self.left_out - first.left_out)
        if is_second and is_unknown and EXTENSIONS & {*field_names}:
            field_names += sorted(EXTENSIONS & body.keys() - extra.keys() - {*field_names})
        changes: dict[str, Any] = {}
        neutral = [name for name in field_names if name not in body or FIELDS[name].is_neutral(body[name])]
        # Fields that change nothing go first: the server may take the others without them.
        if spare := [name for name in neutral if not FIELDS[name].is_last_resort]:
            changes["left_out"] = self.left_out.union(spare)
        names_limit = self.limit in body and _names(self.limit, text, error.fields)
        # words that find fault with a value tell which they take
        if names_limit and (is_unknown or not _NUMBER.search(text)) and self.limit == "max_tokens":
            changes["limit"] = "max_completion_tokens"
        if "n" in body and ("n" in error.fields or _ONE_CHOICE.search(text)):
            # "n must be at most 4"; one completion per call where no number is named
            numbers = [int(number) for number in _NUMBER.findall(text) if 0 < int(number) < body["n"]]
            changes["most_texts"] = max(numbers, default=1)
        # Templates without a system role raise in words of their own, so any mention of roles will do.
        names_system = "role" in error.fields or (not changes and _SYSTEM.search(text))
        if names_system and _has_system(body):
            changes["folds_system"] = True
        # names of several words are no English, and ask for what this call does not hold
        ways = [way for way, fields in enumerate(THINKING_OFF) for name in fields if "_" in name]
        for way in ways if not (changes or request.thinking or self.thinking_off is not None) else ():
            if any(
                _names(name, text, error.fields, extra) for name in THINKING_OFF[way].keys() - body.keys()
            ):
                changes["thinking_off"] = way
        if changes:
            return replace(self, **changes)
        theirs = [name for name in extra if _names(name, text, error.fields, extra)]
        if theirs and not any((name, repr(extra[name])) in accepted for name in theirs):
            raise refused_field(theirs, body, error, extra)
        if refused := [name for name in field_names if name not in neutral]:
            # A value that it took before is no reason to refuse: then the fault lies in this request.
            if not any((name, repr(body[name])) in accepted for name in refused):
                raise refused_field(field_names, body, error)
            return None  # about this request
        # last resorts alone are left, such as a temperature of 1
        if neutral:
            return replace(self, left_out=self.left_out.union(neutral))
        if names_limit and (self.limit, repr(body[self.limit])) not in accepted:
            raise APIError(
                f"the server does not accept {self.limit} {body[self.limit]}",
                code="field",
                remedy="Set {answers.max_new_tokens}, and {summaries.max_new_tokens} for summaries, to "
                "a number that it accepts.",
                server_text=error.server_text,
                fatal=True,
                fields=frozenset({self.limit}),
            )
        return None

    def refuses(self, error: APIError, body: Mapping[str, Any], request: Request) -> bool:
        """Check whether a possibly temporary server error blames fields of the call."""
        text = _without_quotes(error.server_text, request)
        named = any(_names(name, text, error.fields) for name in FIELDS.keys() & body.keys())
        names_count = "n" in body and _ONE_CHOICE.search(text) is not None
        return (
            error.status in CRASHES_THAT_REFUSE and (named or names_count) and _FAULT.search(text) is not None
        )

    def guesses(
        self,
        body: dict[str, Any],
        accepted: Collection[tuple[str, str]],
        extra: Mapping[str, Any] = NO_FIELDS,
    ) -> Iterator[Wording]:
        """Yield other wordings after a refusal without a named field.

        Each leaves out what changes no distribution and was never taken, all at once, because each further
        guess costs a call: first what only some servers know, then the turn of the system and
        log-probabilities in its place, then all of both. Nothing if the server has taken all of that
        before, so that it must refuse what the request says.
        """
        taken = {name for name, _ in accepted} | extra.keys()
        spare = self.spare(body) - taken
        # a missing temperature may be another one, and some servers stream where nothing is said
        basic = spare & {"temperature", "stream"}
        wanted = spare & {"logprobs", "top_logprobs"}
        known_by_some = spare - basic - wanted
        few = self.most_texts
        # the most texts that one call is known to have got
        if "n" in body and ("n", repr(body["n"])) not in accepted:
            few = max((int(value) for name, value in accepted if name == "n"), default=1)
        folds = self.folds_system or (_has_system(body) and "system" not in taken)

        def without(names: Collection[str], most_texts: int | None, folds_system: bool) -> Wording:
            wording = replace(
                self,
                left_out=self.left_out.union(names),
                most_texts=most_texts,
                folds_system=folds_system,
            )
            is_guess = len(wording.changes) > len(self.changes) + 1
            return replace(wording, is_guess=self.is_guess or is_guess)

        is_known_by_some = bool(known_by_some) or few != self.most_texts
        is_wanted = bool(wanted) or folds != self.folds_system
        if is_known_by_some:
            yield without(known_by_some, few, self.folds_system)
        if is_wanted:
            yield without(wanted, self.most_texts, folds)
        if basic or (is_known_by_some and is_wanted):
            yield without(spare, few, folds)

    @staticmethod
    def spare(body: Mapping[str, Any]) -> set[str]:
        """List the fields that can be left out without changing the distribution."""
        return {name for name in FIELDS.keys() & body.keys() if FIELDS[name].is_neutral(body[name])}

    def without_crashes(
        self, body: Mapping[str, Any], accepted: Collection[tuple[str, str]]
    ) -> Iterator[Wording]:
        """Yield wordings without fields that crash some servers, and finally this one again."""
        # SGLang crashes where a log-probability is -inf, which JSON cannot hold
        if "logprobs" in body:
            yield replace(self, left_out=self.left_out | {"logprobs", "top_logprobs"})
        if _has_system(body) and ("system", "") not in accepted:
            yield replace(self, folds_system=True)
        yield self


@dataclass
class Learned:
    """Learned habits of a server, shared by the calls of a run."""

    wording: Wording = field(default_factory=Wording)
    """Wording of the last successful call after a refusal."""
    accepted: set[tuple[str, str]] = field(default_factory=set)
    """Accepted fields with values, and ``system`` for a system turn."""
    asked: dict[tuple[bool, ...], int] = field(default_factory=dict)
    """Largest number of texts in a finished call, by kind of call, so that only one call risks a refusal."""
    is_met: bool = False
    """Whether short calls have found out what the server accepts, now or in an earlier command."""
    tried_thinking_off: bool = False
    """Whether other ways to disable reasoning were tried."""
    equal_calls: int = 0
    """Number of calls with several equal texts for an unknown reason."""
    drawn_again: int = 0
    """Number of incomplete texts in responses that had complete ones."""
    refused_once: set[str] = field(default_factory=set)
    """Fields that the server refused once after accepting them."""

    def doubts(self, wording: Wording, common: Wording) -> bool:
        """Check whether a call omits, for the first time, fields that the server accepted before."""
        # a refusal may be about this request alone, so only the second one counts for all
        given_up = wording.left_out - common.left_out
        is_all = replace(wording, left_out=common.left_out) == common
        is_stray = is_all and given_up <= {name for name, _ in self.accepted} - self.refused_once
        if is_stray:
            self.refused_once |= given_up
        return is_stray

    def note(self, wording: Wording) -> str:
        """Describe what this wording newly gives up; empty if nothing."""
        given_up = wording.left_out - self.wording.left_out - {"logprobs", "top_logprobs", "stream"}
        parts = []
        if given_up:
            is_told = self.wording.is_guess or not wording.is_guess
            begin = (
                "does not accept"
                if is_told
                else "refuses a request without naming a field; the request is sent again without"
            )
            parts.append(f"{begin} {', '.join(sorted(given_up))}; the server's own defaults apply")
            parts += [FIELDS[name].lost for name in sorted(given_up) if FIELDS[name].lost]
        if wording.folds_system and not self.wording.folds_system:
            parts.append("accepts no system message, so its text is put in front of the user's message")
        if wording.thinking_off != self.wording.thinking_off and wording.thinking_off is not None:
            names = ", ".join(THINKING_OFF[wording.thinking_off])
            parts.append(
                f"lets the model think unless {names} forbids it, so every request now sends {names}"
            )
        return "; ".join(parts)

    def take(self, body: dict[str, Any]) -> None:
        """Remember the fields of a successful call."""
        self.accepted |= _entries(body)

    def takes(self, body: dict[str, Any]) -> bool:
        """Check whether successful calls contained all fields of this one."""
        return _entries(body) <= self.accepted


class LearningGenerator(StreamingGenerator):
    """A generator that learns from a server's refusals, which the manifest keeps."""

    revision = ""

    def __init__(self, name: str) -> None:
        self.name = name
        self.learned = Learned()
        """Learned habits of the server, shared by the generators of a run."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Address of the server, without credentials."""

    @property
    def facts(self) -> dict[str, Any]:
        """Facts about the model and its server's refusals, for a manifest."""
        facts = {"name": self.name, "revision": self.revision, "base_url": self.url}
        drawn_again = self.learned.drawn_again
        return facts | self.learned.wording.facts | ({"drawn_again": drawn_again} if drawn_again else {})

    def recall(self, facts: Mapping[str, Any]) -> None:
        """Restore the wording of calls from :attr:`facts` of the same server."""
        if (facts.get("name"), facts.get("base_url")) == (self.name, self.url):
            self.learned.is_met = True
            if "wording" in facts:
                self.learned.wording = Wording.restored(facts["wording"])


def refused_field(
    names: Collection[str],
    body: Mapping[str, Any],
    error: APIError | None = None,
    extra: Mapping[str, Any] = NO_FIELDS,
) -> APIError:
    """Make the error for indispensable fields that the server refuses."""
    values = " and ".join(f"{name} {body[name]}" if name in body else name for name in names)
    message = f"the server does not accept {values}"
    if extra.keys().isdisjoint(names):
        message += ", and without it texts would be sampled from a different distribution"
        choices = [
            FIELDS[name].choose
            for name in names
            if name in body and FIELDS[name].choose and not FIELDS[name].is_neutral(body[name])
        ]
        remedy = f"To use this model, {'; '.join(choices)}." if choices else ""
    else:
        remedy = "Remove it from {answers.extra_body}."
    server_text = error.server_text if error else ""
    return APIError(message, code="field", remedy=remedy, server_text=server_text, fatal=True)


def _names(name: str, text: str, fields: Collection[str], extra: Mapping[str, Any] = NO_FIELDS) -> bool:
    """Check whether a refusal names a field, in its structure or else in its text."""
    # an error's structure is sure, its words may mention other fields
    if fields & FIELDS.keys() or "max_tokens" in fields or fields & extra.keys():
        return name in fields
    # gateways write them in their own notation: topP, top-p, "Top p"
    spelt = "[_ -]?".join(map(re.escape, name.split("_")))
    return re.search(rf"(?<![A-Za-z0-9_]){spelt}(?![A-Za-z0-9_])", text, re.IGNORECASE) is not None


def _entries(body: Mapping[str, Any]) -> set[tuple[str, str]]:
    """List fields with their values, and ``system`` for a system turn."""
    # messages and seed are others in each call
    entries = {
        (name, "" if name == "seed" else repr(value)) for name, value in body.items() if name != "messages"
    }
    return entries | ({("system", "")} if _has_system(body) else set())


def _has_system(body: Mapping[str, Any]) -> bool:
    return any(message["role"] == "system" for message in body["messages"])


def _without_quotes(text: str, request: Request) -> str:
    """Remove turns of the request that a server quotes from the server's text."""
    for message in request.messages:
        # a quote of the question may hold a word such as "temperature"
        content = message.content.strip()
        for quote in (message.content, content, *map(str.strip, content.splitlines())):
            if len(quote) > 2:
                text = text.replace(quote, " ").replace(json.dumps(quote)[1:-1], " ")
    return text


def _folded(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """Merge the system text into the first user turn."""
    system = "\n\n".join(message["content"].strip() for message in messages if message["role"] == "system")
    turns = [dict(message) for message in messages if message["role"] != "system"]
    if system and turns:
        turns[0]["content"] = f"{system}\n\n{turns[0]['content']}"
    return turns


def _encodable(text: str) -> str:
    """Replace lone surrogates, which JSON cannot carry, with question marks."""
    return text.encode("utf-8", "replace").decode()


def runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Join ascending numbers into runs without gaps, each as first number and length."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and sum(runs[-1]) == index:
            first, count = runs.pop()
            runs.append((first, count + 1))
        else:
            runs.append((index, 1))
    return runs
