"""Judge: a causal language model with full logits that fills in masked words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from selfreflect.errors import JudgeError, excerpt
from selfreflect.models.backend import load_judge
from selfreflect.models.base import Compat, Message, ModelSpec
from selfreflect.models.chat import ChatTokenizer
from selfreflect.models.local.layers import linear
from selfreflect.models.local.loading import CausalLM, load_causal_lm
from selfreflect.text import common_prefix

LastStates = Callable[[Sequence[Sequence[int]]], torch.Tensor]
"""Function from prompts as token ids to final normed hidden states, shape (prompts, width)."""

# Rows of a half-precision projection that exist in float32 at once where no CUDA kernel returns
# float32.
_VOCABULARY_AT_ONCE = 16384


class Judge:
    """A language model as the metric needs it: token ids of conversations, decoder, vocabulary projection.
    Make one with :meth:`load`."""

    last_states: LastStates | None = None
    """Function that asks a remote decoder; None for a local decoder."""

    def __init__(self, lm: CausalLM, *, compat: Compat = "") -> None:
        self.lm = lm
        self.compat: Compat = compat
        self.chat = ChatTokenizer(lm.tokenizer, published_bos=compat == "published", vocabulary=lm.vocabulary)

    @staticmethod
    def load(
        model: str | ModelSpec = "smollm2",
        *,
        compat: Compat = "",
        progress: Callable[[str], None] | None = None,
        **fields: Any,
    ) -> Judge:
        """Load a judge by alias (``smollm2``), hub name, local directory or vLLM prefix.

        Args:
            compat: ``"published"`` adds a second BOS for models that have one, as the published scorer does.
            progress: called with a line at each step that takes a while.
            fields: of :class:`~selfreflect.models.base.ModelSpec`, such as ``device="cpu"``.

        Raises:
            JudgeError: the model cannot be loaded, does not fit, or cannot be a judge.
            MissingExtraError: its optional package is not installed.
        """
        return load_judge(ModelSpec.of(model, **fields), compat=compat, progress=progress)

    def __repr__(self) -> str:
        return f"Judge({self.name!r})"

    @property
    def name(self) -> str:
        return self.lm.name

    @property
    def origin(self) -> dict[str, Any]:
        """Fields that name the judge in a record."""
        return {"judge": self.name, "judge_revision": self.lm.revision, "judge_dtype": self.lm.dtype}

    @property
    def facts(self) -> dict[str, Any]:
        """Facts about the judge for a manifest."""
        return {**self.lm.facts, "compat": self.compat}

    @property
    def decoder(self) -> Any:
        """The text decoder without its head, even in a multimodal model."""
        return self.lm.model.get_decoder()

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Compute logits in float32, (rows, vocabulary), from final normed hidden states (rows, hidden).

        bfloat16 logits would move scores by 1e-4, always upward, so a half-precision head accumulates and
        returns float32.
        """
        projection = self.lm.model.get_output_embeddings()
        weight = projection.weight
        bias = getattr(projection, "bias", None)
        # the projection may lie on another GPU than the last layer
        hidden = hidden.to(weight.device)
        if weight.dtype == torch.float32:
            return self._rescale(linear(hidden, weight, bias))
        if hidden.is_cuda:
            logits = torch.mm(hidden, weight.t(), out_dtype=torch.float32)
        else:  # in parts: a whole vocabulary in float32 would be gigabytes
            parts = weight.split(_VOCABULARY_AT_ONCE)
            logits = torch.cat([linear(hidden.float(), part.float()) for part in parts], dim=1)
        if bias is not None:
            logits = logits + bias.float()
        return self._rescale(logits)

    def _rescale(self, logits: torch.Tensor) -> torch.Tensor:
        """Scale or cap the projected logits as some architectures do (Gemma 2, Cohere, Granite)."""
        config = self.lm.model.config.get_text_config()
        if (scale := getattr(config, "logit_scale", None)) is not None:
            logits = logits * scale
        if (divisor := getattr(config, "logits_scaling", None)) is not None:
            logits = logits / divisor
        if (cap := getattr(config, "final_logit_softcapping", None)) is not None:
            logits = torch.tanh(logits / cap) * cap
        return logits

    def encode_tasks(
        self, conversations: Sequence[Sequence[Message]], words: Sequence[str]
    ) -> list[tuple[tuple[int, ...], int]]:
        """Tokenise each conversation with its word, and find the word's first token.

        The conversation is tokenised twice as a full string: with and without the word. The word's tokens are
        those by which the two differ.

        Raises:
            JudgeError: a word has no token, or the chat template cannot render a conversation.
        """
        # Tasks that mask equal words in equal texts repeat conversations and strings; each is treated once.
        distinct = list(dict.fromkeys(map(tuple, conversations)))
        rendered = dict(zip(distinct, self.chat.render_all(distinct), strict=True))
        prompts = [rendered[tuple(conversation)] for conversation in conversations]
        full = list(map(self.chat.continued, prompts, words))
        texts = list(dict.fromkeys(prompts + full))
        ids = dict(zip(texts, self.chat.encode_alike(texts), strict=True))
        tasks = []
        for prompt, text, word in zip(prompts, full, words, strict=True):
            # earlier than the prompt's end where the word's first letters merge with it
            first = common_prefix(ids[prompt], ids[text])
            if first == len(ids[text]):
                raise JudgeError(
                    f"the tokenizer of judge {self.name!r} has no token for the word {excerpt(word)}, so the "
                    "word cannot be masked",
                    code="no_token",
                )
            tasks.append((tuple(ids[text]), first))
        return tasks


def load_local(spec: ModelSpec, compat: Compat, progress: Callable[[str], None] | None) -> Judge:
    return Judge(load_causal_lm(spec, progress), compat=compat)
