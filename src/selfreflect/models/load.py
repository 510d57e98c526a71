"""Load the generator or judge that a :class:`~selfreflect.models.spec.ModelSpec` names."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from selfreflect.errors import ConfigError, excerpt
from selfreflect.models.local.threads import set_library_defaults
from selfreflect.models.spec import GENERATORS, JUDGES, LOCAL_NAMES, Compat, ModelSpec

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge
    from selfreflect.models.local.generator import HFGenerator
    from selfreflect.models.openai.generator import OpenAIGenerator
    from selfreflect.models.vllm.engine import VLLMGenerator


def load_generator(
    spec: ModelSpec, progress: Callable[[str], None] | None = None
) -> HFGenerator | OpenAIGenerator | VLLMGenerator:
    """The generator that ``spec`` names. ``progress`` gets a line at each step that takes a while.

    Raises:
        ConfigError: no generator has a name of this kind.
        BackendError: the model cannot be loaded.
        MissingExtraError: its optional package is not installed.
    """
    if spec.kind not in GENERATORS:
        kinds = ", ".join(f"{kind}:NAME" for kind in GENERATORS if kind != "local")
        raise ConfigError(
            f"{excerpt(spec.name)} names a judge and cannot generate text. Give {kinds}, {LOCAL_NAMES}."
        )
    if progress and spec.kind != "openai":  # where nothing is loaded
        progress(f"loading {spec.name}")
    generator: HFGenerator | OpenAIGenerator | VLLMGenerator
    generator = _class(GENERATORS[spec.kind]).load(spec, progress)
    return generator


def load_judge(
    spec: ModelSpec, *, compat: Compat = "", progress: Callable[[str], None] | None = None
) -> Judge:
    """The judge that ``spec`` names; see :meth:`selfreflect.models.judge.Judge.load`.

    Raises:
        JudgeError: the model cannot be loaded or cannot be a judge.
        MissingExtraError: its optional package is not installed.
    """
    if progress:
        progress(f"loading judge {spec.name}")
    # Judge.load explains why a model of a kind without judges cannot be one
    path = JUDGES.get(spec.kind, JUDGES["local"])
    judge: Judge = _class(path).load(spec, compat=compat, progress=progress)
    return judge


def _class(path: str) -> Any:
    set_library_defaults()  # before torch is imported
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
