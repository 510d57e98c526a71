"""Runs a judge's decoder over one packed batch: our own forward pass, or transformers' layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from selfreflect.metric.engine.attention import Extras, TreeAttention
from selfreflect.metric.engine.tree import PackedBatch
from selfreflect.models.local.layers import add_linear, input_device, linear, on_device, rms_norm

Rotary = tuple[torch.Tensor, torch.Tensor]
"""Cosines, (rows, 1, D), and sines, (rows, 1, D / 2), of each row's angles."""


class Decoder(Protocol):
    def run(self, batch: PackedBatch, attention: TreeAttention) -> torch.Tensor:
        """The final normed states of the output rows, (W, hidden)."""


class FusedDecoder:
    """The forward pass of the Llama family (Llama, Mistral, Qwen2, Qwen3) over packed rows, without a batch
    dimension.

    It works in place, and in the last layer only on the output rows: there, other rows are only keys and
    values. Layers may lie on several devices, where their keys and values stay.
    """

    def __init__(self, decoder: Any) -> None:
        self.decoder = decoder
        self.device = input_device(decoder)
        self.layer_devices = [layer.input_layernorm.weight.device for layer in decoder.layers]

    def run(self, batch: PackedBatch, attention: TreeAttention) -> torch.Tensor:
        decoder = self.decoder
        x = decoder.embed_tokens(on_device(batch.tokens, self.device))
        positions = on_device(batch.positions, self.device)
        cos, sin = decoder.rotary_emb(x[None], positions[None])
        cos = cos[0, :, None]
        sin = sin[0, :, None, : sin.shape[-1] // 2]
        for layer, device in zip(decoder.layers, self.layer_devices, strict=True):
            x = x.to(device)
            cos = cos.to(device)
            sin = sin.to(device)
            outputs = None
            if layer is decoder.layers[-1]:
                outputs = on_device(batch.outputs, device)
            x = self._layer(layer, x, (cos, sin), attention, outputs)
        return rms_norm(decoder.norm, x.to(decoder.norm.weight.device))

    def _layer(
        self,
        layer: Any,
        x: torch.Tensor,
        rotary: Rotary,
        attention: TreeAttention,
        outputs: torch.Tensor | None,
    ) -> torch.Tensor:
        """One layer over (T, hidden), in place; with ``outputs``, over these rows only."""
        attn, mlp = layer.self_attn, layer.mlp
        h = rms_norm(layer.input_layernorm, x)
        key = _heads(attn.k_proj, getattr(attn, "k_norm", None), h, rotary)
        value = _split_heads(_linear(attn.v_proj, h), attn.head_dim)
        if outputs is not None:
            h = h[outputs]
            x = x[outputs]
            rotary = rotary[0][outputs], rotary[1][outputs]
        query = _heads(attn.q_proj, getattr(attn, "q_norm", None), h, rotary)
        last = outputs is not None
        values = attention.attend(attn.layer_idx, query, key, value, attn.scaling, Extras(), last=last)
        add_linear(x, values.flatten(1), attn.o_proj.weight, attn.o_proj.bias)
        h = rms_norm(layer.post_attention_layernorm, x)
        gate = _linear(mlp.gate_proj, h, silu=True)
        gate.mul_(_linear(mlp.up_proj, h))
        add_linear(x, gate, mlp.down_proj.weight, mlp.down_proj.bias)
        return x


def _heads(projection: Any, norm: Any, h: torch.Tensor, rotary: Rotary) -> torch.Tensor:
    """(rows, heads, D) with rotary embedding: each half turned with the other."""
    cos, sin = rotary
    x = _split_heads(_linear(projection, h), cos.shape[-1])
    if norm is not None:
        x = rms_norm(norm, x)
    left, right = x.chunk(2, dim=-1)
    out = x * cos
    turned_left, turned_right = out.chunk(2, dim=-1)
    turned_left.addcmul_(right, sin, value=-1)
    turned_right.addcmul_(left, sin)
    return out


def _split_heads(x: torch.Tensor, size: int) -> torch.Tensor:
    """(rows, heads, size), also for no rows."""
    return x.view(len(x), x.shape[1] // size, size)


def _linear(module: torch.nn.Linear, h: torch.Tensor, *, silu: bool = False) -> torch.Tensor:
    return linear(h, module.weight, module.bias, silu=silu)


class HFDecoder:
    """Any decoder whose layers call transformers' attention interface, where tree attention takes part."""

    def __init__(self, decoder: Any) -> None:
        self.decoder = decoder
        self.device = input_device(decoder)

    def run(self, batch: PackedBatch, attention: TreeAttention) -> torch.Tensor:
        # a 4-D mask is passed on as it is, which spares building a causal one
        unused = torch.empty(1, 1, 1, 1, device=self.device)
        with _tree_attention_in(self.decoder):
            output = self.decoder(
                input_ids=on_device(batch.tokens, self.device)[None],
                position_ids=on_device(batch.positions, self.device)[None],
                attention_mask=unused,
                use_cache=False,
                tree=attention,
            )
        hidden: torch.Tensor = output.last_hidden_state[0]
        return hidden[on_device(batch.outputs, hidden.device)]


@contextmanager
def _tree_attention_in(decoder: Any) -> Iterator[None]:
    """Let the decoder's layers call tree attention for the length of a pass."""
    from transformers import AttentionInterface

    name = "selfreflect_tree"
    AttentionInterface.register(name, tree_attention)
    usual: dict[int, tuple[Any, str]] = {}
    for module in decoder.modules():
        config = getattr(module, "config", None)
        if config is not None:
            usual[id(config)] = config, config._attn_implementation
    try:
        for config, _ in usual.values():
            config._attn_implementation = name
        yield
    finally:
        for config, implementation in usual.values():
            config._attn_implementation = implementation


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
    """An attention function of transformers: takes (1, heads, T, D), returns (1, T, H, D).

    Raises:
        TypeError: the layer passes something that would change the result and is not known here.
    """
    if tree is None:  # another thread generates with the same model meanwhile
        from transformers.integrations.sdpa_attention import sdpa_attention_forward as usual

        return usual(module, query, key, value, attention_mask, scaling=scaling, **kwargs)  # type: ignore[no-any-return]
    # Some layers add biases to the mask they were given, or pass tensors of their own: position biases,
    # indices of sparse attention.
    unknown = []
    for name, argument in kwargs.items():
        if isinstance(argument, torch.Tensor) and name != "position_ids":
            unknown.append(name)
    if attention_mask is not None and attention_mask.numel() > 1:
        unknown.append("the mask")
    if unknown:
        raise TypeError(f"tree attention does not know what to do with {', '.join(unknown)}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    extras = Extras(window=sliding_window, softcap=softcap, sinks=s_aux)
    q = query[0].transpose(0, 1)
    k = key[0].transpose(0, 1)
    v = value[0].transpose(0, 1)
    return tree.attend(module.layer_idx, q, k, v, scale, extras)[None], None
