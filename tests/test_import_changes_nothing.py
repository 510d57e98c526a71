"""Importing a module of the package changes nothing in the process that imports it.

Other packages do change things when they are imported, so everything that ours import from them comes first.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import selfreflect

ROOT = Path(selfreflect.__file__).parent

CHILD = """
import atexit, copyreg, gc, json, locale, logging, os, random, signal, sys, threading, warnings
from importlib import import_module

statements, modules, scratch = json.load(sys.stdin)
for statement in statements:
    exec(statement, {})
import numpy, torch, transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING


def listing():
    found = []
    for folder, _, names in os.walk(scratch):
        found += [folder, *(os.path.join(folder, name) for name in names)]
    return sorted(found)


def state():
    root = logging.getLogger()
    return {
        "environment": dict(os.environ),
        "paths": [*sys.path, *map(repr, sys.meta_path), *map(repr, sys.path_hooks)],
        "torch": [
            torch.get_num_threads(), torch.get_num_interop_threads(), torch.get_default_dtype(),
            torch.is_grad_enabled(), torch.get_float32_matmul_precision(), torch.initial_seed(),
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        ],
        "transformers": [
            transformers.utils.logging.get_verbosity(), transformers.utils.logging.is_progress_bar_enabled(),
            sorted(transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS.valid_keys()),
            len(CONFIG_MAPPING._extra_content), len(MODEL_FOR_CAUSAL_LM_MAPPING._extra_content),
        ],
        "random": [hash(random.getstate()), numpy.random.get_state()[1].tolist(), numpy.geterr()],
        "signals": [repr(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "warnings": list(map(repr, warnings.filters)),
        "logging": [repr(root.handlers), root.level, logging.raiseExceptions, logging.root.manager.disable],
        "hooks": list(map(repr, (sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook))),
        "interpreter": [
            gc.get_threshold(), gc.get_freeze_count(), gc.isenabled(), sys.getrecursionlimit(),
            locale.setlocale(locale.LC_ALL), len(copyreg.dispatch_table), os.getcwd(), atexit._ncallbacks(),
            threading.active_count(), repr(sys.stdout), repr(sys.stderr),
        ],
        "files": listing(),
        "open files": os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else [],
    }


def difference(before, after):
    old, new = (
        [repr(entry) for entry in (value.items() if isinstance(value, dict) else value)]
        for value in (before, after)
    )
    return f"lost {[x for x in old if x not in new]}, gained {[x for x in new if x not in old]}"


state()  # torch sets a variable when it is looked at
before = state()
for module in modules:
    import_module(module)
    after = state()
    for name, value in after.items():
        if value != before[name]:
            print(f"{module} changes {name}: {difference(before[name], value):.2000}")
    before = after
print("imported", len(modules))
"""


def outside(body: list[ast.stmt]) -> Iterator[str]:
    """The statements that import from other packages when a module is imported."""
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING":
            yield from outside(node.body + node.orelse)
        elif isinstance(node, ast.Try):
            yield from outside(node.body)
        elif isinstance(node, ast.Import):
            yield ast.unparse(node)
        elif isinstance(node, ast.ImportFrom):
            module = str(node.module)
            if module != "__future__" and module.partition(".")[0] != "selfreflect":
                yield ast.unparse(node)


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_importing_any_module_changes_nothing(tmp_path: Path) -> None:
    files = sorted(ROOT.rglob("*.py"))
    statements: dict[str, None] = {}
    for file in files:
        statements |= dict.fromkeys(outside(ast.parse(file.read_text(encoding="utf-8")).body))
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    temporary.mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    child = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps([list(statements), [dotted(file) for file in files], str(tmp_path)]),
        capture_output=True,
        text=True,
        timeout=200,
        cwd=home,
        env=environment,
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout == f"imported {len(files)}\n"
