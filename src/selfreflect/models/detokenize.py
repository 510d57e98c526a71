"""What generated tokens say, whichever engine drew them."""

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
        self._special = [
            str(token.content) for token in tokenizer.added_tokens_decoder.values() if token.special
        ]

    def completion(self, tokens: Sequence[int], *, opened: bool, stopped: bool) -> Completion:
        """Text without reasoning trace and special tokens.

        Args:
            opened: whether the prompt ends inside a reasoning trace.
            stopped: whether the model ended by itself.
        """
        raw = self._tokenizer.decode(tokens, skip_special_tokens=False)
        try:
            visible = split_reasoning(raw, opened).visible
        except UnclosedReasoningError:
            return Completion(text="", finish="unclosed_reasoning", tokens=len(tokens))
        if visible == raw.strip():
            visible = self._tokenizer.decode(tokens, skip_special_tokens=True)
        else:  # some models write their reasoning tags as special tokens, so these could not be left out before the trace was found
            for marker in self._special:
                visible = visible.replace(marker, "")
        return Completion(text=visible.strip(), finish="stop" if stopped else "length", tokens=len(tokens))


def refused(prompt: Sequence[int], window: int | None, name: str) -> Refusal | None:
    """Why model ``name`` cannot continue these tokens, if it cannot."""
    if not prompt:
        return Refusal(
            kind="backend",
            message=f"the conversation has no tokens, so model {name!r} has nothing to continue",
        )
    if window is None or len(prompt) < window:
        return None
    return Refusal(
        kind="too_long",
        message=f"the prompt has {len(prompt)} tokens, but the window of model {name!r} holds {window}",
    )
