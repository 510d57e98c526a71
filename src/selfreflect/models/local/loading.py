"""Load a causal language model: safetensors only, no remote code unless requested."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import torch

from selfreflect.errors import BackendError, excerpt, nearest
from selfreflect.models.local.device_map import check_placement, describe_placement, placement
from selfreflect.models.local.threads import limit_threads, set_library_defaults
from selfreflect.models.smollm2 import REVISION, model_directory
from selfreflect.models.spec import LOCAL_NAMES, Device, DType, ModelSpec

EMBEDDED = "smollm2"
"""The alias of the embedded model."""


@dataclass(frozen=True)
class CausalLM:
    """A model in evaluation mode with its tokenizer, and the facts a record needs to name it."""

    model: Any
    tokenizer: Any
    name: str
    revision: str
    device: str
    dtype: str
    window: int | None
    """Most positions the model was made for, None where it does not say."""

    @property
    def facts(self) -> dict[str, str]:
        """What a manifest says of the model."""
        return {"name": self.name, "revision": self.revision, "dtype": self.dtype, "device": self.device}


@dataclass(frozen=True)
class ModelSource:
    """Where a model is loaded from, and with which options of ``from_pretrained``."""

    name: str
    path: str
    """Directory or hub name."""
    device: str
    dtype: torch.dtype
    requested_revision: str | None
    trust_remote_code: bool

    @cached_property
    def options(self) -> dict[str, Any]:
        """Options of ``from_pretrained``, with the commit that a hub revision (default: main) means now."""
        options: dict[str, Any] = {"trust_remote_code": self.trust_remote_code}
        if Path(self.path).is_dir():
            return options
        from transformers.utils import cached_file

        offline = not _hub_answers()
        config = cached_file(
            self.path, "config.json", revision=self.requested_revision, local_files_only=offline
        )
        return {**options, "revision": Path(str(config)).parent.name, "local_files_only": offline}

    @property
    def revision(self) -> str:
        """The commit of a hub model, the version of the embedded one, else what was requested."""
        if self.name == EMBEDDED:
            return REVISION
        return self.options.get("revision") or self.requested_revision or ""

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    def tokenizer(self) -> Any:
        import transformers

        return transformers.AutoTokenizer.from_pretrained(self.path, **self.options)

    def architecture(self) -> Any:
        """The transformers class of this model; multimodal ones are mostly listed under another class."""
        import transformers
        from transformers.models.auto.modeling_auto import (
            MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
            MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        )

        config = transformers.AutoConfig.from_pretrained(self.path, **self.options)
        causal = config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        multimodal = config.model_type in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
        if multimodal and not causal and not config.is_encoder_decoder:
            return transformers.AutoModelForImageTextToText
        return transformers.AutoModelForCausalLM

    def lm(self, model: Any, tokenizer: Any, window: int | None) -> CausalLM:
        return CausalLM(
            model=model,
            tokenizer=tokenizer,
            name=self.name,
            revision=self.revision,
            device=self.device,
            dtype=self.dtype_name,
            window=window,
        )

    @contextmanager
    def explain_errors(self) -> Iterator[None]:
        """Turn what loading raises into a BackendError that says what to do."""
        try:
            yield
        except BackendError:
            raise
        except Exception as error:  # transformers and the libraries below it raise nearly every kind
            raise BackendError(_explanation(self.name, self.path, error)) from error


def locate(spec: ModelSpec, progress: Callable[[str], None] | None) -> ModelSource:
    """Where to load a model from; the embedded model is fetched and converted first if necessary.

    Raises:
        BackendError: no such device, precision or directory.
    """
    device = pick_device(spec.device)
    dtype = pick_dtype(spec.dtype, device)
    name = spec.bare_name
    path = _resolve(name, progress)
    return ModelSource(name, path, device, dtype, spec.revision, spec.trust_remote_code)


_cache: dict[Any, CausalLM] = {}
"""The two models that were used last, so that generator and judge share one that both use."""


def load_causal_lm(spec: ModelSpec, progress: Callable[[str], None] | None = None) -> CausalLM:
    """Load a local model. The two that were used last are kept.

    On a CPU, torch gets as many threads as it may use cores, see :mod:`selfreflect.models.local.threads`;
    ``progress`` hears how many.

    Raises:
        BackendError: no such model, no safetensors weights, weights that this installation cannot load, or no
            GPUs that they fit into; says what is known.
    """
    set_library_defaults()
    if spec.kind != "local":
        raise _not_local(spec.name)
    source = locate(spec, progress)
    device_map = spec.device_map
    parts = tuple(sorted(device_map.items())) if isinstance(device_map, Mapping) else device_map
    key = (source, _last_change(source.path), parts)
    if key in _cache:
        _cache[key] = _cache.pop(key)  # the latest is the last
        return _cache[key]
    if device_map is not None:
        # Placement counts the memory that is free, and an earlier model that only this cache still holds may
        # fill the GPUs.
        _cache.clear()
        gc.collect()
        torch.cuda.empty_cache()
    lm = _load(source, spec)
    _cache[key] = lm
    if len(_cache) > 2:
        del _cache[next(iter(_cache))]

    threads = limit_threads() if source.device == "cpu" else None
    if progress and (places := describe_placement(lm.model)):
        progress(places)
    if progress and threads:
        progress(f"computing with {threads}")
    return lm


def _load(source: ModelSource, spec: ModelSpec) -> CausalLM:
    import transformers

    placed = placement(spec.device_map, source.device)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    accumulate_in_float32(source.device)
    with source.explain_errors():
        tokenizer = source.tokenizer()
        model, report = source.architecture().from_pretrained(
            source.path,
            dtype=source.dtype,
            use_safetensors=True,
            output_loading_info=True,
            **source.options,
            **placed,
        )
        # transformers would go on with random numbers in their place
        if missing := sorted(report["missing_keys"]):
            raise ValueError(
                f"its weights lack {len(missing)} tensors of this architecture, such as {missing[0]}"
            )
        check_placement(source.name, model, spec.device_map)
        if not placed:
            model = model.to(source.device)
    return source.lm(model.eval(), tokenizer, window_of(model, tokenizer))


def accumulate_in_float32(device: str) -> None:
    """Torch's default lets cuBLAS add up parts of a sum in half precision."""
    if device == "cuda":
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def _hub_answers() -> bool:
    """Whether the hub can be reached. If not, transformers would try for half a minute with each file."""
    from huggingface_hub import constants, get_session
    from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled

    try:
        get_session().head(constants.ENDPOINT, timeout=10)
    except (HTTPError, OfflineModeIsEnabled):
        return False
    return True


def _last_change(source: str) -> int:
    """When a file of a local model directory was last written, in nanoseconds; 0 for a hub name."""
    return max((path.stat().st_mtime_ns for path in Path(source).glob("*") if path.is_file()), default=0)


def _resolve(name: str, progress: Callable[[str], None] | None) -> str:
    """The directory or hub name to load from."""
    if name == EMBEDDED:
        return str(model_directory(progress))
    try:
        path = Path(name).expanduser()
        exists = path.exists()
    except (RuntimeError, OSError) as error:  # "~nobody", or more letters than a path can have
        raise BackendError(f"{excerpt(name, 200)} is neither a directory nor the name of a model") from error
    if path.is_dir():
        _check_directory(path, name)
        return str(path)
    if exists or name.startswith((".", "/", "~")):
        raise BackendError(
            f"{excerpt(name, 200)} is not a directory with a model (config.json, tokenizer and *.safetensors)"
        )
    if ":" in name:  # which no hub name holds
        raise _not_local(name)
    return name


def _not_local(name: str) -> BackendError:
    return BackendError(
        f"{excerpt(name, 200)} is no local model. Known names: {LOCAL_NAMES}. Other backends begin with "
        "openai: or vllm:, and for judges with vllm: or vllm+http:."
    )


def _check_directory(path: Path, name: str) -> None:
    if not (path / "config.json").is_file():
        raise BackendError(f"{excerpt(name, 200)} has no config.json, so it is not a model directory")
    if not any(path.glob("*.safetensors")):
        raise BackendError(
            f"{excerpt(name, 200)} holds no safetensors weights. Pickled weights (*.bin, *.pt) are not "
            "loaded because they can run code; convert them once with "
            "`AutoModelForCausalLM.from_pretrained(...).save_pretrained(...)` where you trust them."
        )


def _explanation(name: str, path: str, error: Exception) -> str:
    reason = " ".join(str(error).split())
    if "trust_remote_code" in reason:
        return f"{excerpt(name)} brings its own code, which is not run unless you pass --trust-remote-code."
    if "offload_folder" in reason:
        return (
            f"model {excerpt(name)} does not fit into the visible GPUs, and its weights cannot wait on disk."
        )
    if Path(path).is_dir():
        return f"could not load the model in {excerpt(path, 200)}: {reason[:300]}"
    return (
        f"could not load the model {excerpt(name)}: {reason[:300]} Known names: {LOCAL_NAMES}."
        f"{nearest(name, [EMBEDDED])} Without a network, only models that are on this disk can be used."
    )


def pick_device(device: Device) -> str:
    """The device itself, and for ``auto`` the fastest there is.

    Raises:
        BackendError: this machine has no such device.
    """
    if device not in get_args(Device):
        raise BackendError(f"unknown device {excerpt(device)}; there are {', '.join(get_args(Device))}")
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if device == "cuda" and not cuda:
        raise BackendError(
            "device 'cuda': this torch sees no CUDA GPU. Use --device cpu, or install a CUDA build of torch."
        )
    if device == "mps" and not mps:
        raise BackendError("device 'mps': not available here. Use --device cpu.")
    if device != "auto":
        return device
    if cuda:
        return "cuda"
    return "mps" if mps else "cpu"


def pick_dtype(dtype: DType, device: str) -> torch.dtype:
    """float32 wherever it is affordable; bfloat16 weights on CUDA, with float32 softmax and accumulation."""
    if dtype not in get_args(DType):
        raise BackendError(f"unknown dtype {excerpt(dtype)}; there are {', '.join(get_args(DType))}")
    if dtype == "auto":
        return torch.bfloat16 if device == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]


def window_of(model: Any, tokenizer: Any) -> int | None:
    """The smaller of what the (text) config and the tokenizer allow; tokenizers without a limit say 1e30."""
    config = model.config.get_text_config()
    limits = [getattr(config, "max_position_embeddings", None), getattr(tokenizer, "model_max_length", None)]
    return min((int(limit) for limit in limits if limit is not None and 0 < limit < 10**9), default=None)
