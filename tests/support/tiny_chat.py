"""Tiny models with every kind of tokenizer and chat template, saved as real model directories for the real
loaders."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

logging.disable_progress_bar()


CORPUS = (
    "We now show a text with a missing word. "
    "Fill in the missing word only based on the answer you gave above.",
    "You are a friendly chatbot who always responds with short and concise answers.",
    "Question: What is the capital of France? Sample 3 answers to this question. "
    "The capital of France is Paris, or Lyon.",
    "system user assistant model start end im think no yes "
    "radishes lettuce peas plant first in a small garden",
)

# --- chat templates: the shapes that judges come with

CHATML = (
    "{%- for m in messages -%}"
    "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)
LLAMA3 = (
    "{{- bos_token -}}{%- for m in messages -%}"
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}"
)
GEMMA = (
    "{{- bos_token -}}{%- if messages[0].role == 'system' -%}"
    "{{ raise_exception('System role not supported') }}{%- endif -%}"
    "{%- for m in messages -%}"
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}"
    "{{ m.content | trim + '<end_of_turn>\\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}"
)
DROPS_SYSTEM = CHATML.replace("in messages", "in messages if m.role != 'system'")
_AFTER_TRACE = CHATML.replace(
    "-%}{{ '<|im_start|>'",
    "-%}{%- set said = m.content.split('</think>')[-1] if m.role == 'assistant' else m.content -%}"
    "{{ '<|im_start|>'",
    1,
).replace("+ m.content +", "+ said +")
QWEN3 = _AFTER_TRACE.replace(
    "assistant\\n' }}{%- endif",
    "assistant\\n' }}{%- if enable_thinking is defined and not enable_thinking -%}"
    "{{ '<think>\\n\\n</think>\\n\\n' }}{%- endif -%}{%- endif",
)
R1 = "{{- bos_token -}}" + _AFTER_TRACE.replace(
    "assistant\\n' }}{%- endif", "assistant\\n<think>\\n' }}{%- endif"
)
INSTRUCT = (
    "{{- bos_token -}}{%- for m in messages -%}"
    "{%- if m.role == 'assistant' -%}{{ m.content + '</s>' }}{%- else -%}"
    "{{ '[INST] ' + m.content + ' [/INST] ' }}{%- endif -%}{%- endfor -%}"
)
"""The prompt ends in a space, which a sentencepiece tokenizer joins with the first letters of the reply."""

CHATML_MARKERS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LLAMA3_MARKERS = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
GEMMA_MARKERS = ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")


# --- tokenizers, trained here. ``inside`` are markers in the model's own vocabulary; others are added behind
# it by ``wrapped``.


@cache
def _trained_bpe(byte_level: bool) -> str:
    backend = Tokenizer(models.BPE())
    if byte_level:
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
        )
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.BpeTrainer(vocab_size=220, show_progress=False)
    backend.train_from_iterator(CORPUS * 3, trainer)
    return backend.to_str()


def _bpe(byte_level: bool, inside: Sequence[str], **options: Any) -> Tokenizer:
    trained = json.loads(_trained_bpe(byte_level))["model"]
    names = [*inside, *(name for name in trained["vocab"] if name not in inside)]
    return Tokenizer(
        models.BPE(
            {name: i for i, name in enumerate(names)}, [tuple(pair) for pair in trained["merges"]], **options
        )
    )


def byte_bpe(*inside: str) -> Tokenizer:
    """GPT-2's kind: every text has tokens, and they decode to exactly that text."""
    backend = _bpe(True, inside)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


def metaspace_bpe(*inside: str, unk: str = "<unk>") -> Tokenizer:
    """Llama 2's kind: spaces are letters of the vocabulary, a text is one piece, unknown letters fall back to
    bytes."""
    backend = _bpe(False, (unk, *inside, *_BYTES), unk_token=unk, byte_fallback=True, fuse_unk=True)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return backend


@cache
def _trained_unigram() -> str:
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(CORPUS * 3, trainer)
    return backend.to_str()


def unigram(*inside: str, unk: str = "<unk>", prefix: Literal["first", "never"] = "first") -> Tokenizer:
    """XGLM's kind: the pieces with the best scores, over text that compatibility normalisation has
    simplified."""
    pieces = [
        (name, score)
        for name, score in json.loads(_trained_unigram())["model"]["vocab"][1:]
        if name not in inside
    ]
    own = [(unk, 0.0), *((name, 0.0) for name in inside), *((name, -20.0) for name in _BYTES)]
    backend = Tokenizer(models.Unigram([*own, *pieces], unk_id=0, byte_fallback=True))
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prefix)
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=prefix)])
    return backend


def wordpiece(*inside: str, unk: str = "[UNK]") -> Tokenizer:
    """BERT's kind, split at white space only, so that a marker inside the vocabulary is a word like any
    other."""
    letters = sorted({chr(code) for code in range(33, 127)} | set("".join(CORPUS)) - {" "})
    words = sorted({word for line in CORPUS for word in line.split()} - set(letters))
    names = [
        unk,
        *inside,
        *letters,
        *(f"##{letter}" for letter in letters),
        *(word for word in words if word not in inside),
    ]
    backend = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token=unk))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return backend


def wrapped(
    backend: Tokenizer,
    template: str | None = CHATML,
    markers: Sequence[str] = CHATML_MARKERS,
    *,
    plain: Sequence[str] = (),
    bos: str | None = None,
    eos: str | None = None,
    adds_bos: bool = False,
    **options: Any,
) -> PreTrainedTokenizerFast:
    """A transformers tokenizer. ``plain`` are added tokens that are not special, ``adds_bos`` makes it start
    texts with BOS by itself."""
    backend.add_special_tokens([AddedToken(marker, special=True, normalized=False) for marker in markers])
    backend.add_tokens([AddedToken(marker, special=False, normalized=False) for marker in plain])
    if adds_bos:
        assert bos is not None
        backend.post_processor = processors.TemplateProcessing(
            f"{bos} $A", special_tokens=[(bos, backend.token_to_id(bos))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, chat_template=template, bos_token=bos, eos_token=eos, **options
    )


def chatml(template: str = CHATML, **options: Any) -> PreTrainedTokenizerFast:
    return wrapped(byte_bpe(), template, eos="<|im_end|>", **options)


def llama3() -> PreTrainedTokenizerFast:
    return wrapped(
        byte_bpe(), LLAMA3, LLAMA3_MARKERS, bos="<|begin_of_text|>", eos="<|eot_id|>", adds_bos=True
    )


def gemma() -> PreTrainedTokenizerFast:
    return wrapped(byte_bpe(*GEMMA_MARKERS), GEMMA, GEMMA_MARKERS, bos="<bos>", eos="<eos>", adds_bos=True)


def instruct(backend: Tokenizer) -> PreTrainedTokenizerFast:
    return wrapped(backend, INSTRUCT, ("<s>", "</s>"), bos="<s>", eos="</s>", adds_bos=True)


# --- models: random weights, 2 layers

_SIZES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"tie_word_embeddings": True},
    "gemma2": {
        "head_dim": 16,
        "sliding_window": 8,
        "final_logit_softcapping": 5.0,
        "tie_word_embeddings": False,
    },
    "gpt2": {"n_inner": 64},
    "cohere": {"logit_scale": 0.25},
    "granite": {"logits_scaling": 4.0},
    "phi": {"partial_rotary_factor": 0.5, "num_key_value_heads": 2},
}


def _sizes(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 2048,
        "initializer_range": 0.5,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": None,
    }


def save_lm(
    directory: Path,
    tokenizer: PreTrainedTokenizerFast,
    kind: str = "llama",
    dtype: torch.dtype = torch.float32,
    **changes: Any,
) -> str:
    """Save a model of ``kind`` with ``tokenizer``; returns the path as the loaders take it."""
    return save_config(
        directory,
        tokenizer,
        AutoConfig.for_model(kind, **{**_sizes(tokenizer), **_SIZES[kind], **changes}),
        dtype,
    )


def save_config(
    directory: Path, tokenizer: PreTrainedTokenizerFast, config: Any, dtype: torch.dtype = torch.float32
) -> str:
    torch.manual_seed(7)
    family = AutoModelForImageTextToText if hasattr(config, "vision_config") else AutoModelForCausalLM
    family.from_config(config, dtype=dtype).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return str(directory)


def multimodal_config(kind: str, tokenizer: PreTrainedTokenizerFast) -> Any:
    """A model for images and texts (gemma3 or llava), whose vocabulary, layers and window are those of its
    nested text part."""
    text = {
        **_sizes(tokenizer),
        "head_dim": 16,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": False,
    }
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 16,
        "patch_size": 8,
    }
    if kind == "gemma3":
        text, options = (
            {**text, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]},
            {"mm_tokens_per_image": 4},
        )
    else:
        text, vision, options = (
            {**text, "model_type": "llama"},
            {**vision, "model_type": "clip_vision_model"},
            {},
        )
    return AutoConfig.for_model(
        kind,
        text_config=text,
        vision_config=vision,
        initializer_range=0.5,
        tie_word_embeddings=False,
        **options,
    )


def save_scripted(
    directory: Path,
    tokenizer: PreTrainedTokenizerFast,
    *pieces: str,
    stop: str = "<|im_end|>",
    **changes: Any,
) -> str:
    """A model that answers every CHATML prompt with ``pieces``, one token each and all different, and then
    ``stop``.

    Its layers add nothing, so the next token depends on the last one alone: each row of the head is the
    embedding that comes before it.
    """
    config = AutoConfig.for_model("llama", **{**_sizes(tokenizer), "hidden_size": 64, **changes})
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    chain = tokenizer.convert_tokens_to_ids(["Ċ", *pieces, stop])
    assert len(set(chain)) == len(chain)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.lm_head.weight.zero_()
        embedding = model.get_input_embeddings().weight
        for before, after in itertools.pairwise(chain):
            model.lm_head.weight[after] = embedding[before] / embedding[before].norm()
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return str(directory)
