"""Loading of causal language models: safetensors only, no remote code unless requested."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from selfreflect.errors import BackendError, MissingExtraError, excerpt, nearest
from selfreflect.models.backend import backend_of, bare_name, on_server, prefixes
from selfreflect.models.base import DEVICES, LOCAL_NAMES, Device, DType, ModelSpec
from selfreflect.models.local.machine import hub_answers, limit_threads, set_library_defaults
from selfreflect.models.smollm2 import REVISION, model_directory

if TYPE_CHECKING:
    from selfreflect.models.local.pretrained import PeftAdapter

EMBEDDED = "smollm2"
"""Alias of the embedded model."""

_WEIGHTS = "model.safetensors"
_INDEX = f"{_WEIGHTS}.index.json"


@dataclass(frozen=True)
class ModelSource:
    """The location of a model, with its loading options."""

    name: str
    path: str
    """Directory or hub name of the model; for an adapter, of its base model."""
    device: str
    dtype: torch.dtype
    requested_revision: str | None
    trust_remote_code: bool
    adapter: PeftAdapter | None = None
    """Adapter to merge into the weights in ``path``."""

    @cached_property
    def options(self) -> dict[str, Any]:
        """Options of ``from_pretrained``, with the current commit of a hub revision (default: main)."""
        options: dict[str, Any] = {"trust_remote_code": self.trust_remote_code}
        # a directory has no revision
        if Path(self.path).is_dir():
            return options
        from transformers.utils import cached_file

        offline = not hub_answers()
        config = cached_file(
            self.path, "config.json", revision=self.requested_revision, local_files_only=offline
        )
        return {**options, "revision": Path(str(config)).parent.name, "local_files_only": offline}

    @property
    def weight_options(self) -> dict[str, Any]:
        """Options for loading weights. The adapter of an offline model is looked up offline, too."""
        adapter_options = {"local_files_only": self.options.get("local_files_only", False)}
        return {
            **self.options,
            "use_safetensors": True,
            "output_loading_info": True,
            "adapter_kwargs": adapter_options,
        }

    @property
    def revision(self) -> str:
        """Commit of a hub model, version of the embedded model, or else the requested revision. With an
        adapter, it includes the base model's."""
        base = self.adapter.base if self.adapter else self.name
        revision: str = self.options.get("revision") or self.requested_revision or ""
        if base == EMBEDDED:
            revision = REVISION
        if self.adapter is None:
            return revision
        return f"adapter {self.adapter.digest} of {' '.join([base, revision]).strip()}"

    @property
    def is_plain(self) -> bool:
        """Whether this package has its own implementation of the model."""
        is_embedded = self.name == EMBEDDED and self.adapter is None
        return is_embedded and self.device == "cpu" and self.dtype == torch.float32

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    @property
    def facts(self) -> dict[str, str]:
        """Facts about the model for a manifest."""
        return {"name": self.name, "revision": self.revision, "dtype": self.dtype_name, "device": self.device}

    def tokenizer(self) -> Any:
        import transformers

        return transformers.AutoTokenizer.from_pretrained(self.path, **self.options)

    def architecture(self) -> Any:
        """Find the model's transformers class, which differs for multimodal models."""
        import transformers
        from transformers.models.auto.modeling_auto import (
            MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
            MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        )

        config = transformers.AutoConfig.from_pretrained(self.path, **self.options)
        self.check_weight_files(config)
        # "name/kernel" is code of the hub, which transformers would download and run
        attention = config._attn_implementation or ""
        if "/" in attention and not self.trust_remote_code:
            raise BackendError(
                f"{excerpt(self.name, 200)} would run the attention kernel {excerpt(attention)} from the hub",
                code="foreign_code",
                remedy="Set {execution.trust_remote_code} if you trust it, or remove it from the model's "
                "config.json.",
            )
        # models of texts and images are in both tables, and the text class suffices
        causal = config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        multimodal = config.model_type in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
        if multimodal and not causal and not config.is_encoder_decoder:
            return transformers.AutoModelForImageTextToText
        return transformers.AutoModelForCausalLM

    def check_weight_files(self, config: Any) -> None:
        """Refuse a model whose weights are not safetensors files in its folder.

        Transformers opens what they name, pickles and files elsewhere too.
        """
        # a configuration may name any file, also a pickle
        weights_name = str(getattr(config, "transformers_weights", None) or _WEIGHTS)
        index = weights_name if weights_name.endswith(".json") else _INDEX
        folder = Path(self.path)
        if folder.is_dir():
            index_path = folder / index if (folder / index).is_file() else None
        else:
            from transformers.utils import cached_file

            options = {name: self.options[name] for name in ("revision", "local_files_only")}
            missing_is_fine = {"_raise_exceptions_for_missing_entries": False}
            index_path = cached_file(self.path, index, **options, **missing_is_fine)
        names = [weights_name.removesuffix(".index.json")]
        if index_path is not None:
            content = json.loads(Path(index_path).read_bytes())
            weights = content.get("weight_map") if isinstance(content, dict) else None
            if not isinstance(weights, dict):
                raise BackendError(
                    f"{index_path} is damaged: it lists no weights. Copy the model again.", code="damaged"
                )
            names += weights.values()
        for name in names:
            path = PurePath(str(name))
            if path.suffix != ".safetensors" or path.is_absolute() or ".." in path.parts:
                raise BackendError(
                    f"{excerpt(self.name, 200)} names {excerpt(name)} as weights. Only safetensors files in "
                    "its own folder are loaded: pickled weights can run code. Save the model again with "
                    "save_pretrained.",
                    code="foreign_weights",
                )

    @contextmanager
    def explain_errors(self) -> Iterator[None]:
        """Turn loading errors into a BackendError with a remedy."""
        try:
            yield
        # these say already what to do
        except (BackendError, MissingExtraError):
            raise
        except Exception as error:  # transformers and the libraries below it raise nearly every kind
            path = self.adapter.path if self.adapter else self.path
            raise _explanation(self.name, path, error) from error


def locate(spec: ModelSpec, progress: Callable[[str], None] | None, *, adapters: bool = False) -> ModelSource:
    """Locate a model, fetching and converting the embedded model if necessary.

    Args:
        adapters: whether the caller merges an adapter, too.

    Raises:
        BackendError: an unknown device, precision or directory, an adapter where none is taken, or one whose
            base is not here.
    """
    device = pick_device(spec.device)
    dtype = pick_dtype(spec.dtype, device)
    name = bare_name(spec.name)
    adapter = _adapter(name)
    if adapter is None:
        path = _resolve(name, progress)
        return ModelSource(name, path, device, dtype, spec.revision, spec.trust_remote_code)
    if not adapters:
        raise BackendError(
            f"{excerpt(name, 200)} is an adapter; only local models can use one. Merge it into its base "
            "first with peft: PeftModel.from_pretrained(base, "
            "adapter).merge_and_unload().save_pretrained(...).",
            code="adapter",
        )
    try:
        path = _resolve(adapter.base, progress)
    except BackendError as error:
        raise BackendError(
            f"{excerpt(name, 200)} is an adapter of {excerpt(adapter.base, 200)}, which cannot be loaded: "
            f"{error.message}",
            code=error.code,
            remedy="Copy that model there, or correct base_model_name_or_path in adapter_config.json.",
        ) from error
    # an adapter fits one revision of its base
    revision = spec.revision or adapter.base_revision
    return ModelSource(name, path, device, dtype, revision, spec.trust_remote_code, adapter)


def _adapter(name: str) -> PeftAdapter | None:
    """Find the adapter in a directory of this name; None if there is none."""
    try:
        folder = Path(name).expanduser()
        if name == EMBEDDED or not folder.is_dir():
            return None
    except (RuntimeError, OSError):  # which _resolve explains
        return None
    from selfreflect.models.local.pretrained import find_adapter

    return find_adapter(folder)


@dataclass(frozen=True)
class CausalLM:
    """A model in evaluation mode with its tokenizer and identifying facts."""

    model: Any
    tokenizer: Any
    name: str
    revision: str
    device: str
    dtype: str
    window: int | None
    """Maximum number of positions that the model supports; None if unknown."""
    vocabulary: int | None = None
    """Number of token ids with embeddings; None if unknown."""

    @property
    def facts(self) -> dict[str, str]:
        """Facts about the model for a manifest."""
        return {"name": self.name, "revision": self.revision, "dtype": self.dtype, "device": self.device}

    @classmethod
    def of(cls, model: Any, tokenizer: Any, source: ModelSource) -> CausalLM:
        # A tokenizer may have ids beyond the embeddings: some have a few that no text needs.
        embeddings = getattr(model, "get_input_embeddings", lambda: None)()
        vocabulary = getattr(embeddings, "num_embeddings", None)
        return cls(model, tokenizer, **source.facts, window=_window(model, tokenizer), vocabulary=vocabulary)


def load_causal_lm(
    spec: ModelSpec, progress: Callable[[str], None] | None = None, *, library: bool = False
) -> CausalLM:
    """Load a local model. The last two models are cached, so that generator and judge can share one.

    Args:
        library: whether the embedded model, too, must be of transformers' classes, with all their methods.

    Raises:
        BackendError: no such model, no safetensors weights, weights that this installation cannot load, or no
            GPUs that they fit into.
    """
    set_library_defaults()
    if not backend_of(spec.name).is_torch:
        raise not_local(spec.name)
    source = locate(spec, progress, adapters=True)
    # Whoever gets a model from the cache has been told of it when it was loaded.
    hits = _load.cache_info().hits
    plain = source.is_plain and spec.device_map is None and not library
    lm = _load(source, _last_change(source.path), spec.device_map, plain)
    if _load.cache_info().hits > hits:
        return lm
    parts = getattr(lm.model, "hf_device_map", {})
    if progress and parts:
        devices = sorted(set(map(str, parts.values())))
        progress(f"the model is spread over the devices {', '.join(devices)}")
    if source.device == "cpu":
        threads = limit_threads()
        if progress:
            progress(f"computing with {threads} {'thread' if threads == 1 else 'threads'}")
    return lm


@lru_cache(maxsize=2)
def _load(source: ModelSource, last_change: int, device_map: Literal["auto"] | None, plain: bool) -> CausalLM:
    """Load a model, with caching.

    ``last_change`` makes a directory that was written again another key; ``plain``: no transformers.
    """
    if plain:
        from selfreflect.models.local.plain import PlainTokenizer, read_plain_model

        folder = Path(source.path)
        # another version of transformers may have written these files in another layout, which it reads
        with source.explain_errors(), suppress(AttributeError, KeyError, OSError, TypeError):
            return CausalLM.of(read_plain_model(folder).eval(), PlainTokenizer(folder), source)
    from selfreflect.models.local import pretrained

    if device_map is not None:
        # An earlier model that only this cache holds may fill the GPUs whose free memory is counted next.
        _load.cache_clear()
        gc.collect()
        torch.cuda.empty_cache()
    parts = pretrained.placement(device_map, source.device)
    model, tokenizer = pretrained.read_model(source, parts)
    if not parts:
        model = model.to(source.device)
    return CausalLM.of(model.eval(), tokenizer, source)


def _last_change(source: str) -> int:
    """Find when a model directory last changed, in nanoseconds; 0 for a hub name."""
    changes = [path.stat().st_mtime_ns for path in Path(source).glob("*") if path.is_file()]
    return max(changes, default=0)


def _window(model: Any, tokenizer: Any) -> int | None:
    """Return the smaller context limit of the (text) config and the tokenizer."""
    of_model = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    of_tokenizer = getattr(tokenizer, "model_max_length", None)
    limits = []
    for limit in (of_model, of_tokenizer):
        if limit is not None and 0 < limit < 10**9:
            limits.append(int(limit))
    return min(limits, default=None)


def _resolve(name: str, progress: Callable[[str], None] | None) -> str:
    """Resolve a model's name to a directory or hub name."""
    # the alias comes first, even if there is a folder of this name
    if name == EMBEDDED:
        return str(model_directory(progress))
    try:
        path = Path(name).expanduser()
        exists = path.exists()
    except (RuntimeError, OSError) as error:  # "~nobody", or more letters than a path can have
        raise BackendError(
            f"{excerpt(name, 200)} is neither a directory nor the name of a model", code="no_model"
        ) from error
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise BackendError(
                f"{excerpt(name, 200)} has no config.json, so it is not a model directory", code="no_model"
            )
        if not any(path.glob("*.safetensors")):
            raise BackendError(
                f"{excerpt(name, 200)} holds no safetensors weights. Pickled weights (*.bin, *.pt) are not "
                "loaded because they can run code; convert them once with "
                "`AutoModelForCausalLM.from_pretrained(...).save_pretrained(...)` where you trust them.",
                code="pickled",
            )
        return str(path)
    # written like a path, so no hub is asked
    if exists or name.startswith((".", "/", "~")):
        raise BackendError(
            f"{excerpt(name, 200)} is not a directory with a model (config.json, tokenizer and "
            f"*.safetensors)",
            code="no_model",
        )
    # no hub name holds a colon
    if ":" in name:
        raise not_local(name)
    return name


def not_local(name: str) -> BackendError:
    begin, judge = (
        " or ".join(f"{prefix}:" for prefix in names)
        for names in (prefixes(can_generate=True), prefixes(can_judge=True))
    )
    return BackendError(
        f"{excerpt(name, 200)} is not a local model. Known names: {LOCAL_NAMES}. Names of other backends "
        f"begin with {begin}, those of judges with {judge}.",
        code="no_model",
    )


# Arguments of transformers that its errors name, with code, message and remedy of ours.
_LIBRARY_ERRORS = {
    "trust_remote_code": (
        "foreign_code",
        "{name} comes with its own code, which is not run",
        "Set {execution.trust_remote_code} if you trust it.",
    ),
    "offload_folder": (
        "gpus",
        "model {name} does not fit into the visible GPUs, and its weights cannot be offloaded to disk",
        "Use more or larger GPUs, or a shorter dtype.",
    ),
}


def _explanation(name: str, path: str, error: Exception) -> BackendError:
    """Explain a loading error of transformers or its dependencies to the user."""
    reason = " ".join(str(error).split())
    for argument, (code, message, remedy) in _LIBRARY_ERRORS.items():
        if argument in reason:
            return BackendError(
                message.replace("{name}", excerpt(name)), code=code, remedy=remedy, model=name
            )
    if Path(path).is_dir():
        return BackendError(
            f"could not load the model in {excerpt(path, 200)}: {reason[:300]}", code="not_loaded", model=name
        )
    # transformers would go on about its own settings
    if isinstance(error, OSError) and not hub_answers():
        reason = "it is not on this disk, and the hub cannot be reached."
    suggestion = nearest(name, [EMBEDDED])
    if not suggestion and "/" not in name:
        suggestion = f" If it is a model on a server, name it {excerpt(on_server(name))}."
    return BackendError(
        f"could not load the model {excerpt(name)}: {reason[:300]}",
        code="not_loaded",
        remedy=f"Known names: {LOCAL_NAMES}.{suggestion} Without a network, name the directory of a model, "
        "or a hub name whose files are in the cache (with HF_HUB_OFFLINE=1 no hub is asked).",
        model=name,
    )


def pick_device(device: Device) -> str:
    """Choose the device; ``auto`` is the fastest available. Raises BackendError if it is not available."""
    kind, _, index = device.partition(":")
    if not DEVICES.fullmatch(device):
        raise BackendError(
            f"unknown device {excerpt(device)}; use auto, cuda, cuda:N, mps or cpu", code="device"
        )
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if device == "auto" and cuda:
        return "cuda"
    if device == "auto":
        return "mps" if mps else "cpu"
    if kind == "cuda" and not cuda:
        raise BackendError(
            f"device {device!r}: this torch sees no CUDA GPU",
            code="device",
            remedy="Set {execution.device} to cpu, or install a CUDA build of torch.",
        )
    if index and int(index) >= torch.cuda.device_count():
        raise BackendError(
            f"device {device!r}: the last GPU that torch sees is cuda:{torch.cuda.device_count() - 1}",
            code="device",
        )
    if device == "mps" and not mps:
        raise BackendError(
            "device 'mps' is not available here", code="device", remedy="Set {execution.device} to cpu."
        )
    return device


def pick_dtype(dtype: DType, device: str) -> torch.dtype:
    """Choose float32 where affordable, and bfloat16 weights on CUDA.

    Softmax and accumulation are in float32 everywhere.
    """
    if dtype not in get_args(DType):
        raise BackendError(
            f"unknown dtype {excerpt(dtype)}; known are {', '.join(get_args(DType))}", code="dtype"
        )
    if dtype == "auto":
        return torch.bfloat16 if device.startswith("cuda") else torch.float32
    torch_dtype: torch.dtype = getattr(torch, dtype)
    return torch_dtype
