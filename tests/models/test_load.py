"""Names of models: which backend they mean, and what is said of a name that means none."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_chat import chatml, save_lm

from selfreflect.errors import JudgeError
from selfreflect.models.backend import Backend, backend_of, bare_name, load_judge
from selfreflect.models.base import ModelSpec
from selfreflect.models.function import Function
from selfreflect.models.local import Local
from selfreflect.models.openai import OpenAI
from selfreflect.models.vllm import VLLM, VLLMServer


@pytest.mark.parametrize(
    ("name", "backend", "bare"),
    [
        ("openai:gpt-4o", OpenAI, "gpt-4o"),
        ("openai:a:b", OpenAI, "a:b"),
        ("vllm:smollm2", VLLM, "smollm2"),
        ("vllm+http: smollm2 ", VLLMServer, "smollm2"),
        ("smollm2", Local, "smollm2"),
        ("Qwen/Qwen2.5-7B-Instruct", Local, "Qwen/Qwen2.5-7B-Instruct"),
        ("models/vllm:7b", Local, "models/vllm:7b"),
        ("mine:generate", Function, "mine:generate"),
        ("package.mine:generate", Function, "package.mine:generate"),
        ("function:generate", Function, "function:generate"),
        ("C:\\models", Local, "C:\\models"),
        ("llama3:8b", Local, "llama3:8b"),
    ],
)
def test_a_name_says_its_backend(name: str, backend: type[Backend], bare: str) -> None:
    assert type(backend_of(name)) is backend
    assert bare_name(name) == bare


def test_a_model_of_another_backend_is_charged_by_nobody_but_a_public_host() -> None:
    openai = backend_of("openai:m")
    assert openai.may_charge(None) == "api.openai.com"
    assert openai.may_charge("http://10.0.0.7:8000/v1") == ""
    assert backend_of("smollm2").may_charge(None) == ""


def test_a_directory_may_have_a_colon_in_its_name(tmp_path: Path) -> None:
    path = save_lm(tmp_path / "a:b", chatml())
    assert load_judge(ModelSpec(path, device="cpu")).name == path


def test_an_api_is_no_judge() -> None:
    with pytest.raises(JudgeError) as refused:
        load_judge(ModelSpec("openai:gpt-4o"))
    assert refused.value.code == "no_judge"
