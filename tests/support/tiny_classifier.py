"""A tiny classifier of pairs of texts, written to disk as a real one is."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "where", "paris", "lyon", "capital"]


def make_classifier(
    folder: Path, labels: dict[int, str], likeliest: int = 0, *, bias: float = 100, longest: int = 16
) -> str:
    """A tiny model on disk that always prefers one label."""
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast  # seconds

    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    fast.save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=longest,
        id2label=labels,
        label2id={label: number for number, label in labels.items()},
    )
    model = BertForSequenceClassification(config)
    with torch.no_grad():
        model.classifier.bias[likeliest] = bias
    model.save_pretrained(folder)
    return str(folder)
