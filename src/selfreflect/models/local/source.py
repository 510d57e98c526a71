"""Find a model's files: directory or hub name, device, precision, and the commit of a hub model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import torch

from selfreflect.errors import BackendError, excerpt, nearest
from selfreflect.models.smollm2 import REVISION, model_directory
from selfreflect.models.spec import LOCAL_NAMES, Device, DType, ModelSpec

EMBEDDED = "smollm2"
"""The alias of the embedded model."""


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

    @property
    def facts(self) -> dict[str, str]:
        """What a manifest says of the model."""
        return {"name": self.name, "revision": self.revision, "dtype": self.dtype_name, "device": self.device}

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


def _hub_answers() -> bool:
    """Whether the hub can be reached. If not, transformers would try for half a minute with each file."""
    from huggingface_hub import constants, get_session
    from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled

    try:
        get_session().head(constants.ENDPOINT, timeout=10)
    except (HTTPError, OfflineModeIsEnabled):
        return False
    return True


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
        if not (path / "config.json").is_file():
            raise BackendError(f"{excerpt(name, 200)} has no config.json, so it is not a model directory")
        if not any(path.glob("*.safetensors")):
            raise BackendError(
                f"{excerpt(name, 200)} holds no safetensors weights. Pickled weights (*.bin, *.pt) are not "
                "loaded because they can run code; convert them once with "
                "`AutoModelForCausalLM.from_pretrained(...).save_pretrained(...)` where you trust them."
            )
        return str(path)
    if exists or name.startswith((".", "/", "~")):
        raise BackendError(
            f"{excerpt(name, 200)} is not a directory with a model (config.json, tokenizer and *.safetensors)"
        )
    if ":" in name:  # which no hub name holds
        raise not_local(name)
    return name


def not_local(name: str) -> BackendError:
    return BackendError(
        f"{excerpt(name, 200)} is no local model. Known names: {LOCAL_NAMES}. Other backends begin with "
        "openai: or vllm:, and for judges with vllm: or vllm+http:."
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
    if device == "auto":
        return "cuda" if cuda else "mps" if mps else "cpu"
    if device == "cuda" and not cuda:
        raise BackendError(
            "device 'cuda': this torch sees no CUDA GPU. Use --device cpu, or install a CUDA build of torch."
        )
    if device == "mps" and not mps:
        raise BackendError("device 'mps': not available here. Use --device cpu.")
    return device


def pick_dtype(dtype: DType, device: str) -> torch.dtype:
    """float32 wherever it is affordable; bfloat16 weights on CUDA, with float32 softmax and accumulation."""
    if dtype not in get_args(DType):
        raise BackendError(f"unknown dtype {excerpt(dtype)}; there are {', '.join(get_args(DType))}")
    if dtype == "auto":
        return torch.bfloat16 if device == "cuda" else torch.float32
    chosen: torch.dtype = getattr(torch, dtype)
    return chosen
