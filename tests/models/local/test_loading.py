"""Loading: where a model may come from, what is refused and with which words, and what is recorded about
it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from safetensors.torch import load_file
from tiny_chat import CHATML, byte_bpe, chatml, save_lm, wrapped

from selfreflect.errors import BackendError, JudgeError
from selfreflect.models.backend import check_loadable
from selfreflect.models.base import Message, ModelSpec
from selfreflect.models.chat import ChatTokenizer
from selfreflect.models.judge import Judge
from selfreflect.models.local.generator import HFGenerator
from selfreflect.models.local.loading import CausalLM, load_causal_lm, pick_device, pick_dtype

REMOTE_MODEL = """
from pathlib import Path
Path({ran!r}).write_text("this code was run")
from transformers import LlamaConfig, LlamaForCausalLM

class OwnConfig(LlamaConfig):
    model_type = "own"

class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return save_lm(tmp_path / "model", chatml())


def edit_config(path: str, file: str = "config.json", **changes: object) -> None:
    config = json.loads((Path(path) / file).read_text(encoding="utf-8"))
    (Path(path) / file).write_text(json.dumps({**config, **changes}), encoding="utf-8")


def loaded(name: str, *, progress: Callable[[str], None] | None = None, **fields: Any) -> CausalLM:
    return load_causal_lm(ModelSpec(name, **fields), progress)


# --- what is loaded


def test_a_local_directory(path: str) -> None:
    lm = loaded(path, device="cpu")
    assert (lm.name, lm.revision, lm.device, lm.dtype, lm.window) == (path, "", "cpu", "float32", 2048)
    assert {parameter.dtype for parameter in lm.model.parameters()} == {torch.float32}
    assert not lm.model.training


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_precision_is_as_asked_for(path: str, dtype: str) -> None:
    lm = loaded(path, device="cpu", dtype=dtype)
    assert lm.dtype == dtype
    assert lm.model.get_input_embeddings().weight.dtype == getattr(torch, dtype)


def test_judge_and_generator_share_one_model(path: str) -> None:
    judge = Judge.load(path, progress=lambda line: None)
    generator = HFGenerator.load(path, device="cpu", dtype="float32", progress=print)
    assert generator.lm is judge.lm
    assert Judge.load(path, dtype="bfloat16").lm is not judge.lm


def test_a_directory_that_was_written_again_is_read_again(tmp_path: Path) -> None:
    before = loaded(save_lm(tmp_path, chatml()))
    after = loaded(save_lm(tmp_path, chatml(), num_hidden_layers=3))
    assert (before.model.config.num_hidden_layers, after.model.config.num_hidden_layers) == (2, 3)


@pytest.mark.parametrize(
    ("positions", "limit", "window"), [(64, None, 64), (64, 16, 16), (16, 64, 16), (64, int(1e30), 64)]
)
def test_the_window_is_the_smaller_limit_of_model_and_tokenizer(
    tmp_path: Path, positions: int, limit: int | None, window: int
) -> None:
    tokenizer = wrapped(byte_bpe(), **({} if limit is None else {"model_max_length": limit}))
    assert loaded(save_lm(tmp_path, tokenizer, max_position_embeddings=positions)).window == window


# --- what is refused


def refusal(name: str, **fields: Any) -> str:
    """The code with which a model is refused."""
    with pytest.raises(BackendError) as caught:
        loaded(name, **fields)
    assert Path(name).name in caught.value.message
    return caught.value.code


def test_a_rotary_embedding_of_half_a_head_is_refused_before_the_first_pass(path: str) -> None:
    file = Path(path) / "config.json"
    config = json.loads(file.read_text())
    config["rope_parameters"] = {
        "rope_type": "linear",
        "rope_theta": 10000.0,
        "factor": 2.0,
        "partial_rotary_factor": 0.5,
    }
    file.write_text(json.dumps(config))
    assert refusal(path) == "not_loaded"


def test_pickled_weights_are_not_loaded(path: str) -> None:
    ran = Path(path) / "ran"

    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.write_text, (ran, "this code was run")

    (Path(path) / "model.safetensors").unlink()
    torch.save({"model.embed_tokens.weight": Bomb()}, Path(path) / "pytorch_model.bin")
    assert refusal(path) == "pickled"
    assert not ran.exists()


@pytest.mark.parametrize("named", ["weights.bin", "../weights.bin", "../model.safetensors", "/absolute", 7])
@pytest.mark.parametrize("loads", [load_causal_lm, check_loadable])
def test_an_index_names_safetensors_in_the_folder_alone(
    path: str, named: object, loads: Callable[[ModelSpec], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(path)
    tensors = load_file(folder / "model.safetensors")
    target = str(folder.parent / "outside.bin") if named == "/absolute" else named
    place = folder / str(target)
    if str(target).endswith(".safetensors"):
        shutil.copy(folder / "model.safetensors", place)
    else:
        torch.save(tensors, place)
    (folder / "model.safetensors").rename(folder / "unused.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(tensors, target)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    def opened(*_: object, **__: object) -> None:
        raise AssertionError("the weights were opened")

    monkeypatch.setattr(torch, "load", opened)
    with pytest.raises(BackendError) as refused:
        loads(ModelSpec(path, device="cpu"))
    assert refused.value.code == "foreign_weights"


def test_shards_in_the_folder_are_loaded(path: str) -> None:
    folder = Path(path)
    model = loaded(path, device="cpu").model
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="20KB")
    assert (folder / "model.safetensors.index.json").exists()
    again = loaded(path, device="cpu").model.state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in expected.items())


def test_a_file_or_a_missing_path_instead_of_a_directory(path: str) -> None:
    for name in (f"{path}/model.safetensors", f"{path}/nowhere", "./nowhere", "~/nowhere"):
        assert refusal(name) == "no_model"


@pytest.mark.parametrize("weights", [b"", b"\xff" * 100, None], ids=["empty", "not safetensors", "cut off"])
def test_corrupt_weights(path: str, weights: bytes | None) -> None:
    file = Path(path) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10] if weights is None else weights)
    assert refusal(path) == "not_loaded"


def test_weights_of_another_architecture(path: str) -> None:
    edit_config(path, num_hidden_layers=3)
    assert refusal(path) == "not_loaded"
    edit_config(path, num_hidden_layers=2, hidden_size=64)
    assert refusal(path) == "not_loaded"


@pytest.mark.parametrize(
    "config", ["{", "[]", '{"model_type": "llama", "hidden_size": "wide"}', '{"model_type": "no-such-model"}']
)
def test_corrupt_configs(path: str, config: str) -> None:
    (Path(path) / "config.json").write_text(config, encoding="utf-8")
    assert refusal(path) == "not_loaded"


@pytest.mark.parametrize(
    "tokenizer", ["{", "[]", "{}", '{"added_tokens": [], "model": {"type": "BPE"}}', None]
)
def test_missing_and_corrupt_tokenizers(path: str, tokenizer: str | None) -> None:
    file = Path(path) / "tokenizer.json"
    file.unlink() if tokenizer is None else file.write_text(tokenizer, encoding="utf-8")
    assert refusal(path) == "not_loaded"


@pytest.mark.parametrize("model_type", ["own", "llama"])
def test_a_models_own_code_is_not_run_unless_asked(path: str, tmp_path: Path, model_type: str) -> None:
    ran = tmp_path / "ran"
    (Path(path) / "own.py").write_text(REMOTE_MODEL.format(ran=str(ran)), encoding="utf-8")
    classes = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    edit_config(path, model_type=model_type, auto_map=classes)
    edit_config(path, "tokenizer_config.json", auto_map={"AutoTokenizer": [None, "own.OwnTokenizer"]})
    if model_type == "own":
        assert refusal(path) == "foreign_code"
    else:
        assert type(loaded(path).model).__module__.startswith("transformers."), (
            "the library's own Llama is used instead"
        )
    assert not ran.exists()
    edit_config(path, "tokenizer_config.json", auto_map={})
    trusted = loaded(path, trust_remote_code=True)
    assert type(trusted.model).__name__ == "OwnModel"
    assert ran.exists()


def test_kernels_of_the_hub_are_not_fetched_because_a_model_asks_for_them(path: str) -> None:
    edit_config(path, _attn_implementation="somebody/kernel")
    assert refusal(path) == "foreign_code"


MISSING = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}


@pytest.mark.parametrize("device", [name for name, there in MISSING.items() if not there])
def test_a_device_that_is_not_there(path: str, device: str) -> None:
    with pytest.raises(BackendError) as refused:
        loaded(path, device=device)
    assert refused.value.code == "device"


def test_one_of_several_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("cuda:1") == "cuda:1"
    assert pick_dtype("auto", "cuda:1") == torch.bfloat16
    with pytest.raises(BackendError) as refused:
        pick_device("cuda:2")
    assert refused.value.code == "device"


# --- the hub, without a network: a child process, because the library reads its settings once

CHILD = """
import sys, time
from selfreflect.errors import BackendError
from selfreflect.models.local.loading import load_causal_lm
from selfreflect.models.base import ModelSpec

started = time.monotonic()
for revision in (None, "main"):
    print(load_causal_lm(ModelSpec("someone/tiny", revision=revision)).revision)
for name in ("smollm", "gpt-9-mini", "someone/missing", "someone/pickled"):
    try:
        load_causal_lm(ModelSpec(name))
    except BackendError as error:
        print(error)
print(time.monotonic() - started)
"""


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def without_network(path: str, home: Path, **settings: str) -> subprocess.Popen[str]:
    """The child, with two models of the hub in a cache of its own."""
    for name in ("tiny", "pickled"):
        cached = home / "hf" / "hub" / f"models--someone--{name}"
        shutil.copytree(path, cached / "snapshots" / COMMIT)
        (cached / "refs").mkdir()
        (cached / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    weights = cached / "snapshots" / COMMIT / "model.safetensors"
    torch.save(load_file(weights), weights.with_name("pytorch_model.bin"))
    weights.unlink()
    environment = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HOME": str(home),
        "HF_HOME": str(home / "hf"),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-c", CHILD], env=environment | settings, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(
    "settings",
    [{"HF_ENDPOINT": "http://127.0.0.1:9"}, {"HF_HUB_OFFLINE": "1"}],
    ids=["unreachable", "offline"],
)
@pytest.mark.slow  # test_bad_input.py names a model offline
def test_hub_names_without_a_network(path: str, tmp_path: Path, settings: dict[str, str]) -> None:
    child = without_network(path, tmp_path, **settings)
    said = child.communicate(timeout=240)[0]
    assert child.returncode == 0
    *revisions, alias, served, missing, pickled, seconds = said.splitlines()
    assert revisions == [COMMIT, COMMIT], "what a name means may change, so the commit is recorded"
    assert "could not load the model 'smollm'" in alias
    assert "Known names: smollm2, a local directory, or a hub name such as Qwen/" in alias
    assert alias.count("Did you mean 'smollm2'?") == 1
    assert "If it is a model on a server, name it 'openai:gpt-9-mini'." in served
    assert "could not load the model 'someone/missing'" in missing
    assert "on a server" not in missing
    assert "could not load the model 'someone/pickled'" in pickled
    assert float(seconds) < 60, "nothing is tried again and again"


KEY = "sk-which-no-template-may-read"
REACH = "{0.__globals__[inspect].sys.modules[os].environ}"
TEMPLATES = {
    "attribute": f"{{{{ '{REACH}'.format(raise_exception) }}}}",
    "attribute filter": f"{{{{ ('{REACH}' | attr('format'))(raise_exception) }}}}",
    "map filter": f"{{{{ ['{REACH}'] | map('format', raise_exception) | list }}}}",
    "map attribute": f"{{{{ (['{REACH}'] | map(attribute='format') | first)(raise_exception) }}}}",
    "format map": f"{{{{ ('{REACH}' | attr('format_map'))({{'0': raise_exception}}) }}}}",
    "globals": "{{ raise_exception.__globals__ }}",
    "subclasses": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "block": "{{ self._TemplateReference__context }}",
    "include": "{% include '/proc/self/environ' %}",
    "import": "{% import '/proc/self/environ' as stolen %}{{ stolen }}",
    "cycler": "{{ cycler.__init__.__globals__.os.environ }}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_reads_no_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFREFLECT_API_KEY", KEY)
    chat = ChatTokenizer(chatml(TEMPLATES[name] + CHATML))
    try:
        text = chat.render([Message(role="user", content="Why?")])
    except JudgeError as error:
        text = str(error)
    assert KEY not in text


@pytest.mark.parametrize(
    "changes",
    [
        {"megatron_config": {"tensor_model_parallel_size": 1}, "megatron_core": "hostile_module"},
        {"auto_mapping": {"base_model_class": "Evil", "parent_library": "hostile_module"}},
        {"peft_type": "hostile_module"},
        {"corda_config": {"cache_file": "hostile_module"}},
        {"runtime_config": {"ephemeral_gpu_offload": True}, "layer_replication": [[0, 1]]},
    ],
    ids=["megatron", "mapping", "kind", "corda", "replication"],
)
def test_an_adapter_imports_no_module(
    changes: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tiny.save(tmp_path / "base", "llama")
    adapter = tiny.save_adapter(tmp_path / "adapter", base, **changes)
    (tmp_path / "hostile_module.py").write_text("from pathlib import Path\nPath('was-run').touch()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "hostile_module", raising=False)
    monkeypatch.chdir(tmp_path)
    with suppress(BackendError):
        load_causal_lm(ModelSpec(str(adapter), device="cpu"))
    assert "hostile_module" not in sys.modules
    assert not (tmp_path / "was-run").exists()
