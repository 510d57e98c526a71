"""A judge's decoder, run over one pass of tree nodes: by a forward pass of our own where the architecture is
known, else by its own.

Both give the final normed states of the wanted rows, (W, hidden).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from selfreflect.metric.engine.attention import Extras, TreeAttention
from selfreflect.metric.engine.packing import PackedBatch
from selfreflect.models.linear import add_linear, linear
from selfreflect.models.local.device_map import input_device

OWN = frozenset(("LlamaModel", "MistralModel", "Qwen2Model", "Qwen3Model"))
"""Decoders that :class:`FusedDecoder` knows."""

_PARTS = {
    "layer": {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"},
    "attention": {"q_proj", "k_proj", "v_proj", "o_proj"},
    "normed attention": {"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"},
    "mlp": {"gate_proj", "up_proj", "down_proj", "act_fn"},
}


class Decoder(Protocol):
    def run(self, packed: PackedBatch, attention: TreeAttention) -> torch.Tensor: ...


class FusedDecoder:
    """The forward pass of the Llama family (Llama, Mistral, Qwen2, Qwen3) over packed rows, without a batch
    dimension.

    It works in place and leaves out of the last layer all that is not wanted: there, other rows are only keys
    and values. Layers may lie on several devices: rows move on where the next layer is elsewhere, and its
    keys and values stay with it.
    """

    def __init__(self, decoder: Any) -> None:
        self.decoder = decoder
        self.device = input_device(decoder)
        self.places = [layer.input_layernorm.weight.device for layer in decoder.layers]

    @staticmethod
    def serves(decoder: Any) -> bool:
        """Whether the decoder is one of these and nothing has been changed in it: no adapters, quantised or
        absent weights, windows."""
        kind = type(decoder)
        if kind.__name__ not in OWN or not kind.__module__.startswith("transformers.models."):
            return False
        hooks = [module._hf_hook for module in decoder.modules() if hasattr(module, "_hf_hook")]
        return (
            all(map(_only_moves, hooks))
            and not windowed(decoder.config)
            and all(map(_is_plain, decoder.layers))
        )

    def run(self, packed: PackedBatch, attention: TreeAttention) -> torch.Tensor:
        decoder = self.decoder
        x = decoder.embed_tokens(torch.from_numpy(packed.tokens).to(self.device))
        positions = torch.from_numpy(packed.positions).to(self.device)
        cos, sin = (part[0].unsqueeze(1) for part in decoder.rotary_emb(x[None], positions[None]))
        sin = sin[..., : sin.shape[-1] // 2]
        for layer, place in zip(decoder.layers, self.places, strict=True):
            if x.device != place or cos.device != place:
                x, cos, sin = x.to(place), cos.to(place), sin.to(place)
            wanted = torch.from_numpy(packed.wanted).to(place) if layer is decoder.layers[-1] else None
            x = self._layer(layer, x, (cos, sin), attention, wanted)
        return _norm(decoder.norm, x.to(decoder.norm.weight.device))

    def _layer(
        self,
        layer: Any,
        x: torch.Tensor,
        turns: tuple[torch.Tensor, torch.Tensor],
        attention: TreeAttention,
        wanted: torch.Tensor | None,
    ) -> torch.Tensor:
        """One layer; where ``wanted`` is given, only for these rows."""
        part = layer.self_attn
        h = _norm(layer.input_layernorm, x)
        key = self._heads(part.k_proj, h, getattr(part, "k_norm", None), turns)
        value = _split(_linear(part.v_proj, h), part.head_dim)
        if wanted is not None:
            h, x, turns = h[wanted], x[wanted], (turns[0][wanted], turns[1][wanted])
        query = self._heads(part.q_proj, h, getattr(part, "q_norm", None), turns)
        seen = attention.attend(
            part.layer_idx, query, key, value, part.scaling, _PLAIN, last=wanted is not None
        )
        _add_linear(x, part.o_proj, seen.flatten(1))
        mlp = layer.mlp
        h = _norm(layer.post_attention_layernorm, x)
        silu = type(mlp.act_fn).__name__ in _SILU
        gate = _linear(mlp.gate_proj, h, silu=silu)
        if not silu:
            gate = mlp.act_fn(gate)
        _add_linear(x, mlp.down_proj, gate.mul_(_linear(mlp.up_proj, h)))
        return x

    def _heads(
        self, projection: Any, h: torch.Tensor, norm: Any, turns: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """(rows, heads, D) with rotary embedding: each half turned with the other.

        Args:
            turns: cosines, (rows, 1, D), and sines, (rows, 1, D / 2), of the angles.
        """
        x = _split(_linear(projection, h), turns[0].shape[-1])
        if norm is not None:
            x = _norm(norm, x)
        cos, sin = turns
        left, right = x.chunk(2, dim=-1)
        turned = x * cos
        out_left, out_right = turned.chunk(2, dim=-1)
        out_left.addcmul_(right, sin, value=-1)
        out_right.addcmul_(left, sin)
        return turned


def windowed(config: Any) -> bool:
    """Whether some layers see only the neighbourhood of a token. Some config.json name a window that the
    model never reads."""
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return any(kind != "full_attention" for kind in kinds)
    return hasattr(type(config), "sliding_window") and bool(config.sliding_window)


_PLAIN = Extras()
_SILU = frozenset(("SiLU", "SiLUActivation"))


def _only_moves(hook: Any) -> bool:
    """Whether a hook is one of accelerate's that does nothing but bring inputs to the module, whose weights
    stay where they are."""
    from accelerate.hooks import AlignDevicesHook

    return type(hook) is AlignDevicesHook and not hook.offload


def _is_plain(layer: Any) -> bool:
    attention, mlp = layer.self_attn, layer.mlp
    names = {name for name, _ in attention.named_children()}
    linears = [
        module
        for part in (attention, mlp)
        for name, module in part.named_children()
        if name.endswith("_proj")
    ]
    return (
        {name for name, _ in layer.named_children()} == _PARTS["layer"]
        and names in (_PARTS["attention"], _PARTS["normed attention"])
        and {name for name, _ in mlp.named_children()} == _PARTS["mlp"]
        and all(type(linear) is torch.nn.Linear for linear in linears)
    )


def _norm(module: Any, x: torch.Tensor) -> torch.Tensor:
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return F.rms_norm(x, x.shape[-1:], module.weight, module.variance_epsilon)
    # A CPU has no kernel of its own for it, and torch writes the squares out.
    scale = (
        torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        .square_()
        .div_(x.shape[-1])
        .add_(module.variance_epsilon)
        .rsqrt_()
    )
    normed: torch.Tensor = (x * scale).mul_(module.weight)
    return normed


def _split(x: torch.Tensor, size: int) -> torch.Tensor:
    """Rows of heads, also where a pass wants none: (rows, heads, size)."""
    return x.view(len(x), x.shape[1] // size, size)


def _linear(module: torch.nn.Linear, h: torch.Tensor, *, silu: bool = False) -> torch.Tensor:
    return linear(h, module.weight, module.bias, silu=silu)


def _add_linear(x: torch.Tensor, module: torch.nn.Linear, h: torch.Tensor) -> None:
    add_linear(x, h, module.weight, module.bias)


class HFDecoder:
    """Any decoder whose layers call transformers' attention interface: ours takes its place for the length of
    a pass."""

    def __init__(self, decoder: Any) -> None:
        self.decoder = decoder
        self.device = input_device(decoder)

    def run(self, packed: PackedBatch, attention: TreeAttention) -> torch.Tensor:
        # a 4-D mask is passed on as it is, which spares building a causal one
        unused = torch.empty(1, 1, 1, 1, device=self.device)
        with _our_attention(self.decoder):
            output = self.decoder(
                input_ids=torch.from_numpy(packed.tokens).to(self.device)[None],
                position_ids=torch.from_numpy(packed.positions).to(self.device)[None],
                attention_mask=unused,
                use_cache=False,
                tree=attention,
            )
        hidden: torch.Tensor = output.last_hidden_state[0]
        return hidden[torch.from_numpy(packed.wanted).to(hidden.device)]


def tree_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    tree: TreeAttention | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The signature that transformers expects of an attention function; takes (1, heads, T, D), returns (1,
    T, H, D).

    Raises:
        TypeError: the layer wants something that would change the result and is not known here.
    """
    if tree is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)  # type: ignore[no-any-return]
    # Layers add biases to the mask that they were given, or pass tensors of their own: position biases,
    # indices of sparse attention.
    unknown = sorted(
        name for name, value in kwargs.items() if isinstance(value, torch.Tensor) and name != "position_ids"
    )
    if unknown or (attention_mask is not None and attention_mask.numel() > 1):
        raise TypeError(f"tree attention does not know what to do with {', '.join(unknown) or 'the mask'}")
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    return tree.attend(
        module.layer_idx, q, k, v, scale, Extras(window=sliding_window, softcap=softcap, sinks=s_aux)
    )[None], None


_NAME = "selfreflect_tree"


@contextmanager
def _our_attention(decoder: Any) -> Iterator[None]:
    """Let the decoder's layers call tree attention for a while; generation on the same model keeps its
    own."""
    AttentionInterface.register(_NAME, tree_attention)
    configs = {id(module.config): module.config for module in decoder.modules() if hasattr(module, "config")}
    before = {key: config._attn_implementation for key, config in configs.items()}
    try:
        for config in configs.values():
            config._attn_implementation = _NAME
        yield
    finally:
        for key, config in configs.items():
            config._attn_implementation = before[key]
