"""Plain torch implementation of the embedded model and its tokenizer.

transformers' classes for both need seconds of imports, more than a small file takes to score. The
modules have the names and do the operations of its Llama classes, so both give the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jinja2 import Template
from jinja2.sandbox import ImmutableSandboxedEnvironment
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn

from selfreflect.models.local.layers import run_layers


class ModelConfig(SimpleNamespace):
    """Model settings from ``config.json``."""

    def get_text_config(self) -> ModelConfig:
        return self

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


class Output(NamedTuple):
    """Output of a pass: (rows, tokens, hidden), or (rows, tokens, vocabulary) with the head."""

    last_hidden_state: torch.Tensor
    logits: torch.Tensor | None = None


class RMSNorm(nn.Module):
    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.variance_epsilon = epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + self.variance_epsilon))


class RotaryEmbedding(nn.Module):
    """Cosines and sines of each position, (rows, tokens, D)."""

    inv_freq: torch.Tensor
    rope_type = "default"

    def __init__(self, size: int, base: float) -> None:
        super().__init__()
        # on the CPU also where the model is built on "meta": no file holds these numbers
        exponents = torch.arange(0, size, 2, dtype=torch.float, device="cpu") / size
        self.register_buffer("inv_freq", 1.0 / (base**exponents), persistent=False)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angles = positions[..., None].float() * self.inv_freq
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()


class Attention(nn.Module):
    """The projections of an attention layer, without the attention itself."""

    def __init__(self, config: ModelConfig, index: int) -> None:
        super().__init__()
        self.layer_idx = index
        self.head_dim = config.head_dim
        self.scaling = self.head_dim**-0.5
        queries = config.num_attention_heads * self.head_dim
        keys = config.num_key_value_heads * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, queries, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)


class MLP(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        projected: torch.Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return projected


class DecoderLayer(nn.Module):
    def __init__(self, config: ModelConfig, index: int) -> None:
        super().__init__()
        self.self_attn = Attention(config, index)
        self.mlp = MLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class LlamaModel(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        # drawing first weights for it would import a second's worth of torch's compiler
        empty = torch.empty(config.vocab_size, config.hidden_size)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, _weight=empty)
        self.layers = nn.ModuleList(DecoderLayer(config, index) for index in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary_emb = RotaryEmbedding(config.head_dim, config.rope_parameters["rope_theta"])

    def forward(self, input_ids: torch.Tensor, use_cache: bool = False) -> Output:
        """Compute the states of whole texts without padding."""
        positions = torch.arange(input_ids.shape[1])[None]
        return Output(run_layers(self, input_ids, positions).hidden)


class LlamaForCausalLM(nn.Module):
    """The embedded language model, with tied embeddings."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = LlamaModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, input_ids: torch.Tensor, use_cache: bool = False) -> Output:
        hidden = self.model(input_ids).last_hidden_state
        return Output(hidden, self.lm_head(hidden))

    def get_decoder(self) -> LlamaModel:
        return self.model

    def shallow(self) -> LlamaForCausalLM:
        """Make a model of the first layer with shared weights."""
        config = ModelConfig(**{**vars(self.config), "num_hidden_layers": 1})
        # on "meta" the layers take no memory: their tensors come from the whole model
        with torch.device("meta"):
            model = LlamaForCausalLM(config)
        model.load_state_dict(self.state_dict(), strict=False, assign=True)
        model.lm_head.weight = model.model.embed_tokens.weight
        return model.eval()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.model.embed_tokens

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head


def read_plain_model(folder: Path) -> LlamaForCausalLM:
    """Read the embedded model in float32. The weights are mapped from their file, not copied."""
    config = ModelConfig(**json.loads((folder / "config.json").read_text("utf-8")))
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights, assign=True)
    # tied embeddings are one tensor
    model.lm_head.weight = model.model.embed_tokens.weight
    return model


class Encoded(NamedTuple):
    """Token ids of one or several texts."""

    input_ids: Any


class PlainTokenizer:
    """Replacement for transformers' tokenizer class, limited to this package's needs.

    Args:
        folder: holds ``tokenizer.json``, ``tokenizer_config.json`` and ``chat_template.jinja``.
    """

    split_special_tokens = False

    def __init__(self, folder: Path) -> None:
        self.name_or_path = str(folder)
        self.backend_tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.chat_template = (folder / "chat_template.jinja").read_text("utf-8")
        config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
        self.model_max_length = config["model_max_length"]
        self.bos_token_id = self.backend_tokenizer.token_to_id(config["bos_token"])
        self.eos_token_id = self.backend_tokenizer.token_to_id(config["eos_token"])
        self.pad_token_id = self.backend_tokenizer.token_to_id(config["pad_token"])

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size())

    def __call__(
        self, texts: str | Sequence[str], add_special_tokens: bool = True, verbose: bool = True
    ) -> Encoded:
        """Tokenise one or several texts. ``verbose`` changes nothing: no text is too long here."""
        if isinstance(texts, str):
            return Encoded(self.backend_tokenizer.encode(texts, add_special_tokens=add_special_tokens).ids)
        encoded = self.backend_tokenizer.encode_batch(list(texts), add_special_tokens=add_special_tokens)
        return Encoded([encoding.ids for encoding in encoded])

    @property
    def added_tokens_decoder(self) -> dict[int, Any]:
        """Added tokens by id."""
        tokens: dict[int, Any] = self.backend_tokenizer.get_added_tokens_decoder()
        return tokens

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = False) -> str:
        text: str = self.backend_tokenizer.decode(list(tokens), skip_special_tokens=skip_special_tokens)
        return text

    @cached_property
    def _template(self) -> Template:
        return ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(
            self.chat_template
        )

    def apply_chat_template(
        self, conversations: Sequence[Sequence[dict[str, str]]], add_generation_prompt: bool, **options: Any
    ) -> list[str]:
        """Render conversations. Other options of transformers have no effect."""
        return [
            self._template.render(messages=turns, add_generation_prompt=add_generation_prompt)
            for turns in conversations
        ]
