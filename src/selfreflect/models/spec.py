"""What names a model and says how to load it: one record for generators and judges.

A name may begin with the kind of its backend (``openai:gpt-4o``, ``vllm:smollm2``, ``vllm+http:smollm2``),
or name a function that writes texts (``module:function``); others are local torch models.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from selfreflect.errors import ConfigError, excerpt

if TYPE_CHECKING:
    from selfreflect.models.function import FunctionGenerator
    from selfreflect.models.judge import Judge
    from selfreflect.models.local.generator import HFGenerator
    from selfreflect.models.openai.generator import OpenAIGenerator
    from selfreflect.models.vllm.engine import VLLMGenerator

Device: TypeAlias = str
"""``auto``, ``cuda``, ``cuda:1`` for one of several GPUs, ``mps`` or ``cpu``."""
DType = Literal["auto", "float32", "bfloat16", "float16"]
Compat = Literal["", "published"]
DEVICES = re.compile(r"auto|cuda(:[0-9]{1,3})?|mps|cpu")

Kind = Literal["local", "function", "openai", "vllm", "vllm+http"]
PREFIXES: tuple[Kind, ...] = ("openai", "vllm", "vllm+http")
"""Kinds that stand before the name of a model."""
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")

GENERATORS: dict[Kind, str] = {
    "local": "selfreflect.models.local.generator:HFGenerator",
    "function": "selfreflect.models.function:FunctionGenerator",
    "openai": "selfreflect.models.openai.generator:OpenAIGenerator",
    "vllm": "selfreflect.models.vllm.engine:VLLMGenerator",
}
"""The class that loads a generator of each kind: ``module:Class``, imported on use."""

JUDGES: dict[Kind, str] = {
    "local": "selfreflect.models.judge:load_local",
    "vllm": "selfreflect.models.vllm.judge:load_in_process",
    "vllm+http": "selfreflect.models.vllm.judge:load_served",
}
"""The function that loads a judge of each kind. An API or a function that gives texts is missing: a judge
needs full logits."""

LOCAL_NAMES = "smollm2, a local directory, or a hub name such as Qwen/Qwen2.5-7B-Instruct"


@dataclass(frozen=True)
class ModelSpec:
    """A model and how to load it. Each backend reads the fields that concern it."""

    name: str = "smollm2"
    _: KW_ONLY
    revision: str | None = None
    """Branch, tag or commit on the hub."""
    base_url: str | None = None
    """Address of the server, for ``openai`` and ``vllm+http``."""
    device: Device = "auto"
    dtype: DType = "auto"
    device_map: Literal["auto"] | None = None
    """``"auto"`` spreads a local model over all visible GPUs."""
    trust_remote_code: bool = False
    """Run code that the model brings along."""
    batch_size: int | None = None
    """Sequences that a local generator decodes together; None lets it choose."""
    max_connections: int = 16
    """Simultaneous calls to a server."""
    timeout: float = 600.0
    """Seconds for one try of a call to a server."""

    @classmethod
    def of(cls, model: str | ModelSpec, **fields: Any) -> ModelSpec:
        """The spec of a model that is given by name or as a spec, with ``fields`` replaced.

        Raises ConfigError for anything else."""
        if not isinstance(model, ModelSpec | str):
            raise ConfigError(f"a model is given by its name, such as 'smollm2', not by {excerpt(model)}")
        return replace(model if isinstance(model, ModelSpec) else cls(model), **fields)

    @property
    def kind(self) -> Kind:
        return kind_of(self.name)

    @property
    def bare_name(self) -> str:
        """The name without its kind. Raises ConfigError where nothing is left."""
        bare = self.name.removeprefix(f"{self.kind}:").strip() if self.kind in PREFIXES else self.name
        if not bare:
            raise ConfigError(f"{self.kind}:NAME needs the name of a model")
        return bare


def kind_of(name: str) -> Kind:
    """The backend that ``name`` begins with, ``"function"`` for ``module:function``, else ``"local"``."""
    for kind in PREFIXES:
        if name.startswith(f"{kind}:"):
            return kind
    return "function" if _FUNCTION.fullmatch(name) else "local"


def load_generator(
    spec: ModelSpec, progress: Callable[[str], None] | None = None
) -> HFGenerator | FunctionGenerator | OpenAIGenerator | VLLMGenerator:
    """Load the generator that ``spec`` names. ``progress`` gets a line at each step that takes a while.

    Raises:
        ConfigError: no generator has a name of this kind.
        BackendError: the model cannot be loaded.
        MissingExtraError: its optional package is not installed.
    """
    if spec.kind not in GENERATORS:
        kinds = ", ".join(f"{kind}:NAME" for kind in PREFIXES if kind in GENERATORS)
        raise ConfigError(
            f"{excerpt(spec.name)} names a judge and cannot generate text. Give {kinds}, {LOCAL_NAMES}."
        )
    if progress and spec.kind not in ("openai", "function"):  # where nothing is loaded
        progress(f"loading {spec.name}")
    generator_class = load_object(GENERATORS[spec.kind])
    return generator_class.load(spec, progress)  # type: ignore[no-any-return]


def load_judge(
    spec: ModelSpec, *, compat: Compat = "", progress: Callable[[str], None] | None = None
) -> Judge:
    """Load the judge that ``spec`` names. Raises as :meth:`selfreflect.models.judge.Judge.load`."""
    if progress:
        progress(f"loading judge {spec.name}")
    judge: Judge = load_object("selfreflect.models.judge:Judge").load(spec, compat=compat, progress=progress)
    return judge


def load_object(path: str) -> Any:
    """Import the class or function that ``module:name`` names."""
    from selfreflect.models.local.threads import set_library_defaults

    set_library_defaults()  # before torch is imported
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
