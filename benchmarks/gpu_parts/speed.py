"""Times the engine, usable information and generation at the shapes of real judges, with random weights."""

from __future__ import annotations

import re
import time
import warnings
from collections import Counter
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from gpu_parts.card import matrix_rate
from gpu_parts.setting import Setting
from selfreflect.bench import (
    TOKENS,
    ItemWork,
    allocated,
    both_ways,
    compare_trees,
    count_flops,
    counted_tokens,
    peak,
    peak_seconds,
    read_shape,
    reset_peak,
    score,
    work_of,
)
from selfreflect.metric.distance import total_variation
from selfreflect.metric.engine.engines import TreeEngine
from selfreflect.metric.engine.logits import Reference
from selfreflect.metric.information import measure
from selfreflect.metric.scorer import SelfReflect
from selfreflect.metric.texts import control_texts
from selfreflect.models.base import Message
from selfreflect.models.judge import Judge

SECONDS_PER_QUESTION = 1.5
SHARE_OF_PEAK = 0.6
MEMORY = 4e9
"""The targets, for 50 answers in each half and four summaries: bytes above the weights."""

KINDS = {
    "matrix products": r"gemm|cutlass.*(tensorop|warpspecialized)|nvjet|splitK|mkldnn|::mm|addmm",
    "attention": r"fmha|flash|attention",
    "copies": r"memcpy|memset|copy|index|gather|scatter|cat",
}
"""Regular expressions for the names of kernels; attention is looked for first."""


class _Loaded:
    """A judge with its metric, and the work of the question."""

    def __init__(self, setting: Setting, shape: str) -> None:
        started = time.perf_counter()
        self.setting = setting
        self.judge: Judge = setting.judge(shape)
        self.memory = allocated(setting.device)
        self.metric = SelfReflect(self.judge)
        self.engine = self.metric.engine
        setting.write("judge loaded and engine chosen", time.perf_counter() - started, "s", engine=self.name)

    @property
    def name(self) -> str:
        name = type(self.engine).__name__
        if isinstance(self.engine, TreeEngine):
            kind = "fused" if self.engine.fused else "written out"
            name = f"{name}, {type(self.engine.decoder).__name__}, attention {kind}"
        return name

    def repeated(self, work: Callable[[], Any]) -> list[float]:
        return [self.setting.seconds(work) for _ in range(self.setting.sizes.repetitions)]


def time_engine(setting: Setting, shape: str) -> None:
    """Time one question from texts and from trees, and say where the time goes."""
    loaded = _Loaded(setting, shape)
    setting.write("engine", loaded.name)
    item = setting.item()
    work = work_of(loaded.judge, item)
    setting.write("tree nodes", work.tree_tokens, "tokens", requests=work.requests)
    first = setting.seconds(lambda: compare_trees(loaded.metric, work))
    setting.write("first question, with compilation", first, "s")
    allocated(setting.device)
    watched = reset_peak(setting.device)
    trees = loaded.repeated(lambda: compare_trees(loaded.metric, work))
    setting.write("from trees to distances", median(trees), "s", all=trees)
    if watched:
        above = max(0, peak(setting.device) - loaded.memory)
        setting.write("memory above the weights", above / 1e9, "GB", target=MEMORY / 1e9)
    with counted_tokens(loaded.judge) as tokens:
        whole = loaded.repeated(lambda: score(loaded.metric, item))
    setting.write("from texts to scores", median(whole), "s", target=SECONDS_PER_QUESTION, all=whole)
    computed = sum(tokens) / len(whole)
    setting.write("tokens computed", computed, "tokens", target=float(work.tree_tokens), exact=True)
    texts = setting.seconds(lambda: work_of(loaded.judge, item))
    setting.write("of that, texts to trees on the CPU", texts, "s")
    _write_shares(loaded, work, min(trees), min(whole))
    _write_distances(loaded, work)
    _write_profile(loaded, work)
    _write_waits(loaded, work)


def _write_shares(loaded: _Loaded, work: ItemWork, trees: float, whole: float) -> None:
    """Compare with the card's rate in one large product, and in products of the model's own shapes."""
    setting = loaded.setting
    model = loaded.judge.lm.model
    shape = read_shape(model.config.get_text_config())
    assert shape is not None
    flops = count_flops(work.trees, shape)
    dtype = next(model.parameters()).dtype
    rate = matrix_rate(setting, dtype)
    achieved = flops.total / trees
    setting.write("operations a second, from trees", achieved / 1e12, "TFLOP/s", operations=flops.total)
    share = 100 * achieved / rate
    setting.write("share of the card's peak", share, "%", target=100 * SHARE_OF_PEAK, relation=">=")
    setting.write("the same, from texts", share * trees / whole, "%")
    rows = getattr(loaded.engine, "max_rows", 8192)
    best = peak_seconds(flops, shape, min(rows, 64) if setting.smoke else rows, dtype, setting.device)
    setting.write("share of products of the model's shapes", 100 * best / trees, "%")


def _write_distances(loaded: _Loaded, work: ItemWork) -> None:
    """Projections and distances alone, by the compiled formula, as on a GPU always, and by the plain one.
    Nothing else in the engine is compiled, and there are no CUDA graphs to switch off: each batch has a shape
    of its own. The idle share of the profile is what graphs could win."""
    setting = loaded.setting
    reference, *trees = work.trees
    compared = Reference(loaded.engine, reference).compare(trees)
    temperature = loaded.metric.temperature
    for name, formula in (("as it is", None), ("not compiled, in small blocks", total_variation)):
        compared.distances(temperature, formula)
        times = loaded.repeated(lambda formula=formula: compared.distances(temperature, formula))
        setting.write(f"distances, {name}", median(times), "s", all=times)


def _write_profile(loaded: _Loaded, work: ItemWork) -> None:
    """The share of the time in which the device computes, and in which kinds of kernels."""
    from torch.profiler import ProfilerActivity, profile

    setting = loaded.setting
    on_gpu = setting.device.type == "cuda"
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    with profile(activities=[activity]) as profiler:
        seconds = setting.seconds(lambda: compare_trees(loaded.metric, work))
    kernels: Counter[str] = Counter()
    for event in profiler.key_averages():
        kernels[event.key] += event.self_device_time_total if on_gpu else event.self_cpu_time_total
    kinds: Counter[str] = Counter()
    for name, microseconds in kernels.items():
        kinds[_kind(name)] += microseconds
    busy = sum(kernels.values()) / 1e6
    setting.write("time in kernels, under the profiler", 100 * busy / seconds, "%", seconds=seconds)
    for kind, microseconds in kinds.most_common():
        setting.write(f"of that, {kind}", microseconds / 1e4 / max(busy, 1e-9), "%")
    top = {name[:120]: microseconds / 1e6 for name, microseconds in kernels.most_common(25)}
    setting.write("kernels", len(kernels), "", seconds_of_kernels=top)


def _kind(kernel: str) -> str:
    for kind in ("attention", "matrix products", "copies"):
        if re.search(KINDS[kind], kernel, re.IGNORECASE):
            return kind
    return "elementwise and the rest"


def _write_waits(loaded: _Loaded, work: ItemWork) -> None:
    """Count where the host waits for the GPU. Torch warns of each such place when told to."""
    setting = loaded.setting
    if setting.device.type != "cuda":
        setting.write("places where the host waits", "only a GPU has them")
        return
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            compare_trees(loaded.metric, work)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    places = Counter(f"{one.filename}:{one.lineno}" for one in caught if "synchroniz" in str(one.message))
    setting.write("times that the host waits", sum(places.values()), "", places=dict(places.most_common(20)))


def time_information(setting: Setting, shape: str) -> None:
    """Time usable information of the question's summaries, without and with the controls."""
    loaded = _Loaded(setting, shape)
    item = setting.item()
    summaries = list(item.summaries.values())
    controls = [text for _, text in control_texts(item.question, item.conditioning)]
    for name, texts in (("summaries", summaries), ("summaries and controls", [*summaries, *controls])):

        def work(texts: list[str] = texts) -> None:
            measure(loaded.judge, loaded.engine, item.question_record, item.answer_set, texts)

        work()
        allocated(setting.device)
        watched = reset_peak(setting.device)
        with counted_tokens(loaded.judge) as tokens:
            times = loaded.repeated(work)
        computed = sum(tokens) // len(times)
        setting.write(f"{name}, from texts", median(times), "s", all=times, tokens=computed)
        if watched:
            above = max(0, peak(setting.device) - loaded.memory)
            setting.write(f"{name}, memory above the weights", above / 1e9, "GB", target=MEMORY / 1e9)


def time_generation(setting: Setting, shape: str) -> None:
    """Draw samples of one prompt, all of the same length, and by transformers' generate too."""
    judge = setting.judge(shape)
    memory = allocated(setting.device)
    question = Message(role="user", content="What should a beginner plant first in a small garden?")
    [prompt] = judge.chat.encode([judge.chat.render([question])])
    setting.write("prompt", len(prompt), "tokens")
    samples = setting.sizes.samples
    draws = both_ways(judge.lm, tuple(prompt), samples)
    for name, draw in zip(("selfreflect", "transformers"), draws, strict=True):
        draw()  # loads kernels
        allocated(setting.device)
        watched = reset_peak(setting.device)
        seconds = setting.seconds(draw)
        rate = samples * TOKENS / seconds
        setting.write(f"{name}, {samples} samples", rate, "tokens/s", seconds_per_step=seconds / TOKENS)
        if watched:
            above = max(0, peak(setting.device) - memory)
            setting.write(f"{name}, memory above the weights", above / 1e9, "GB")


def time_scaling(setting: Setting, shape: str) -> None:
    """Time questions of more answers and summaries: seconds for 1,000 tree nodes should stay the same."""
    loaded = _Loaded(setting, shape)
    compare_trees(loaded.metric, work_of(loaded.judge, setting.item()))
    points = [("N", {"answers": count}, count) for count in setting.sizes.scaling_answers]
    points += [("S", {"summaries": count}, count) for count in setting.sizes.scaling_summaries]
    for axis, sizes, count in points:
        work = work_of(loaded.judge, setting.item(**sizes))
        allocated(setting.device)
        reset_peak(setting.device)
        seconds = setting.seconds(lambda work=work: compare_trees(loaded.metric, work))
        setting.write(
            f"{axis} = {count}, from trees",
            seconds,
            "s",
            tokens=work.tree_tokens,
            seconds_per_1000_tokens=1000 * seconds / work.tree_tokens,
            memory_bytes=max(0, peak(setting.device) - loaded.memory),
        )
