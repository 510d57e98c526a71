"""Adapters are models: they load by their directory, over their base, in every command."""

from __future__ import annotations

import json
import shutil
import socket
import sys
import warnings
from pathlib import Path
from typing import Any

import command
import pytest
import tiny
import torch
from transformers import AutoModelForCausalLM

from selfreflect.errors import BackendError, MissingExtraError
from selfreflect.models.backend import check_loadable
from selfreflect.models.base import ModelSpec
from selfreflect.models.local.layers import is_llama
from selfreflect.models.local.loading import load_causal_lm, locate
from selfreflect.models.local.pretrained import find_adapter
from selfreflect.models.smollm2 import REVISION


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tmp_path_factory.mktemp("base"), "llama", attention_bias=False, mlp_bias=False)


@pytest.fixture
def adapter(tmp_path: Path, base: Path) -> Path:
    return tiny.save_adapter(tmp_path / "adapter", base)


def spec(path: Path) -> ModelSpec:
    return ModelSpec(str(path), device="cpu", dtype="float32")


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.inference_mode():
        result: torch.Tensor = model(torch.tensor([[5, 9, 30, 77, 100]])).logits
    return result


def test_an_adapter_predicts_as_peft_does_over_its_base(adapter: Path, base: Path) -> None:
    import peft

    lm = load_causal_lm(spec(adapter))
    apart = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter).eval()
    torch.testing.assert_close(logits(lm.model), logits(apart), atol=1e-4, rtol=1e-4)
    assert (logits(lm.model) - logits(load_causal_lm(spec(base)).model)).abs().max() > 0.1
    assert is_llama(lm.model.get_decoder())  # so that C code takes its steps


def test_records_name_the_adapter_and_its_base(adapter: Path, base: Path) -> None:
    check_loadable(spec(adapter))
    before = load_causal_lm(spec(adapter))
    assert before.name == str(adapter)
    found = find_adapter(adapter)
    assert found is not None
    assert before.revision == f"adapter {found.digest} of {base}"
    tiny.save_adapter(adapter, base, seed=1)
    again = load_causal_lm(spec(adapter))
    assert again.revision != before.revision
    assert not torch.equal(logits(again.model), logits(before.model))


def test_a_run_and_its_judge_take_an_adapter_and_notice_another(
    adapter: Path, base: Path, tmp_path: Path
) -> None:
    questions = command.written(tmp_path / "q.json", [{"question": "What should I plant?"}])
    out = tmp_path / "run"
    done = command.run(*command.small(adapter, out, questions))
    assert done.code == 0, done.stderr
    models = json.loads((out / "manifest.json").read_text())["models"]
    assert {models[stage]["revision"][:8] for stage in ("answers", "scores")} == {"adapter "}
    tiny.save_adapter(adapter, base, seed=1)
    refused = command.run(*command.small(adapter, out, questions, strategies="greedy,basic,cot"))
    assert refused.code == 2
    assert "began with revision 'adapter " in refused.said


def test_the_embedded_model_can_be_the_base(adapter: Path, tmp_path: Path) -> None:
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": "smollm2"}))
    source = locate(spec(adapter), None, adapters=True)
    assert source.revision.endswith(" of smollm2 0.1.2-f1")
    assert "smollm2-135m-instruct" in source.path
    with pytest.raises(BackendError, match="adapter"):  # of another size
        load_causal_lm(spec(adapter))


def test_an_adapter_of_the_embedded_model_loads_without_asking_the_hub(
    adapter: Path, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELFREFLECT_CACHE", str(tmp_path))
    embedded = shutil.copytree(base, tmp_path / f"smollm2-135m-instruct-{REVISION}")
    (embedded / "READY.json").write_text("{}")
    by_path = logits(load_causal_lm(spec(adapter)).model)
    tiny.save_adapter(adapter, base, base_model_name_or_path="smollm2")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # which a failed look-up causes
        lm = load_causal_lm(spec(adapter))
    torch.testing.assert_close(logits(lm.model), by_path)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("{", "adapter"),
        ("[]", "adapter"),
        ('{"base_model_name_or_path": 3}', "adapter"),
        ('{"base_model_name_or_path": "/not/here"}', "no_model"),
        ('{"base_model_name_or_path": "openai:gpt"}', "no_model"),
    ],
)
def test_a_damaged_configuration_says_what_is_wrong(adapter: Path, content: str, code: str) -> None:
    (adapter / "adapter_config.json").write_text(content)
    with pytest.raises(BackendError) as raised:
        load_causal_lm(spec(adapter))
    assert raised.value.code == code


def test_an_adapter_that_names_further_models_loads_none_of_them(
    adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = json.loads((adapter / "adapter_config.json").read_text())
    changes = {"peft_type": "SHADOW", "shadow_model": "someone/else"}
    (adapter / "adapter_config.json").write_text(json.dumps({**config, **changes}))
    contacts: list[Any] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *address, **_: contacts.append(address))
    with pytest.raises(BackendError, match="SHADOW"):
        load_causal_lm(spec(adapter))
    assert not contacts


def test_pickled_adapters_are_not_loaded(adapter: Path) -> None:
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    with pytest.raises(BackendError, match=r"adapter_model\.safetensors"):
        load_causal_lm(spec(adapter))


def test_without_peft_the_extra_is_named(adapter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtraError, match=r"\[train\]"):
        load_causal_lm(spec(adapter))
