"""Checks each path of the package on the device against float64 on the CPU, with tiny models.

The truth shares no code with the engine: one ordinary pass of transformers for each prompt, and formulas
written out. In half precision the weights are rounded before the truth is computed from them, and the allowed
error is a multiple of the one that transformers' own pass has in that precision.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch

from gpu_parts.random_judge import ARCHITECTURES, tiny_judge
from gpu_parts.setting import Setting
from selfreflect.bench import encode
from selfreflect.metric.distance import total_variation
from selfreflect.metric.engine.attention import Extras, TreeAttention
from selfreflect.metric.engine.engines import (
    Decoder,
    Engine,
    FusedDecoder,
    HFDecoder,
    SequenceEngine,
    TreeEngine,
    choose_engine,
)
from selfreflect.metric.engine.logits import (
    Reference,
    SummaryStates,
    log_probabilities,
)
from selfreflect.metric.engine.tree import PrefixTree, Prompt, build_tree, pack
from selfreflect.metric.information import AnswerPrompts, measure
from selfreflect.metric.scorer import SelfReflect
from selfreflect.models.base import Sampling
from selfreflect.models.judge import Judge
from selfreflect.models.local.decode import Draw, decode
from selfreflect.models.local.layers import is_llama

ROUNDING = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}
"""Largest relative error of an attention output."""

EXACT = 2e-5
"""Largest error of a distance in float32."""
HALF_FACTOR, HALF_FLOOR = 3.0, 1e-3
"""In half precision: so many times the error of transformers' pass, and this much more."""
TEMPERATURE = 5.0


def check_paths(setting: Setting) -> None:
    """Run every check; one that fails or crashes is a result, and the next one runs."""
    dtypes = [torch.float32, torch.bfloat16]
    if not setting.smoke:
        dtypes.append(torch.float16)
    for dtype in dtypes:
        for kind, extras in _extras(setting.device, dtype).items():
            for fused in (True, False):
                with _reported(
                    setting, f"attention, {kind}, {'fused' if fused else 'written out'}", dtype
                ) as check:
                    check(attention_error(setting.device, dtype, extras, fused=fused), ROUNDING[dtype])
    for architecture in ARCHITECTURES:
        for dtype in dtypes[: 1 if setting.smoke else 2]:
            with _reported(setting, architecture, dtype):
                _check_engines(setting, architecture, dtype)
    _check_formulas(setting)
    for dtype in dtypes[: 1 if setting.smoke else 2]:
        with _reported(setting, "texts", dtype):
            _check_texts(setting, dtype)
    _check_generation(setting)


@contextmanager
def _reported(setting: Setting, name: str, dtype: torch.dtype) -> Iterator[Callable[[float, float], None]]:
    """Give a function that writes an error and its limit; what is raised instead is the result."""
    name = f"{name}, {str(dtype).removeprefix('torch.')}"

    def check(error: float, limit: float) -> None:
        setting.write(name, float(error), "error", target=limit, exact=True)

    try:
        with torch.inference_mode():
            yield check
    except Exception as error:  # kernels and compilers raise nearly anything
        message = f"{type(error).__name__}: {error}"[:500]
        setting.write(name, float("nan"), "error", target=0.0, exact=True, message=message)


# --- attention


def _extras(device: torch.device, dtype: torch.dtype) -> dict[str, Extras]:
    sinks = torch.linspace(-1, 2, 8).to(device, dtype)
    return {
        "plain": Extras(),
        "window": Extras(window=37),
        "softcap": Extras(softcap=0.7),
        "sinks": Extras(sinks=sinks),
    }


def random_tree(prefix: int, branches: int, seed: int) -> PrefixTree:
    return build_tree(random_prompts(prefix, branches, seed))


def random_prompts(prefix: int, branches: int, seed: int, vocabulary: int = 500) -> list[Prompt]:
    """Prompts with a common beginning of ``prefix`` tokens, which branch often. What follows the beginning
    does not depend on it, as the masked answers do not depend on the summary."""
    chance = random.Random(f"beginning {seed}")
    start = tuple(chance.randrange(16, vocabulary) for _ in range(prefix))
    chance = random.Random("branches")
    prompts = []
    for branch in range(branches):
        body = [8 + branch % 3, *(chance.randrange(8, 11) for _ in range(chance.randrange(2, 9)))]
        body += [chance.randrange(16, vocabulary) for _ in range(4)]
        prompts.append(Prompt((*start, *body), prefix + len(body) - 2))
    return prompts


def attention_error(device: torch.device, dtype: torch.dtype, extras: Extras, *, fused: bool) -> float:
    """The largest relative error over contexts, also where batches carry prefixes and paths on."""
    heads, kv, size = 8, 2, 64
    trees = [random_tree(prefix, 90, seed) for seed, prefix in enumerate((300, 0, 33))]
    torch.manual_seed(0)
    data = []
    for tree in trees:
        rows = len(tree.prefix) + len(tree.tokens)
        data.append([torch.randn(rows, count, size).to(dtype) for count in (heads, kv, kv)])
    truths = [dense_attention(tree, own, extras) for tree, own in zip(trees, data, strict=True)]
    worst = 0.0
    for max_rows in (8192, 350):
        attended = _attend(trees, data, max_rows, device, extras, fused=fused)
        for own, truth in zip(attended, truths, strict=True):
            worst = max(worst, _relative(own, truth))
    return worst


def _attend(
    trees: Sequence[PrefixTree],
    data: Sequence[Sequence[torch.Tensor]],
    max_rows: int,
    device: torch.device,
    extras: Extras,
    *,
    fused: bool,
) -> list[torch.Tensor]:
    """What all rows of each context take."""
    attention = TreeAttention(fused=fused)
    every: list[list[torch.Tensor]] = [[] for _ in trees]
    for batch in pack(trees, max_rows):
        attention.begin(batch)
        parts: list[list[torch.Tensor]] = [[], [], []]
        for segment in batch.segments:
            prefix = len(segment.tree.prefix)
            rows = [*range(segment.prefix), *range(prefix + segment.start, prefix + segment.stop)]
            for part, values in zip(parts, data[segment.context], strict=True):
                part.append(values[rows])
        query, key, value = (torch.cat(part).to(device) for part in parts)
        scale = query.shape[2] ** -0.5
        out = attention.attend(0, query, key, value, scale, extras)
        for segment in batch.segments:
            every[segment.context].append(out[segment.first_row : segment.first_row + segment.rows])
    return list(map(torch.cat, every))


def dense_attention(tree: PrefixTree, data: Sequence[torch.Tensor], extras: Extras) -> torch.Tensor:
    """One dense, masked attention in float64 over the prefix and all nodes."""
    query, key, value = (values.double() for values in data)
    prefix, nodes = len(tree.prefix), np.arange(len(tree.tokens))
    rows = prefix + len(nodes)
    visible = torch.ones(rows, rows, dtype=torch.bool).tril()
    visible[prefix:, prefix:] = torch.from_numpy(tree.visible(nodes, nodes))
    if extras.window is not None:
        positions = torch.from_numpy(np.concatenate([np.arange(prefix), prefix + tree.depth]))
        visible &= positions[None, :] > positions[:, None] - extras.window
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
    logits = torch.einsum("qhd,khd->hqk", query, key) * query.shape[2] ** -0.5
    if extras.softcap is not None:
        logits = extras.softcap * torch.tanh(logits / extras.softcap)
    logits = logits.masked_fill(~visible, float("-inf"))
    if extras.sinks is not None:
        sinks = extras.sinks.cpu().double()[:, None, None].expand(-1, rows, 1)
        logits = torch.cat([logits, sinks], dim=2)
    weights = torch.softmax(logits, dim=2)[:, :, :rows]
    return torch.einsum("hqk,khd->qhd", weights, value)


def _relative(values: torch.Tensor, truth: torch.Tensor) -> float:
    difference = torch.linalg.vector_norm(values.cpu().double() - truth)
    return float(difference / torch.linalg.vector_norm(truth))


# --- engines


def _check_engines(setting: Setting, architecture: str, dtype: torch.dtype) -> None:
    """Distances of two contexts from a third, by every engine that can run the architecture."""
    judge = tiny_judge(setting, architecture, dtype)
    branches = 12 if setting.smoke else 40
    contexts = [random_prompts(prefix, branches, seed) for seed, prefix in enumerate((70, 33, 41))]
    with torch.inference_mode():
        truth = _true_distances(_double(judge), contexts)
        allowed = EXACT
        if dtype != torch.float32:
            library = _true_distances(judge.lm.model, contexts)
            allowed = HALF_FACTOR * float(np.max(np.abs(library - truth))) + HALF_FLOOR
    decoders: dict[str, Decoder] = {"library decoder": HFDecoder(judge.decoder)}
    if is_llama(judge.decoder):
        decoders["own decoder"] = FusedDecoder(judge.decoder)
    engines: dict[str, Callable[[], Engine]] = {
        "chosen": lambda: choose_engine(judge.lm.model, judge.decoder, judge.head)
    }
    for fused in (True, False):
        for name, decoder in decoders.items():
            engines[f"{name}, {'fused' if fused else 'written out'}"] = partial(
                TreeEngine, decoder, judge.head, setting.device, fused=fused
            )

    def states(ids: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = judge.decoder(input_ids=ids, use_cache=False).last_hidden_state
        return hidden

    engines["sequences"] = partial(SequenceEngine, states, judge.head, setting.device)
    for name, make in engines.items():
        with _reported(setting, f"{architecture}, {name}", dtype) as check:
            engine = make()
            if isinstance(engine, TreeEngine):
                engine.max_rows = 110  # so that contexts are cut
            check(float(np.max(np.abs(_distances(engine, contexts) - truth))), allowed)


def _distances(engine: Engine, contexts: Sequence[Sequence[Prompt]]) -> np.ndarray[Any, Any]:
    """The distance of each token task of each summary, in the order of the prompts."""
    reference, *trees = [build_tree(prompts) for prompts in contexts]
    return _in_order(Reference(engine, reference).compare(trees))


def _in_order(compared: SummaryStates) -> np.ndarray[Any, Any]:
    parts = []
    for distances, words in zip(compared.distances(TEMPERATURE), compared.tasks, strict=True):
        parts += [distances[tasks] for tasks in words]
    return np.concatenate(parts)


def _double(judge: Judge) -> Any:
    """The model in float64 on the CPU, its experts one by one, since kernels for all at once lack float64."""
    model = copy.deepcopy(judge.lm.model).cpu().double()
    model.set_experts_implementation("eager")
    return model


def _true_distances(model: Any, contexts: Sequence[Sequence[Prompt]]) -> np.ndarray[Any, Any]:
    """The total variation, by one ordinary pass for each prompt and a softmax in float64."""
    predictions = []
    for prompts in contexts:
        rows = [_predicted(model, prompt) / TEMPERATURE for prompt in prompts]
        predictions.append(torch.softmax(torch.cat(rows), dim=-1))
    reference, *others = predictions
    distances = [(other - reference).abs().sum(dim=-1) / 2 for other in others]
    return torch.cat(distances).cpu().numpy()


def _predicted(model: Any, prompt: Prompt) -> torch.Tensor:
    """Logits of each token of the prompt's word, in float64."""
    device = next(model.parameters()).device
    logits = model(input_ids=torch.tensor([prompt.ids[:-1]], device=device), use_cache=False).logits[0]
    return logits[prompt.first - 1 :].double()


# --- formulas, texts and caches


def _check_formulas(setting: Setting) -> None:
    """Distances and log-probabilities of a large vocabulary, by the kernels that the device uses."""
    rows, vocabulary = 70, 2048 if setting.smoke else 152064
    torch.manual_seed(0)
    weight = torch.randn(vocabulary, 32)
    states = [torch.randn(rows, 32).to(setting.device) for _ in range(2)]
    tensor = weight.to(setting.device)

    def head(hidden: torch.Tensor) -> torch.Tensor:
        return hidden @ tensor.t()

    own, other = (state.cpu().double() @ weight.double().t() for state in states)
    tasks = np.column_stack([np.arange(rows), np.arange(rows)[::-1]])
    with _reported(setting, "distances of a large vocabulary", torch.float32) as check:
        compared = SummaryStates(head, states[1], [(states[0], tasks)])
        [distances] = compared.distances(TEMPERATURE)
        truth = total_variation(own, other.flip(0), TEMPERATURE).numpy()
        check(float(np.max(np.abs(distances - truth))), EXACT)
    with _reported(setting, "log-probabilities of a large vocabulary", torch.float32) as check:
        tokens = np.column_stack([np.arange(rows), np.arange(rows)])
        logs = log_probabilities(head, states[0], tokens)
        truth = torch.log_softmax(own, dim=1).numpy()[np.arange(rows), np.arange(rows)]
        check(float(np.max(np.abs(logs - truth))), 1e-4)


def _check_texts(setting: Setting, dtype: torch.dtype) -> None:
    """Scores and usable information, from texts as users give them."""
    judge = tiny_judge(setting, "qwen2", dtype, own_vocabulary=False)
    item = setting.item(answers=3, summaries=2)
    contexts = encode(judge, item)
    with torch.inference_mode():
        exact = _double(judge)
        truth = _true_distances(exact, contexts)
        half = dtype != torch.float32
        allowed = EXACT
        if half:
            library = _true_distances(judge.lm.model, contexts)
            allowed = HALF_FACTOR * float(np.max(np.abs(library - truth))) + HALF_FLOOR
    with _reported(setting, "scores of texts", dtype) as check:
        scores = SelfReflect(judge).score_records(item.question_record, item.answer_set, item.summary_records)
        found = [d for score in scores for word in score.words for d in word.distances]
        check(float(np.max(np.abs(np.array(found) - truth))), allowed)
    with _reported(setting, "information of texts, bits of an answer", dtype) as check:
        check(_information_error(judge, exact, item), 1.0 if half else 2e-3)


def _information_error(judge: Judge, exact: Any, item: Any) -> float:
    """The largest error of what a summary tells about an answer, in bits."""
    engine = choose_engine(judge.lm.model, judge.decoder, judge.head)
    texts = list(item.summaries.values())
    found = measure(judge, engine, item.question_record, item.answer_set, texts)
    prompts = AnswerPrompts(judge, item.question_record, item.answer_set, "informed")

    def bits(context: Sequence[Prompt]) -> np.ndarray[Any, Any]:
        totals = []
        for prompt in context:
            logs = torch.log_softmax(_predicted(exact, prompt), dim=-1)
            tokens = torch.tensor(prompt.ids[prompt.first :])
            totals.append(float(logs[torch.arange(len(tokens)), tokens].sum()) / np.log(2))
        return np.array(totals)

    contexts, _ = prompts.contexts(texts)
    nothing = bits(contexts[""])
    errors = []
    for text in texts:
        told = bits(contexts[text]) - nothing
        errors.append(abs(float(told.mean()) - found[text].bits))
    return max(errors)


# --- generation


def _check_generation(setting: Setting) -> None:
    """Greedy tokens are the likeliest of the float64 model; samples do not depend on their batch, and follow
    the distribution."""
    judge = tiny_judge(setting, "llama", torch.float32)
    model, exact = judge.lm.model, _double(judge)
    prompts = [tuple(range(20, 20 + length)) for length in (5, 12, 31)]

    def draw(sampling: Sampling, seeds: int, limit: int, batch: int) -> list[list[int]]:
        draws = [
            Draw(prompt, sampling, seed=seed, limit=limit) for prompt in prompts for seed in range(seeds)
        ]
        for start in range(0, len(draws), batch):
            for _ in decode(model, draws[start : start + batch], frozenset(), 0):
                pass
        return [one.tokens for one in draws]

    with _reported(setting, "generation, greedy: logits below the best", torch.float32) as check:
        worst = 0.0
        for prompt, tokens in zip(prompts, draw(Sampling(temperature=0), 1, 12, 99), strict=True):
            logits = _predicted(exact, Prompt((*prompt, *tokens), len(prompt)))
            taken = logits[torch.arange(len(tokens)), torch.tensor(tokens)]
            worst = max(worst, float((logits.max(dim=1).values - taken).max()))
        check(worst, 1e-3)
    with _reported(setting, "generation, samples that depend on their batch", torch.float32) as check:
        sampling = Sampling(top_p=0.9, min_p=0.01)
        together, alone = (draw(sampling, 5, 12, batch) for batch in (99, 1))
        check(float(sum(a != b for a, b in zip(together, alone, strict=True))), 0.0)
    with _reported(setting, "generation, distance of 3,000 first tokens from theirs", torch.float32) as check:
        tokens = np.array(draw(Sampling(), 1000, 1, 500)).reshape(3, 1000)
        worst = 0.0
        for prompt, row in zip(prompts, tokens, strict=True):
            logits = _predicted(exact, Prompt((*prompt, 0), len(prompt)))
            probabilities = torch.softmax(logits[0], dim=0).numpy()
            likeliest = probabilities.argsort()[-5:]
            for token in likeliest:
                p = probabilities[token]
                deviation = abs(np.mean(row == token) - p) / np.sqrt(p * (1 - p) / len(row) + 1e-9)
                worst = max(worst, float(deviation))
        check(worst, 5.0)  # standard errors
