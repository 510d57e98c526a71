"""Backends: prefixes of model names, traits of the models, and how to load them.

A name is ``PREFIX:NAME`` (``openai:gpt-4o``, ``vllm:smollm2``), a function that writes texts
(``module:function``), or that of a local torch model. Another package adds a prefix by an entry point of the
group ``selfreflect.backends``, which names its subclass of :class:`Backend`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from selfreflect.errors import BackendError, ConfigError, JudgeError, excerpt
from selfreflect.models.base import LOCAL_NAMES, Compat, ModelSpec, StageGenerator

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge
    from selfreflect.models.openai.endpoint import Endpoint

GROUP = "selfreflect.backends"

BACKENDS = {
    "local": "selfreflect.models.local:Local",
    "function": "selfreflect.models.function:Function",
    "openai": "selfreflect.models.openai:OpenAI",
    "litellm": "selfreflect.models.litellm:LiteLLM",
    "vllm": "selfreflect.models.vllm:VLLM",
    "vllm+http": "selfreflect.models.vllm:VLLMServer",
}
"""The class of each backend, ``module:Class``, imported on use."""

_WITHOUT_PREFIX = ("local", "function")
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")

Say = Callable[[str], None]
"""Callback for a line of progress before each slow step."""


class Backend:
    """A backend, which loads models and describes their traits."""

    prefix = ""
    """Prefix before the colon in a model's name."""
    generator = ""
    """Loader of a generator, ``module:name``, from ``(spec, progress)``; empty if models only judge."""
    judge = ""
    """Loader of a judge, ``module:name``, from ``(spec, compat, progress)``; empty without full logits."""
    is_remote = False
    """Whether a server at ``base_url`` does the computation."""
    needs_address = False
    """Whether a server has no default address."""
    can_relay = False
    """Whether the server speaks OpenAI's protocol, so that client requests can pass through."""
    loads_model = True
    """Whether loading places a model in this process, which then needs a GPU or all CPUs."""
    is_torch = False
    """Whether the model is a torch module, as training, timing and spreading over GPUs need."""
    runs_foreign_code = False
    """Whether the name is of code that loading executes."""
    gives_logprobs = True
    takes_batches = False
    """Whether requests can be sent as a file that the server answers later."""

    @property
    def can_generate(self) -> bool:
        return bool(self.generator)

    @property
    def can_judge(self) -> bool:
        return bool(self.judge)

    def bare_name(self, name: str) -> str:
        """Remove the prefix from a model's name. Raises ConfigError if the rest is empty."""
        bare = name.removeprefix(f"{self.prefix}:").strip() if self.prefix else name
        if not bare:
            raise ConfigError(f"{self.prefix}:NAME needs the name of a model", code="model_name")
        return bare

    def server(self, base_url: str | None) -> Endpoint:
        """Describe a remote backend's server, including its key. Raises ConfigError for a wrong address."""
        from selfreflect.models.openai.endpoint import endpoint

        return endpoint(base_url)

    def may_charge(self, base_url: str | None) -> str:
        """Return the host that may charge for calls; empty for local models and private networks."""
        if not self.is_remote:
            return ""
        server = self.server(base_url)
        return "" if server.is_own else server.host

    def price(self, name: str) -> tuple[float, float] | None:
        """Look up the price of a million prompt and completion tokens, if known."""
        return None

    def default_batch(self, questions: int, connections: int) -> int:
        """Choose the number of questions per batch, larger for servers to keep them busy."""
        return max(questions, 2 * connections) if self.is_remote else questions

    def check(self, spec: ModelSpec, progress: Say | None = None) -> None:
        """Check that a model can be loaded, without loading weights. Raises SelfReflectError if loading
        would."""
        if self.can_generate:
            self.open(spec, progress)

    def open(self, spec: ModelSpec, progress: Say | None = None) -> StageGenerator:
        """Load a generator. Raises SelfReflectError if it cannot be loaded."""
        if not self.can_generate:
            names = ", ".join(f"{prefix}:NAME" for prefix in prefixes(can_generate=True))
            raise ConfigError(
                f"{excerpt(spec.name)} names a judge and cannot generate text. Give {names}, {LOCAL_NAMES}.",
                code="no_generator",
            )
        generator: StageGenerator = resolve_name(self.generator)(spec, progress)
        return generator

    def open_judge(self, spec: ModelSpec, compat: Compat, progress: Say | None) -> Judge:
        """Load a judge. Raises SelfReflectError if it cannot be loaded."""
        if not self.can_judge:
            raise JudgeError(
                f"{excerpt(spec.name)} cannot be a judge: the metric compares distributions over the full "
                "vocabulary. A function that writes texts has none, and an API returns only the most likely "
                "tokens: at the judge's temperature of 5 the top 20 hold less than 1 % of the mass, so the "
                "score would be a guess. Answers and summaries may come from any model; for the judge, give "
                "a hub name, a local directory, smollm2, or a server that runs vLLM in pooling mode "
                "(vllm+http:NAME).",
                code="no_judge",
            )
        judge: Judge = resolve_name(self.judge)(spec, compat, progress)
        return judge


def backend_of(name: str) -> Backend:
    """Find the backend of a model's name.

    Raises ConfigError where that of another package cannot be imported.
    """
    prefix, colon, _ = name.partition(":")
    # "llama3:8b" and "C:\\models" have a colon, too: only a prefix that somebody registered counts.
    if colon and prefix not in _WITHOUT_PREFIX and (prefix in BACKENDS or prefix in _entry_points()):
        return _load(prefix)
    return _load("function" if _FUNCTION.fullmatch(name) else "local")


def bare_name(name: str) -> str:
    """Remove the backend's prefix from a model's name. Raises ConfigError if the rest is empty."""
    return backend_of(name).bare_name(name)


def prefixes(**properties: bool) -> list[str]:
    """List the prefixes of all backends with the given traits, built-in ones first."""
    names = []
    for prefix in dict.fromkeys([*BACKENDS, *_entry_points()]):
        with suppress(ConfigError):  # a broken package must not hide the others
            backend = _load(prefix)
            if backend.prefix and all(getattr(backend, name) == value for name, value in properties.items()):
                names.append(prefix)
    return names


def on_server(name: str) -> str:
    """Add a server backend's prefix to a name, such as ``openai:NAME``."""
    return f"{prefixes(is_remote=True, can_generate=True)[0]}:{name}"


@cache
def _load(prefix: str) -> Backend:
    if prefix in BACKENDS:
        ours: Backend = resolve_name(BACKENDS[prefix])()
        return ours
    from selfreflect.plugins import failures_of

    with failures_of(f"the backend {excerpt(prefix)} of another package"):
        # the loader gives the class
        backend = _entry_points()[prefix]()()
        if not isinstance(backend, Backend):
            raise TypeError(f"{excerpt(backend)} is not a Backend")
    # it goes by the name of its entry point, whatever the class says
    backend.prefix = prefix
    return backend


@cache
def _entry_points() -> dict[str, Callable[[], Any]]:
    """Map the prefixes of other packages' backends to their loaders."""
    from selfreflect.plugins import packaged

    return dict(packaged(GROUP))


def check_loadable(spec: ModelSpec, progress: Say | None = None) -> None:
    """Check that the model of ``spec`` can be loaded; see :meth:`Backend.check`."""
    _set_library_defaults()
    backend_of(spec.name).check(spec, progress)


def load_generator(spec: ModelSpec, progress: Say | None = None) -> StageGenerator:
    """Load the generator of ``spec``.

    Raises:
        ConfigError: no generator has a name of this kind.
        BackendError: the model cannot be loaded.
        MissingExtraError: its optional package is not installed.
    """
    backend = backend_of(spec.name)
    if (spec.write_batch or spec.read_batch) and not backend.takes_batches:
        names = " or ".join(f"{prefix}:NAME" for prefix in prefixes(takes_batches=True))
        raise ConfigError(
            f"{excerpt(spec.name)} cannot be used with batch files",
            code="no_batches",
            remedy=f"Leave out {{execution.write_batch}} and {{execution.read_batch}}, or use {names}.",
        )
    if progress and backend.loads_model and backend.can_generate:
        progress(f"loading {spec.name}")
    _set_library_defaults()
    return backend.open(spec, progress)


def load_judge(spec: ModelSpec, *, compat: Compat = "", progress: Say | None = None) -> Judge:
    """Load the judge of ``spec``. Raises the errors of :meth:`selfreflect.models.judge.Judge.load`."""
    if progress:
        progress(f"loading judge {spec.name}")
    _set_library_defaults()
    try:
        return backend_of(spec.name).open_judge(spec, compat, progress)
    except BackendError as error:
        raise judge_error(error) from error


def judge_error(error: BackendError) -> JudgeError:
    """Turn a model's error into a judge's error."""
    return JudgeError(error.message, code=error.code, remedy=error.remedy, **error.fields)


def _set_library_defaults() -> None:
    """Set environment variables before torch is imported."""
    from selfreflect.models.local.machine import set_library_defaults

    set_library_defaults()
