"""The guess of a local model's pace: from its configuration alone, and in proportion to its size."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
import transformers

from selfreflect.models.base import ModelSpec
from selfreflect.models.local.pace import guess_pace


def test_no_weights_are_loaded_and_a_larger_model_is_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tiny.save(tmp_path / "small", "llama")
    large = tiny.save(tmp_path / "large", "llama", num_hidden_layers=40)

    def load(*_: object, **__: object) -> None:
        raise AssertionError("a guess loads no weights")

    monkeypatch.setattr(transformers.PreTrainedModel, "from_pretrained", load)
    paces = [guess_pace(ModelSpec(str(path), device="cpu"), 8) for path in (small, large)]
    assert paces[0] is not None
    assert paces[1] is not None
    assert 0 < paces[0].reading < paces[1].reading
    assert paces[0].writing < paces[1].writing


@pytest.mark.parametrize("name", ["openai:m", "module:function", "nobody/is-not-on-this-disk"])
def test_of_other_models_no_pace_is_guessed(name: str) -> None:
    assert guess_pace(ModelSpec(name, device="cpu"), 8) is None


def test_the_embedded_model_has_the_size_that_is_written_down() -> None:
    config = transformers.LlamaConfig(
        hidden_size=576,
        intermediate_size=1536,
        num_attention_heads=9,
        num_hidden_layers=30,
        num_key_value_heads=3,
        vocab_size=49152,
        tie_word_embeddings=True,
    )
    import torch

    from selfreflect.models.smollm2 import WEIGHTS

    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == WEIGHTS
