"""Engines that run a judge over prefix trees or sequences, and their selection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from selfreflect.errors import JudgeError
from selfreflect.metric.engine.attention import Extras, TreeAttention, mapped_empty
from selfreflect.metric.engine.logits import Head
from selfreflect.metric.engine.tree import Ints, PackedBatch, PrefixTree, Prompt, build_tree, pack
from selfreflect.models.local.layers import (
    add_linear,
    input_device,
    is_llama,
    linear,
    on_device,
    output_device,
    rms_norm,
    windowed,
)

if TYPE_CHECKING:
    from selfreflect.models.judge import Judge, LastStates


Rotary = tuple[torch.Tensor, torch.Tensor]
"""Cosines, (rows, 1, D), and sines, (rows, 1, D / 2), of each row's angles."""


class Engine(Protocol):
    """An engine that computes a judge's predictions at the output nodes of prefix trees."""

    @property
    def head(self) -> Head: ...

    def states(self, trees: Sequence[PrefixTree]) -> list[torch.Tensor]:
        """Compute the states for ``head``: for each tree one row per output node, shape (W, width)."""


class TreeEngine:
    """Engine that keeps each context's final hidden states at its token tasks, a few KB each.

    ``device`` is where ``head`` wants its states. ``fused``: use the device's own attention, if it has any.
    """

    def __init__(self, decoder: Decoder, head: Head, device: torch.device, *, fused: bool = True) -> None:
        self.decoder = decoder
        self.head = head
        self.device = device
        self.max_rows = 1024 if device.type == "cpu" else 8192
        """Maximum number of rows per forward pass."""
        self.fused = fused
        self.windows: set[int] = set()
        """The sliding windows that the layers have asked for so far."""

    @torch.inference_mode()
    def states(self, trees: Sequence[PrefixTree]) -> list[torch.Tensor]:
        attention = TreeAttention(fused=self.fused)
        counts = [len(tree.outputs) for tree in trees]
        states: torch.Tensor | None = None
        offset = 0
        for batch in pack(trees, self.max_rows):
            attention.begin(batch)
            rows = self.decoder.run(batch, attention)
            if states is None:
                # the states of all batches, allocated once: torch.cat at the end would need twice the memory
                states = mapped_empty((sum(counts), rows.shape[1]), rows)
            states[offset : offset + len(rows)] = rows
            offset += len(rows)
        self.windows |= attention.windows
        assert states is not None  # a tree has at least one node
        # the last layer may lie on another device than the head
        return list(torch.split(states.to(self.device), counts))


class Decoder(Protocol):
    def run(self, batch: PackedBatch, attention: TreeAttention) -> torch.Tensor:
        """Compute the final normed states of the output rows, (W, hidden)."""


class FusedDecoder:
    """In-place forward pass of the Llama family (Llama, Mistral, Qwen2, Qwen3) over packed rows. Layers may
    lie on several devices, where their keys and values stay."""

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
        # the two halves of transformers' sines are equal, and _heads needs one
        sin = sin[0, :, None, : sin.shape[-1] // 2]
        for layer, device in zip(decoder.layers, self.layer_devices, strict=True):
            x = x.to(device)
            cos = cos.to(device)
            sin = sin.to(device)
            _run_layer(layer, x, (cos, sin), attention)
        # the norm and the vocabulary only need the rows that predict something
        outputs = on_device(batch.outputs, x.device)
        return rms_norm(decoder.norm, x[outputs].to(decoder.norm.weight.device))


def _run_layer(layer: Any, x: torch.Tensor, rotary: Rotary, attention: TreeAttention) -> None:
    """Run one layer over (T, hidden), in place."""
    attn, mlp = layer.self_attn, layer.mlp
    h = rms_norm(layer.input_layernorm, x)
    query = _heads(attn.q_proj, getattr(attn, "q_norm", None), h, rotary)
    key = _heads(attn.k_proj, getattr(attn, "k_norm", None), h, rotary)
    value = _split_heads(_linear(attn.v_proj, h), attn.head_dim)
    values = attention.attend(attn.layer_idx, query, key, value, attn.scaling, Extras())
    add_linear(x, values.flatten(1), attn.o_proj.weight, attn.o_proj.bias)
    h = rms_norm(layer.post_attention_layernorm, x)
    gate = _linear(mlp.gate_proj, h, silu=True)
    gate.mul_(_linear(mlp.up_proj, h))
    add_linear(x, gate, mlp.down_proj.weight, mlp.down_proj.bias)


def _heads(projection: Any, norm: Any, h: torch.Tensor, rotary: Rotary) -> torch.Tensor:
    """Project rows to heads with rotary embedding, shape (rows, heads, D)."""
    cos, sin = rotary
    x = _split_heads(_linear(projection, h), cos.shape[-1])
    if norm is not None:
        x = rms_norm(norm, x)
    left, right = x.chunk(2, dim=-1)
    # rotary embedding: (left, right) becomes (left cos - right sin, right cos + left sin)
    out = x * cos
    turned_left, turned_right = out.chunk(2, dim=-1)
    turned_left.addcmul_(right, sin, value=-1)
    turned_right.addcmul_(left, sin)
    return out


def _split_heads(x: torch.Tensor, size: int) -> torch.Tensor:
    """Split the features of each row by head: (rows, heads * size) to (rows, heads, size)."""
    return x.view(len(x), -1, size)


def _linear(module: torch.nn.Linear, h: torch.Tensor, *, silu: bool = False) -> torch.Tensor:
    return linear(h, module.weight, module.bias, silu=silu)


class HFDecoder:
    """Any decoder that calls transformers' attention interface in its layers."""

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
    """Make the decoder's layers use tree attention for one pass."""
    from transformers import AttentionInterface

    name = "selfreflect_tree"
    AttentionInterface.register(name, tree_attention)
    usual: dict[int, tuple[Any, str]] = {}
    for module in decoder.modules():
        config = getattr(module, "config", None)
        if config is not None:
            # several modules may share one config, and a config must be restored to what it was before
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
    """Attend as transformers' attention functions do: (1, heads, T, D) to (1, T, H, D).

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
        # transformers passes positions to every layer; tree attention has its own
        if isinstance(argument, torch.Tensor) and name != "position_ids":
            unknown.append(name)
    if attention_mask is not None and attention_mask.numel() > 1:
        unknown.append("the mask")
    if unknown:
        raise TypeError(f"tree attention does not support {', '.join(unknown)}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    extras = Extras(window=sliding_window, softcap=softcap, sinks=s_aux)
    # tree attention has no batch dimension
    q = query[0].transpose(0, 1)
    k = key[0].transpose(0, 1)
    v = value[0].transpose(0, 1)
    return tree.attend(module.layer_idx, q, k, v, scale, extras)[None], None


def engine_for(judge: Judge) -> Engine:
    """Choose the engine of a judge, local or remote."""
    if judge.last_states is not None:
        return RemoteEngine(judge.last_states, judge.head)
    return choose_engine(judge.lm.model, judge.decoder, judge.head)


@torch.inference_mode()
def choose_engine(model: Any, decoder: Any, head: Head) -> Engine:
    """Choose tree attention if it reproduces the model's logits, else ordinary sequences.

    The check catches every architecture whose attention cannot be replaced, or whose logits are rescaled in
    a way that ``head`` does not know. What only shows in longer texts is read from the configuration.

    Raises:
        JudgeError: the model predicts the same whatever it reads, so every summary would look perfect.
    """
    device = output_device(model)
    # the layers of our own class are all alike: one of them shows what a pass through all would
    probed = model.shallow() if hasattr(model, "shallow") else model
    probe = _Probe(probed)
    config = decoder.config.get_text_config()
    tree = None
    for engine in _tree_engines(decoder if probed is model else probed.get_decoder(), head, device):
        if probe.passes(engine):
            # the probe is shorter than any window, so whether the layers ask for it is looked up
            tree = None if _hides_window(config, engine) else engine
            break
    if tree is not None and probed is not model:
        kind: Callable[[Any], Decoder] = type(tree.decoder)  # the one that passed
        tree = TreeEngine(kind(decoder), head, device, fused=tree.fused)
    limit = _rotary_limit(config)
    if tree is not None and limit is None:
        return tree

    def states(ids: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = decoder(input_ids=ids, use_cache=False).last_hidden_state
        return hidden.to(device)

    def logits(ids: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = model(input_ids=ids, use_cache=False).logits
        return rows.to(device)

    # states first: they are projected only where a token is predicted, logits come for every token
    sequences = SequenceEngine(states, head, input_device(decoder))
    if tree is not None and limit is not None:
        return RotaryLimitEngine(tree, sequences, limit)
    if probe.passes(sequences):
        return sequences
    # the model's own logits, which are right by definition
    return SequenceEngine(logits, torch.Tensor.float, input_device(model))


def _tree_engines(decoder: Any, head: Head, device: torch.device) -> list[TreeEngine]:
    """List the candidate engines from the fastest to the most general."""
    decoders: list[Decoder] = [HFDecoder(decoder)]
    if is_llama(decoder):
        decoders.insert(0, FusedDecoder(decoder))
    engines: list[TreeEngine] = []
    # plain attention last: a fused kernel may lack a head size or a dtype
    for fused in (True, False):
        engines += [TreeEngine(each, head, device, fused=fused) for each in decoders]
    return engines


class _Probe:
    """A small tree that branches twice, with the model's own logits for its token tasks."""

    def __init__(self, model: Any) -> None:
        stem = (3, 5, 7, 9, 11)  # token ids below 16 exist in every vocabulary
        branches = ((8, 10, 12), (8, 10, 13), (8, 14, 12, 9), (2, 5))
        word = (6, 4)
        prompts = []
        longest = 0
        for branch in branches:
            ids = (*stem, *branch, *word)
            prompts.append(Prompt(ids, len(ids) - len(word)))
            longest = max(longest, len(ids))
        self.tree = build_tree(prompts)
        # padded on the right, which a causal model does not look at
        batch = torch.zeros(len(prompts), longest, dtype=torch.long)
        for row, prompt in zip(batch, prompts, strict=True):
            row[: len(prompt.ids)] = torch.tensor(prompt.ids)
        logits = model(input_ids=batch.to(input_device(model)), use_cache=False).logits
        targets = []
        for row, prompt in zip(logits, prompts, strict=True):
            targets.append(row[prompt.first - 1 : len(prompt.ids) - 1])
        self.truth = torch.cat(targets).float().to(output_device(model))
        # equal predictions after different tokens: the weights are zero or broken
        if torch.equal(self.truth, self.truth[:1].expand_as(self.truth)):
            raise JudgeError(
                "This judge predicts the same whatever it reads, so every summary would look perfect. "
                "Check its weights."
            )
        # bfloat16 keeps 8 bits, and layers add up their rounding
        self.tolerance = 2e-3 if next(model.parameters()).dtype == torch.float32 else 5e-2

    def passes(self, engine: Engine) -> bool:
        """Check that an engine's logits equal the model's up to rounding, in units of their spread."""
        try:
            logits = engine.head(*engine.states([self.tree]))
            order = np.concatenate(self.tree.rows)
            targets = logits[torch.from_numpy(order).to(logits.device)]
            difference = torch.linalg.vector_norm(targets - self.truth)
        except (TypeError, KeyError, AttributeError, RuntimeError, ValueError):
            return False  # an architecture that this engine cannot run
        # relative to the spread, since softmax ignores a constant and models differ in scale
        spread = torch.linalg.vector_norm(self.truth - self.truth.mean(dim=-1, keepdim=True))
        return bool(difference <= self.tolerance * spread)


def _hides_window(config: Any, tree: TreeEngine) -> bool:
    """Check whether the model applies its sliding window by a mask, which tree attention ignores."""
    if "chunked_attention" in (getattr(config, "layer_types", None) or ()):
        return True
    return windowed(config) and not tree.windows


def _rotary_limit(config: Any) -> int | None:
    """Find the length beyond which longrope uses its second set of frequencies."""
    ropes = getattr(config, "rope_parameters", None) or {}
    limits = []
    for rope in (ropes, *ropes.values()):  # one for all layers, or one for each type of layer
        if isinstance(rope, dict) and rope.get("rope_type") == "longrope":
            limits.append(rope["original_max_position_embeddings"])
    return min(limits, default=None)


class SequenceEngine:
    """Engine that runs each root-to-leaf path as an ordinary sequence, padded on the right.

    Args:
        forward: token ids (rows, length) -> states (rows, length, width).
        device: where ``forward`` wants its token ids.
    """

    def __init__(
        self, forward: Callable[[torch.Tensor], torch.Tensor], head: Head, device: torch.device
    ) -> None:
        self.forward = forward
        self.head = head
        self.device = device
        self.max_rows = 4096
        """Maximum number of tokens per batch, unless a single sequence has more."""

    @torch.inference_mode()
    def states(self, trees: Sequence[PrefixTree]) -> list[torch.Tensor]:
        return list(map(self._states, trees))

    def _states(self, tree: PrefixTree) -> torch.Tensor:
        result: torch.Tensor | None = None
        for paths in self._batches(tree):
            states = self._run(tree, paths)
            if result is None:
                result = states.new_empty(len(tree.outputs), states.shape[2])
            for path, path_states in zip(paths, states, strict=True):
                # paths to several leaves share nodes; equal states are written to the same row again
                rows = np.flatnonzero(np.isin(tree.outputs, path))
                depth = tree.depth[tree.outputs[rows]]
                result[rows] = path_states[len(tree.prefix) + depth]
        assert result is not None  # a tree has at least one leaf
        return result

    def _batches(self, tree: PrefixTree) -> Iterator[list[Ints]]:
        """Batch the paths to all leaves by length."""
        leaves = np.flatnonzero(tree.end == np.arange(1, len(tree.end) + 1))
        paths = sorted(map(tree.path, leaves.tolist()), key=len, reverse=True)
        batch: list[Ints] = []
        for path in paths:
            # the first path is the longest of the batch, and all are padded to it
            longest = len(tree.prefix) + len(batch[0] if batch else path)
            if batch and (len(batch) + 1) * longest > self.max_rows:
                yield batch
                batch = []
            batch.append(path)
        yield batch

    def _run(self, tree: PrefixTree, paths: Sequence[Ints]) -> torch.Tensor:
        prefix = len(tree.prefix)
        longest = len(paths[0])
        ids = np.zeros((len(paths), prefix + longest), dtype=np.int64)
        ids[:, :prefix] = tree.prefix
        for row, path in zip(ids, paths, strict=True):
            row[prefix : prefix + len(path)] = tree.tokens[path]
        return self.forward(torch.from_numpy(ids).to(self.device))


class RotaryLimitEngine:
    """Engine for Phi-3's longrope: trees up to ``limit`` tokens, and beyond it one sequence at a time."""

    def __init__(self, tree: TreeEngine, sequences: SequenceEngine, limit: int) -> None:
        self.tree = tree
        self.sequences = sequences
        # no padding: it would change the length, and with it the frequencies
        self.sequences.max_rows = 1
        self.head = tree.head
        self.limit = limit

    def states(self, trees: Sequence[PrefixTree]) -> list[torch.Tensor]:
        states = []
        for tree in trees:
            engine = self.tree if tree.longest <= self.limit else self.sequences
            states += engine.states([tree])
        return states


class RemoteEngine:
    """Engine that asks a remote decoder for the state after each output node.

    Each tree's prefix goes first, so that a prefix cache has it when prompts follow in depth-first order.
    """

    def __init__(self, last_states: LastStates, head: Head) -> None:
        self.last_states = last_states
        self.head = head

    def states(self, trees: Sequence[PrefixTree]) -> list[torch.Tensor]:
        return list(map(self._states, trees))

    def _states(self, tree: PrefixTree) -> torch.Tensor:
        # sent alone first, so that the server's prefix cache has it before prompts come together
        if tree.prefix:
            self.last_states([tree.prefix])
        prompts = []
        for node in tree.outputs.tolist():
            path = tree.tokens[tree.path(node)].tolist()
            prompts.append((*tree.prefix, *path))
        return self.last_states(prompts)
