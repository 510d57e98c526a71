"""All settings that change results, in one frozen tree, and settings of execution. Each field declares its
default, flag and values once, also for TOML files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from selfreflect.errors import ConfigError
from selfreflect.flags import (
    CPUS,
    DRAWS,
    GPUS,
    POSITIVE,
    SECONDS,
    SHARE,
    ZERO_OR_MORE,
    Flag,
    Range,
    between,
    check_values,
)
from selfreflect.metric.measure import DEFAULT_MEASURES
from selfreflect.models.backend import backend_of
from selfreflect.models.base import DEVICES, SUMMARY_TOKENS, Compat, DType, Sampling
from selfreflect.records import STAGES, ReaderChoice, Record
from selfreflect.text import name_list
from selfreflect.traits import traits_of

if TYPE_CHECKING:
    from selfreflect.metric.inputs import Limits

DEVICE = Range("auto, cuda, cuda:N, mps or cpu", DEVICES.fullmatch, {"pattern": f"^({DEVICES.pattern})$"})

# Flags that set a field in several sections.
SEED = Flag("--seed N", "Seed for all random choices.")
MODEL = Flag(
    "--model NAME",
    "Model that answers and summarises: smollm2 (embedded), openai:NAME on a server, a hub name, a local "
    "directory, vllm:NAME, or your own function as module:function.",
)
REVISION = Flag("--revision REF", "Commit, tag or branch of a model from the hub.", example="main")
BASE_URL = Flag(
    "--base-url URL",
    "Address of the server for openai:NAME, such as http://localhost:8000/v1. The key is read from "
    "SELFREFLECT_API_KEY, for OpenAI also from OPENAI_API_KEY.",
    default="https://api.openai.com/v1",
    example="http://localhost:8000/v1",
)
EXTRA_BODY = Flag(
    "--extra-body JSON",
    "Additional fields of every request to the server of openai:NAME. They are stored with the settings of a "
    "run, so put no keys into them.",
    example={"service_tier": "flex"},
)
MAX_NEW_TOKENS = Flag("--max-new-tokens N", "Maximum tokens per answer.", range=POSITIVE)
TEMPERATURE = Flag(
    "--temperature T",
    "Sampling temperature of answers, including answers that strategies draw. The paper used 1.",
    range=ZERO_OR_MORE,
    example=0.7,
)
TOP_P = Flag(
    "--top-p P",
    "Sample from the fewest likely tokens whose probabilities add up to P.",
    range=SHARE,
    example=0.9,
)
THINKING = Flag(
    "--thinking",
    "Let a reasoning model think. Its reasoning is removed from its responses.",
    negative="--no-thinking",
)


class QuestionsConfig(Record, frozen=True, kw_only=True):
    source: Annotated[
        str,
        Flag(
            "--questions SOURCE",
            "Questions: a file (json, jsonl, csv, parquet, txt), - for stdin, demo, bundled. Or a data set: "
            "natural_questions, trivia_qa, simpleqa, mmlu, truthful_qa, or hf:NAME from the hub.",
        ),
    ] = "bundled"
    limit: Annotated[
        int | None, Flag("--limit N", "Sample only N questions.", range=POSITIVE, example=100)
    ] = None
    part: Annotated[
        str | None,
        Flag(
            "--shard K/N",
            "Take every Nth question from the Kth on, after --limit, so that N jobs share the questions. "
            "Give each job its own --out, and merge them with `selfreflect import`.",
            example="1/16",
        ),
    ] = None
    split: Annotated[
        str | None, Flag("--split NAME", "Split of a data set from the hub.", example="test")
    ] = None
    subset: Annotated[
        str | None, Flag("--subset NAME", "Subset of a data set from the hub.", example="main")
    ] = None
    question_column: Annotated[
        str | None, Flag("--question-column NAME", "Column of the question.", example="question")
    ] = None
    context_column: Annotated[
        str | None,
        Flag(
            "--context-column NAME",
            "Column of the context, which the model reads with the question and the judge does not; by "
            "default context, if that column exists.",
            example="context",
        ),
    ] = None
    seed: Annotated[int, SEED] = 0


class AnswersConfig(Record, frozen=True, kw_only=True):
    model: Annotated[str, MODEL] = "smollm2"
    revision: Annotated[str | None, REVISION] = None
    base_url: Annotated[str | None, BASE_URL] = None
    extra_body: Annotated[dict[str, Any] | None, EXTRA_BODY] = None
    num_answers: Annotated[
        int,
        Flag(
            "--num-answers N",
            "Answers in each of the two halves; twice as many are drawn. 10 is quick; the paper used 50.",
            range=DRAWS,
        ),
    ] = 50
    temperature: Annotated[float, TEMPERATURE] = 1.0
    top_p: Annotated[float, TOP_P] = 1.0
    max_new_tokens: Annotated[int, MAX_NEW_TOKENS] = 256
    thinking: Annotated[bool, THINKING] = False
    logprobs: Annotated[
        bool,
        Flag(
            "--logprobs",
            "Store the log-probabilities of each answer's tokens, for estimators of `selfreflect "
            "uncertainty`. Some servers do not return them.",
            negative="--no-logprobs",
        ),
    ] = False
    top_logprobs: Annotated[
        int,
        Flag(
            "--top-logprobs K",
            "Store the K largest log-probabilities at each token too, for entropies and margins of a single "
            "answer. Servers return at most 20, some fewer; local models also store the exact entropy. "
            "Implies --logprobs.",
            range=between(0, 1000),
        ),
    ] = 0
    seed: Annotated[int, SEED] = 0

    @property
    def wants_logprobs(self) -> bool:
        """Whether log-probabilities are stored with the answers."""
        return self.logprobs or self.top_logprobs > 0

    @property
    def sampling(self) -> Sampling:
        """Sampling settings for answers."""
        return Sampling(temperature=self.temperature, top_p=self.top_p, max_new_tokens=self.max_new_tokens)


class SummariesConfig(Record, frozen=True, kw_only=True):
    strategies: Annotated[
        tuple[str, ...],
        Flag(
            "--strategies A,B",
            "How the model summarises its belief: greedy, basic, cot, twostep_cot, sample_and_summarize, "
            "concatenated_answers, verbalized_sampling, multi_answer, or your own as "
            "package.module:function. NAME#1-8 samples eight summaries, while NAME alone takes the most "
            "likely one.",
        ),
    ] = ("greedy", "basic", "cot", "sample_and_summarize")
    """Strategies; others can be added later, and an empty list continues those of the directory."""
    model: Annotated[str, MODEL] = "smollm2"
    revision: Annotated[str | None, REVISION] = None
    base_url: Annotated[str | None, BASE_URL] = None
    extra_body: Annotated[dict[str, Any] | None, EXTRA_BODY] = None
    num_samples: Annotated[
        int, Flag("--num-samples N", "New answers that sampling strategies draw per question.", range=DRAWS)
    ] = 50
    sample_temperature: Annotated[float, TEMPERATURE] = 1.0
    sample_top_p: Annotated[float, TOP_P] = 1.0
    sample_max_new_tokens: Annotated[int, MAX_NEW_TOKENS] = 256
    max_new_tokens: Annotated[
        int,
        Flag(
            "--summary-tokens N",
            "Maximum tokens per summary, including the reasoning before it. The published limit is 4096, "
            "which is the default with --thinking.",
            range=POSITIVE,
        ),
    ] = SUMMARY_TOKENS
    thinking: Annotated[bool, THINKING] = False
    seed: Annotated[int, SEED] = 0

    @property
    def sampling(self) -> Sampling:
        """Sampling settings for a strategy's own answers."""
        return Sampling(
            temperature=self.sample_temperature,
            top_p=self.sample_top_p,
            max_new_tokens=self.sample_max_new_tokens,
        )


class ScoresConfig(Record, frozen=True, kw_only=True):
    judge: Annotated[
        str,
        Flag(
            "--judge NAME",
            "Model that scores: smollm2, a hub name, a local directory, vllm:NAME in this process, or "
            "vllm+http:NAME on a server. It must return full logits.",
        ),
    ] = "smollm2"
    revision: Annotated[
        str | None,
        Flag("--judge-revision REF", "Commit, tag or branch of a judge from the hub.", example="main"),
    ] = None
    base_url: Annotated[
        str | None,
        Flag(
            "--judge-url URL",
            "Address of the server for vllm+http:NAME in pooling mode, such as http://localhost:8000/v1.",
            example="http://localhost:8000/v1",
        ),
    ] = None
    dtype: Annotated[
        DType, Flag("--judge-dtype", "Precision of the judge.", default="float32, on CUDA bfloat16")
    ] = "auto"
    compat: Annotated[
        Compat, Flag("--compat published", "Add the second BOS token of the published scorer.")
    ] = ""
    measures: Annotated[
        str,
        Flag(
            "--measures A,B",
            "What to measure: selfreflect, information, claims, and measures of other packages by name. "
            "selfreflect is the published score; information says how much of the information in the "
            "answers a summary recovers; claims, without a judge, compares the claims of a "
            "summary with the claims of the answers.",
        ),
    ] = ",".join(DEFAULT_MEASURES)
    reader: Annotated[
        ReaderChoice,
        Flag(
            "--reader",
            "Whether the judge sees the question when information is measured. auto: blind where the judge "
            "gave the answers itself, without a context, since it knows them already.",
        ),
    ] = "auto"
    controls: Annotated[
        bool,
        Flag(
            "--controls",
            "Also measure an empty summary, the repeated question, nonsense and pasted answers. Not with "
            "--budget.",
            negative="--no-controls",
        ),
    ] = True
    budget: Annotated[
        str | None,
        Flag(
            "--budget TOKENS",
            "Score random words within a limit of judge tokens per question. "
            "Such scores are estimates; with none, every word is scored.",
            default="none",
            example="20000",
        ),
    ] = None
    seed: Annotated[int, SEED] = 0
    """Seed of the order of words, if there is a limit."""

    @property
    def measure_names(self) -> frozenset[str]:
        """Names of the requested measures."""
        return frozenset(name_list(self.measures))

    @property
    def limits(self) -> Limits | None:
        """Limits on the words to score; None to score all.

        Raises:
            ConfigError: a limit is out of range.
        """
        if self.budget is None:
            return None
        from selfreflect.metric.inputs import Limits

        return Limits.parse(self.budget, self.seed)


class Placement(Record, frozen=True, kw_only=True):
    """Placement of a stage's actors on a Ray cluster; None leaves it to model and cluster."""

    actors: Annotated[
        int | None, Flag("", "Workers, each with its own copy of the model.", range=POSITIVE, example=4)
    ] = None
    gpus: Annotated[
        float | None, Flag("", "GPUs per actor. With a fraction, actors share a GPU.", range=GPUS, example=1)
    ] = None
    cpus: Annotated[float | None, Flag("", "CPUs of an actor.", range=CPUS, example=1)] = None
    batch_questions: Annotated[
        int | None, Flag("", "Questions that an actor takes at a time.", range=POSITIVE, example=8)
    ] = None


class RayConfig(Record, frozen=True, kw_only=True):
    """Placement for ``--executor ray``. It changes no results, and run directories do not keep it."""

    answers: Placement = Placement()
    summaries: Placement = Placement()
    scores: Placement = Placement()


class ExecutionConfig(Record, frozen=True, kw_only=True):
    """Device and parallelism of the work. It changes no results, so a run directory does not keep it."""

    device: Annotated[
        str,
        Flag(
            "--device auto|cuda|cuda:N|mps|cpu",
            "Where local models run. One GPU is used; --executor ray gives each a copy of the model.",
            range=DEVICE,
        ),
    ] = "auto"
    device_map: Annotated[
        Literal["auto"] | None,
        Flag(
            "--device-map",
            "Spread one copy of a local model over all visible GPUs, for models too large for one of them.",
            example="auto",
        ),
    ] = None
    executor: Annotated[
        Literal["local", "ray"],
        Flag(
            "--executor",
            "Work on this machine, or with actors of a Ray cluster, which [ray.STAGE] in --config describes: "
            "actors, gpus, cpus, batch_questions. Either can resume a run that the other began.",
        ),
    ] = "local"
    ray_address: Annotated[
        str | None,
        Flag(
            "--ray-address HOST:PORT",
            "A running Ray cluster; auto finds the one on this machine. Its machines need selfreflect, the "
            "models, and API keys in the environment in which Ray was started.",
            default="a new cluster on this machine",
            example="auto",
        ),
    ] = None
    batch_size: Annotated[
        int | None, Flag("--batch-size N", "Sequences decoded together.", range=POSITIVE, example=16)
    ] = None
    max_connections: Annotated[
        int, Flag("--max-connections N", "Concurrent calls to a server, per Ray actor.", range=POSITIVE)
    ] = 16
    timeout: Annotated[
        float,
        Flag(
            "--timeout SECONDS",
            "Time limit for one response of a server. With retries, a call may take three times as long.",
            range=SECONDS,
        ),
    ] = 600.0


class ExecutionOptions(ExecutionConfig, frozen=True, kw_only=True):
    """Options of execution, some of which only commands and callers may set.

    Raises:
        ConfigError: a value is out of range, or two options contradict each other.
    """

    prompts: Annotated[
        Path | None,
        Flag(
            "--prompts FILE",
            "TOML file that replaces some prompts, or published:DIR for the prompts in DIR, your checkout of "
            "the published code.",
        ),
    ] = None
    guesses: Annotated[
        int,
        Flag(
            "--guesses K",
            "For the report page, keep the judge's K likeliest tokens for every masked token.",
            range=between(0, 100),
        ),
    ] = 0
    batch_questions: int = 8
    """Number of questions per batch of a remote worker."""
    trust_remote_code: Annotated[
        bool, Flag("--trust-remote-code", "Run code that comes with a model from the hub.")
    ] = False

    write_batch: Annotated[
        Path | None,
        Flag(
            "--write-batch FILE",
            "Write the requests to FILE in OpenAI's batch format, which many servers process at half the "
            "price, and send none.",
        ),
    ] = None
    read_batch: Annotated[
        Path | None, Flag("--read-batch FILE", "Take the texts from the output file of such a batch.")
    ] = None

    @property
    def uses_batch(self) -> bool:
        """Whether texts are exchanged through batch files, without asking a server now."""
        return self.write_batch is not None or self.read_batch is not None

    def __post_init__(self) -> None:
        check_values(self, "execution")
        if self.write_batch is not None and self.read_batch is not None:
            raise ConfigError(
                "one command can write a batch or read one, not both",
                code="batch",
                remedy="Leave out {execution.write_batch} or {execution.read_batch}.",
            )
        if self.ray_address is not None and self.executor != "ray":
            raise ConfigError(
                "the address of a Ray cluster is given, but the executor is not ray",
                code="executor",
                remedy="Add {execution.executor} ray, or leave out {execution.ray_address}.",
            )


class ServeConfig(Record, frozen=True, kw_only=True):
    """Defaults of the endpoint ``selfreflect serve`` that requests may override."""

    num_answers: Annotated[
        int,
        Flag(
            "--num-answers N",
            "Answers to draw for each question, or the maximum with --at-least.",
            range=between(2, 200),
        ),
    ] = 10
    reflect: Annotated[
        Literal["always", "auto", "never"],
        Flag(
            "--reflect",
            "Reflect only questions (auto), every request, or none. A reflected request is answered "
            "from a distribution; "
            "a request can override this.",
        ),
    ] = "auto"
    at_least: Annotated[
        int | None,
        Flag(
            "--at-least N",
            "Stop early if answers agree, after N or more of them. Drawing ends once the likeliest "
            "answer is certain.",
            range=POSITIVE,
            example=3,
        ),
    ] = None
    classes: Annotated[
        str | None,
        Flag(
            "--classes RULE",
            "Rule that decides which answers are the same. The rules are same (equal in other words, "
            "without a model), exact (but for case, punctuation and articles), numeric, jaccard, rouge or "
            "embedding, the last three with a threshold, as in jaccard:0.6; judge (the served model is "
            "asked about pairs that the rule same cannot decide), or nli:MODEL.",
            default="the calibrator's; else judge, for at most 2 pairs per answer; same for smollm2",
            example="judge",
        ),
    ] = None
    confidence: Annotated[
        str | None,
        Flag(
            "--confidence KIND",
            "Which confidence comes back: modal_share (how many of the answers agree), split_half (the same, "
            "not inflated by few answers), the calibrator's estimator, or none.",
            default="modal_share, or the calibrator's",
            example="split_half",
        ),
    ] = None
    calibrator: Annotated[
        str | None,
        Flag(
            "--calibrator FILE",
            "Calibrate the confidence, with a file of `selfreflect calibrate --save`.",
            example="calibrator.json",
        ),
    ] = None
    claims_calibrator: Annotated[
        str | None,
        Flag(
            "--claims-calibrator FILE",
            "Give each claim a confidence, for requests that ask for claims, with a file of `selfreflect "
            "calibrate --claims words --save`.",
            example="claims.json",
        ),
    ] = None
    when_unsure: Annotated[
        Literal["abstain", "hedge", "ask"] | None,
        Flag(
            "--when-unsure",
            "What to say if the confidence is below --below: that the model does not know (abstain), how "
            "sure it is and then the summary (hedge), or the question that tells the answers apart best "
            "(ask).",
            example="hedge",
        ),
    ] = None
    below: Annotated[
        float, Flag("--below P", "Confidence below which --when-unsure takes effect.", range=SHARE)
    ] = 0.4
    one_call: Annotated[
        bool,
        Flag(
            "--one-call",
            "Answer with one response and its own confidence. The confidence is what --calibrator computes "
            "from the response's tokens. More answers are drawn only where that confidence is within "
            "--band of --below.",
        ),
    ] = False
    band: Annotated[
        float,
        Flag(
            "--band W",
            "Draw more answers if the confidence of --one-call is this close to --below.",
            range=Range("from 0 to 1", lambda value: 0 <= value <= 1, {"minimum": 0, "maximum": 1}),
        ),
    ] = 0.1
    ask_candidates: Annotated[
        int,
        Flag(
            "--ask-candidates N",
            "Number of questions that --when-unsure ask chooses from. Each costs a call for each "
            "answer to tell apart.",
            range=between(1, 50),
        ),
    ] = 15
    ask_hypotheses: Annotated[
        int,
        Flag(
            "--ask-hypotheses N",
            "Number of answers, the most common ones, that the question of --when-unsure ask tells apart.",
            range=between(2, 50),
        ),
    ] = 15
    footer: Annotated[
        bool,
        Flag("--footer", "End each text with a line on the confidence, for clients that show only text."),
    ] = False
    merge: Annotated[
        Literal["object", "field"],
        Flag(
            "--merge",
            "What JSON comes back: the most common object, or this object with the most common value of each "
            "field, where the schema allows them together.",
        ),
    ] = "object"
    ignore_tools: Annotated[
        bool,
        Flag(
            "--ignore-tools",
            "Answer questions that come with tools as if there were none, for chat pages that offer tools "
            "with every question.",
        ),
    ] = False
    out: Annotated[
        str | None,
        Flag(
            "--out DIR", "Keep a record of answers as a run directory, without texts.", example="runs/served"
        ),
    ] = None
    keep_texts: Annotated[
        bool, Flag("--keep-texts", "Keep questions, answers and summaries in --out too.")
    ] = False
    proxies: Annotated[
        str | None,
        Flag(
            "--proxies ADDRESSES",
            "Trust these proxies (addresses or networks, separated by commas) to name the client in "
            "X-Forwarded-For. Otherwise all clients of a proxy share the limit of one address.",
            example="10.0.0.5",
        ),
    ] = None


class Price(Record, frozen=True, kw_only=True):
    """A model's price in any currency, for ``--dry-run`` and ``serve``."""

    input_per_million: Annotated[
        float, Flag("", "Price of a million prompt tokens.", range=ZERO_OR_MORE, example=0.15)
    ]
    output_per_million: Annotated[
        float, Flag("", "Price of a million completion tokens.", range=ZERO_OR_MORE, example=0.6)
    ]

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Compute the price of a number of tokens."""
        return (prompt_tokens * self.input_per_million + completion_tokens * self.output_per_million) * 1e-6


class Config(Record, frozen=True, kw_only=True):
    """Sections for stages, actors, execution, the endpoint and prices.

    A run directory keeps the sections of the stages it was made with, and refuses others.
    """

    questions: QuestionsConfig = QuestionsConfig()
    answers: AnswersConfig = AnswersConfig()
    summaries: SummariesConfig = SummariesConfig()
    scores: ScoresConfig = ScoresConfig()
    ray: RayConfig = RayConfig()
    execution: ExecutionConfig = ExecutionConfig()
    serve: ServeConfig = ServeConfig()
    prices: dict[str, Price] = msgspec.field(default_factory=dict)
    """Prices by model name as in ``--model``."""

    def price_of(self, model: str) -> Price | None:
        """Look up a model's price in the file, else in its backend's list."""
        if model in self.prices:
            return self.prices[model]
        price = backend_of(model).price(model)
        return Price(input_per_million=price[0], output_per_million=price[1]) if price else None

    def section(self, name: str) -> dict[str, Any]:
        """Convert one section to plain values."""
        plain: dict[str, Any] = msgspec.to_builtins(getattr(self, name))
        return plain


FLAGGED: dict[str, type[Record]] = {
    name: type(getattr(Config(), name)) for name in (*STAGES, "execution", "serve")
}
"""Sections of settings with flags, by name."""


def sampling_of(model: str) -> dict[str, Any]:
    """Return a model's sampling settings for the demo, ``ask`` and the app."""
    return dict(traits_of(model).sampling)


SAMPLED_ALIKE = {
    "sample_temperature": "temperature",
    "sample_top_p": "top_p",
    "sample_max_new_tokens": "max_new_tokens",
}
"""Settings of strategies' own answers, each with the setting of the answer distribution that it follows."""
