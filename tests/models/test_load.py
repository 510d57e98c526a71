"""Names of models: which backend they mean, and what is said of a name that means none."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_chat import chatml, save_lm

from selfreflect.errors import BackendError, ConfigError, JudgeError
from selfreflect.models.backend import (
    BACKENDS,
    Backend,
    backend_of,
    bare_name,
    load_generator,
    load_judge,
    prefixes,
)
from selfreflect.models.base import ModelSpec
from selfreflect.models.function import Function
from selfreflect.models.judge import Judge
from selfreflect.models.local import Local
from selfreflect.models.local.generator import HFGenerator
from selfreflect.models.openai import OpenAI
from selfreflect.models.openai.generator import OpenAIGenerator
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


@pytest.mark.parametrize("kind", ["openai", "vllm", "vllm+http"])
def test_a_kind_without_a_name(kind: str) -> None:
    with pytest.raises(ConfigError, match="NAME needs the name of a model"):
        bare_name(f"{kind}: ")


def test_a_spec_takes_changes_to_its_fields() -> None:
    spec = ModelSpec.of("smollm2", device="cpu")
    assert spec == ModelSpec("smollm2", device="cpu")
    assert ModelSpec.of(spec, dtype="float32") == ModelSpec("smollm2", device="cpu", dtype="float32")
    with pytest.raises(TypeError, match="devcie"):
        ModelSpec.of("smollm2", devcie="cpu")


def test_no_model_is_trusted_with_its_own_code_unasked() -> None:
    assert ModelSpec("m").trust_remote_code is False


def test_prefixes_are_found_by_what_is_true_of_a_backend() -> None:
    assert [*BACKENDS] == ["local", "function", *prefixes()]
    assert prefixes(can_judge=True) == ["vllm", "vllm+http"]
    assert prefixes(is_remote=True, can_generate=True) == ["openai"]


def test_a_model_of_another_backend_is_charged_by_nobody_but_a_public_host() -> None:
    openai = backend_of("openai:m")
    assert openai.may_charge(None) == "api.openai.com"
    assert openai.may_charge("http://10.0.0.7:8000/v1") == ""
    assert backend_of("smollm2").may_charge(None) == ""


def test_each_kind_is_loaded_by_its_class(tmp_path: Path) -> None:
    pytest.importorskip("openai")
    lines: list[str] = []
    path = save_lm(tmp_path, chatml())
    spec = ModelSpec(path, device="cpu", batch_size=3)
    generator = load_generator(spec, lines.append)
    assert isinstance(generator, HFGenerator)
    assert generator.batch_size == 3
    judge = load_judge(spec, compat="published", progress=lines.append)
    assert type(judge) is Judge
    assert judge.compat == "published"
    assert judge.lm is generator.lm
    assert lines[0] == f"loading {path}"
    assert lines[-1] == f"loading judge {path}"
    served = load_generator(ModelSpec("openai:m", base_url="http://localhost:1/v1", max_connections=2))
    assert isinstance(served, OpenAIGenerator)
    assert served.facts == {"name": "openai:m", "revision": "", "base_url": "http://localhost:1/v1"}
    assert served.client.max_connections == 2


def test_a_judges_kind_generates_nothing() -> None:
    with pytest.raises(ConfigError, match=r"'vllm\+http:m' names a judge.*openai:NAME, vllm:NAME, smollm2"):
        load_generator(ModelSpec("vllm+http:m"))


def test_an_unknown_kind_is_answered_with_the_known_ones() -> None:
    known = r"'foo:7b' is no local model.*smollm2.*openai: or vllm:, and for judges with vllm: or vllm\+http:"
    with pytest.raises(BackendError, match=known):
        load_generator(ModelSpec("foo:7b"))
    with pytest.raises(JudgeError, match=known):
        load_judge(ModelSpec("foo:7b"))


def test_a_directory_may_have_a_colon_in_its_name(tmp_path: Path) -> None:
    path = save_lm(tmp_path / "a:b", chatml())
    assert load_judge(ModelSpec(path, device="cpu")).name == path


def test_an_api_is_no_judge() -> None:
    with pytest.raises(JudgeError, match="full vocabulary"):
        load_judge(ModelSpec("openai:gpt-4o"))
