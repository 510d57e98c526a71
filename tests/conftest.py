from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from selfreflect.metric.scorer import SelfReflect
    from selfreflect.models.judge import Judge

# A shell that starts the tests in the background ignores interrupts, and the commands that the tests
# interrupt would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What differs between the places where tests are started: what output looks like, keys, who computes, who may
# read new files, and proxies, since all servers of the tests are on this machine.
for _name in (
    *("FORCE_COLOR", "NO_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "COLUMNS", "LINES", "TERMINAL_WIDTH"),
    *("SELFREFLECT_API_KEY", "OPENAI_API_KEY", "SELFREFLECT_APP_TOKEN", "SELFREFLECT_NATIVE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"),
):
    os.environ.pop(_name, None)
os.umask(0o022)
# Without caches each of the processes below would compile the package and rewrite the tests again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# What is written outlives its process anyway, and no test takes the power away: waiting for the disk was a
# fifth of the time. Commands that are processes of their own do wait.
os.fsync = lambda descriptor: None
gc.disable()  # while the tests are imported, which makes much and drops little
os.environ["OMP_NUM_THREADS"] = "1"  # processes whose threads share cores wait for each other all the time

# The same examples in every run, however long they take: a test that fails has failed for everybody.
# For new and many more ones: pytest --hypothesis-profile thorough
settings.register_profile(
    "selfreflect",
    derandomize=True,
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile("selfreflect")


# Files that take ten seconds of processor time or more, the longest first. They start before all others:
# whichever starts last keeps the other processes waiting.
_LONGEST = (
    *("test_witness.py", "test_api.py", "test_worker.py", "test_engines.py", "test_page_browser.py"),
    *("test_habits.py", "test_page.py", "test_parity.py", "test_form.py", "test_live.py", "test_refusals.py"),
    *("test_hostile.py", "test_attention.py", "test_kill.py", "test_experiment.py"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    """The place of a test's file among the longest, after all of which the order is kept."""
    name = item.path.name
    return _LONGEST.index(name) if name in _LONGEST else len(_LONGEST)


def pytest_collection_finish() -> None:
    """Take what the imports have made out of every garbage collection to come."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 10)  # looking for garbage took 6 % of the time, and tests leave little


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    import browser

    with browser.chromium() as opened:
        yield opened


@pytest.fixture
def small_heap() -> None:
    """For what collects garbage again and again, as one does to measure memory: collections look at nothing
    that was there before. In each test anew, because the first of a file imports what models need."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def quick_figures() -> Iterator[None]:
    """Figures without the layout that keeps labels apart, most of the time of drawing them. For files
    that make many pages and look at what is in them; ``test_plots.py`` looks at where things are."""
    from matplotlib.figure import Figure

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "set_layout_engine", lambda *args, **options: None)
        yield


@pytest.fixture(scope="module")
def one_embedder() -> Iterator[None]:
    """The embedding model itself is loaded once for all tests of a file: it is the same for all."""
    from selfreflect.models import embed as embedder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedder, "SentenceEmbedder", cache(embedder.SentenceEmbedder))
        yield


@pytest.fixture
def plugin() -> Iterator[None]:
    """The package of ``tests/support/plugin`` is installed, for this process and those that it starts."""
    from installed import installed, plugin_folder

    with installed(plugin_folder()):
        yield


@pytest.fixture(scope="session")
def tiny_judge(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Judge]:
    """``tiny_judge("llama", dtype="bfloat16", max_position_embeddings=100)``: a tiny random judge, made on
    the first call."""
    import tiny

    from selfreflect.models.judge import Judge

    def make(architecture: str, dtype: Any = "float32", **changes: Any) -> Judge:
        return Judge.load(
            str(tiny.save(tmp_path_factory.mktemp("judge"), architecture, **changes)),
            device="cpu",
            dtype=dtype,
        )

    return cache(make)


@pytest.fixture(scope="session")
def tiny_metric(tiny_judge: Callable[..., Judge]) -> Callable[..., SelfReflect]:
    """The metric with a judge that :func:`tiny_judge` makes."""
    from selfreflect.metric.scorer import SelfReflect

    return cache(lambda architecture, **options: SelfReflect(tiny_judge(architecture, **options)))
