"""Turn generated tokens into completions, whichever engine drew them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from selfreflect.models.base import Completion, Refusal
from selfreflect.models.reasoning import UnclosedReasoningError, split_reasoning


class Detokenizer:
    """Turns the tokens of one model into completions.

    Args:
        tokenizer: a transformers tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.added_tokens_decoder.values()
        self._special = [str(token.content) for token in added if token.special]

    def completion(self, tokens: Sequence[int], *, in_trace: bool, stopped: bool) -> Completion:
        """Text without reasoning trace and special tokens.

        Args:
            in_trace: whether the prompt ends inside a reasoning trace.
            stopped: whether the model ended by itself.
        """
        raw = self._tokenizer.decode(tokens, skip_special_tokens=False)
        try:
            visible = split_reasoning(raw, in_trace).visible
        except UnclosedReasoningError:
            return Completion(text="", finish="unclosed_reasoning", tokens=len(tokens))
        if visible == raw.strip():
            visible = self._tokenizer.decode(tokens, skip_special_tokens=True)
        else:
            # some models write their reasoning tags as special tokens, which must be there to find the trace
            for marker in self._special:
                visible = visible.replace(marker, "")
        return Completion(text=visible.strip(), finish="stop" if stopped else "length", tokens=len(tokens))


def refusal_for(prompt: Sequence[int], window: int | None, model: str) -> Refusal | None:
    """Why ``model`` cannot continue these tokens, if it cannot."""
    if not prompt:
        message = f"the conversation has no tokens, so model {model!r} has nothing to continue"
        return Refusal(kind="backend", message=message)
    if window is not None and len(prompt) >= window:
        message = f"the prompt has {len(prompt)} tokens, but the window of model {model!r} holds {window}"
        return Refusal(kind="too_long", message=message)
    return None
