"""Model folders from strangers: what is in them runs no code and reads no secret. CI also runs this file with
the lowest versions of the libraries that read them."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import pytest
import tiny
from tiny_chat import CHATML, chatml

from selfreflect.errors import BackendError, JudgeError
from selfreflect.models.base import Message, ModelSpec
from selfreflect.models.chat import ChatTokenizer
from selfreflect.models.local.loading import load_causal_lm

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
