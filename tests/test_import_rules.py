"""Who may import whom. The rules keep each stage readable on its own, and keep a light command from loading
torch."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

import selfreflect
from selfreflect.models.backend import BACKENDS

ROOT = Path(selfreflect.__file__).parent
LAYERS = (
    ("atomic", "errors", "grouping", "logprobs", "stats", "text", "traits"),
    ("quantities",),
    ("numerals",),
    ("sameness",),
    ("flags", "plots", "plugins", "removed", "table"),
    ("records",),
    ("models",),
    ("prompts", "sources"),
    ("answers", "strategies", "metric"),
    ("store",),
    ("report", "settings"),
    ("validate", "bench", "uncertainty"),
    ("inspect", "train"),
    ("run",),
    ("server",),
    ("cli",),
    ("__main__",),
)
"""Packages and loose modules, from low to high: one imports only what is lower, and never another of its own
row."""

STAGES = ("sources", "answers", "strategies", "metric")
GENERATORS = (
    "models.local.generator",
    "models.openai",
    "models.vllm",
    "models.local.decode",
    "models.local.step",
)
TORCH = {
    "metric.distance",
    *(f"metric.engine.{name}" for name in "engines logits attention kernels".split()),
    *(f"models.{name}" for name in "judge smollm2 embed".split()),
    *(f"models.local.{name}" for name in "loading machine generator pretrained".split()),
    *(f"models.local.{name}" for name in "decode step layers plain".split()),
    "models.vllm.judge",
    "bench",
}
OPTIONAL = (
    "pandas",
    "pyarrow",
    "datasets",
    "matplotlib",
    "sklearn",
    "openai",
    "vllm",
    "rouge_score",
    "ot",
    "scipy",
    "ray",
    "wandb",
    "mlflow",
    "trl",
    "peft",
    "inspect_ai",
    "openpyxl",
)


class Import(NamedTuple):
    importer: str
    target: str
    inside: bool
    """In a function, so that it happens on use."""


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = {dotted(path): path for path in sorted(ROOT.rglob("*.py"))}


def _walk(node: ast.AST, inside: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Every node that runs; what only the type checker reads is left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        within = inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield child, within
        yield from _walk(child, within)


def _targets(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        module = str(node.module)
        return [
            f"{module}.{alias.name}"
            if f"{module}.{alias.name}".removeprefix("selfreflect.") in PATHS
            else module
            for alias in node.names
        ]
    return []


@cache
def imports() -> list[Import]:
    """Every import of the package."""
    return [
        Import(importer, target, inside)
        for importer, path in PATHS.items()
        for node, inside in _walk(ast.parse(path.read_text(encoding="utf-8")), False)
        for target in _targets(node)
    ]


def under(module: str, *tops: str) -> bool:
    return any(module == top or module.startswith(top + ".") for top in tops)


def named(target: str) -> str:
    """A module as this package names it; another, such as ``inspect`` of Python, is outside."""
    return target.removeprefix("selfreflect.") if under(target, "selfreflect") else f"outside {target}"


def ours(importer: str) -> set[str]:
    """Modules of this package that ``importer``, or one below it, imports."""
    found = {
        one.target.removeprefix("selfreflect.")
        for one in imports()
        if under(one.importer, importer) and under(one.target, "selfreflect")
    }
    return {target for target in found if not under(target, importer)}


def test_the_walk_sees_the_package() -> None:
    assert {
        "records",
        "cli.score",
        "metric.engine.engines",
        "models.local.generator",
        "report.overview",
    } <= PATHS.keys()
    assert ours("answers") == {"models.base", "prompts", "records"}
    assert Import("sources.parsers", "pyarrow", True) in imports()


def top(module: str) -> str:
    return module.partition(".")[0]


def test_every_package_has_a_place_in_the_layers() -> None:
    assert {top(module) for module in PATHS if module} == {name for layer in LAYERS for name in layer}


def test_lower_packages_never_import_higher_ones() -> None:
    height = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    wrong = []
    for one in imports():
        target = named(one.target)
        if not (one.importer and target and target in PATHS) or top(target) == top(one.importer):
            continue
        if height[top(target)] >= height[top(one.importer)]:
            wrong.append(f"{one.importer} imports {target}")
    assert wrong == []


def test_there_are_no_cycles_between_modules() -> None:
    """Imports inside functions count too: a cycle that works is still two modules that cannot be read one
    after the other."""
    graph: dict[str, set[str]] = {module: set() for module in PATHS}
    for one in imports():
        target = named(one.target)
        if target in PATHS and target != one.importer:
            graph[one.importer].add(target)
    assert list(TopologicalSorter(graph).static_order())


@pytest.mark.parametrize(
    "module", ["errors", "stats", "metric.distance", "text", "atomic", "grouping", "models.reasoning"]
)
def test_the_ground_stands_on_nothing(module: str) -> None:
    assert ours(module) == set()


@pytest.mark.parametrize("stage", STAGES)
def test_stages_know_neither_each_other_nor_the_disk(stage: str) -> None:
    others = [other for other in STAGES if other != stage]
    assert {
        target
        for target in ours(stage)
        if under(target, *others, "store", "settings", "run", "report", "cli")
    } == set()


def test_the_metric_takes_a_judge_and_never_a_generator() -> None:
    assert {target for target in ours("metric") if under(target, *GENERATORS)} == set()
    assert {
        target
        for module in (*GENERATORS, "models.judge")
        for target in ours(module)
        if under(target, "metric")
    } == set()


def test_torch_stays_where_tensors_are() -> None:
    assert {one.importer for one in imports() if under(one.target, "torch")} <= TORCH


def test_nothing_imports_the_command_line() -> None:
    importers = {
        one.importer
        for one in imports()
        if under(one.target, "selfreflect.cli") and not under(one.importer, "cli")
    }
    assert importers == {"__main__"}  # which is the command line


def test_reports_run_no_model() -> None:
    ground = ("errors", "logprobs", "records", "stats", "text", "traits", "grouping", "sameness", "table")
    allowed = (*ground, "plots", "removed", "metric.measure")
    assert {target for target in ours("report") if not under(target, *allowed)} == set()


def importers_of(module: str) -> set[str]:
    return {one.importer for one in imports() if under(one.target, module)}


JOINING = ("run.experiment", "run.dry_run", "run.resume", "run.todo", "run.records")
"""The part of ``run`` that sees the run directory."""


def test_only_the_experiment_joins_settings_and_disk() -> None:
    settings, disk = importers_of("selfreflect.settings"), importers_of("selfreflect.store.run")
    assert {module for module in settings if not under(module, "settings", "run", "cli", "server")} == set()
    assert {module for module in disk if under(module, "run") and module not in JOINING} == set()
    assert {module for module in disk if not under(module, "run", "store", "cli", "server")} == set()


@pytest.mark.parametrize("module", ["models", "stages", "executors", "ray_executor"])
def test_work_elsewhere_never_sees_the_run_directory(module: str) -> None:
    higher = ("store", *JOINING, "report", "cli", "server")
    assert {target for target in ours(f"run.{module}") if under(target, *higher)} == set()


EXAMPLES = {("settings", "openai:gpt-4o-mini"), ("server.reply", "function")}
"""Names of models that people read, in the template of the settings; and a word of OpenAI's API."""


def messages_read_in(tree: ast.AST) -> Iterator[str]:
    """Yield what looks for words in the message of an error: ``in``, a pattern, ``replace`` and the like."""
    searches = ("search", "match", "fullmatch", "findall", "sub", "replace", "startswith", "endswith", "find")
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(isinstance(one, ast.In | ast.NotIn) for one in node.ops):
            operands: list[ast.AST] = list(node.comparators)
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in searches
        ):
            operands = [node.func.value, *node.args]
        else:
            continue
        if {"str(error)", "error.message"} & {ast.unparse(operand) for operand in operands}:
            yield ast.unparse(node)


def test_no_module_reads_the_words_of_an_error() -> None:
    source = Path(selfreflect.__file__).parent
    code = "'HTTP 401' in str(error); re.search('x', str(error)); str(error).replace('--a', 'b')"
    assert len([*messages_read_in(ast.parse(code))]) == 3
    found = {
        path.name: [*messages_read_in(ast.parse(path.read_text("utf-8")))] for path in source.rglob("*.py")
    }
    assert {name: calls for name, calls in found.items() if calls} == {}


def backends_named_in(tree: ast.AST) -> Iterator[str]:
    """Strings that are a backend's name or begin with its prefix. Help texts may name one in a sentence;
    ``local`` is an executor, too."""
    names = set(BACKENDS) - {"local"}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and (text in names or text.startswith(tuple(f"{name}:" for name in names))):
            yield text


def test_only_models_know_which_backends_there_are() -> None:
    code = 'kind == "vllm" or name.startswith("vllm+http:") or f"openai:{name}" or "a function: yes"'
    assert {*backends_named_in(ast.parse(code))} == {"vllm", "vllm+http:", "openai:"}
    found = {
        (module, text)
        for module, path in PATHS.items()
        if not under(module, "models")
        for text in backends_named_in(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == EXAMPLES


NAME_MEASURES = {
    **dict.fromkeys(("store.manifest", "store.run", "report.run_records"), "files of run directories"),
    **dict.fromkeys(("report.reflection", "report.page.view", "server.work"), "keys of pages and of Python"),
    **dict.fromkeys(("validate.base", "validate.judged"), "metrics of the paper's studies"),
}
"""Modules outside of ``metric`` that may know a measure by name or record, and why."""


def measures_named_in(tree: ast.AST) -> Iterator[str]:
    """Strings that name the second measure, alone or in a list, and imports of its record. The name of the
    first one is that of the package, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if "\n" not in node.value and "information" in node.value.split(","):
                yield node.value
        elif isinstance(node, ast.ImportFrom) and node.module == "selfreflect.records":
            yield from (alias.name for alias in node.names if alias.name == "Information")


def test_few_modules_know_which_measures_there_are() -> None:
    code = 'f("selfreflect,information"); from selfreflect.records import Information, Score'
    assert {*measures_named_in(ast.parse(code))} == {"Information", "selfreflect,information"}
    naming = {
        module
        for module, path in PATHS.items()
        if module
        and not under(module, "metric", "records")
        and any(measures_named_in(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert naming == NAME_MEASURES.keys()


def test_the_web_stack_stays_in_the_servers_which_only_their_commands_load() -> None:
    web_stack = ("fastapi", "starlette", "uvicorn", "prometheus_client")
    outside = [one for one in imports() if not under(one.importer, "server")]
    assert not [one.importer for one in outside if under(one.target, *web_stack)]
    loading = [one for one in outside if under(one.target, "selfreflect.server")]
    assert {one.importer for one in loading} == {"cli.servers"}
    assert all(one.inside for one in loading)


@pytest.mark.parametrize("package", OPTIONAL)
def test_optional_packages_are_imported_on_use(package: str) -> None:
    found = [one for one in imports() if under(one.target, package)]
    assert found
    assert all(one.inside for one in found)


HEAVY = "torch transformers numpy tokenizers huggingface_hub pandas pyarrow datasets"


UNUSED_IN_SCORING = {
    *("store", "strategies", "answers", "uncertainty", "validate", "bench", "train"),
    "server",
}
MOST_FOR_LINES, MOST_FOR_TABLES = 66, 76
"""Modules of this package that `score --items` loads at most."""


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=200, check=True
    )
    assert done.stderr == ""
    return done.stdout


def test_importing_the_package_is_silent_and_light() -> None:
    said = python(
        "import selfreflect, sys; dir(selfreflect); "
        f"loaded = sorted(set('{HEAVY}'.split()) & set(sys.modules)); assert not loaded, loaded"
    )
    assert said == ""


def test_help_loads_nothing_heavy() -> None:
    code = f"""
import atexit, sys
from selfreflect.cli import main
atexit.register(lambda: print("LOADED", sorted(set("{HEAVY}".split()) & set(sys.modules))))
sys.argv = ["selfreflect", "run", "--help"]
main()
"""
    said = python(code)
    assert "--num-answers" in said
    assert said.endswith("LOADED []\n")


def test_scoring_a_file_loads_what_it_needs(tmp_path: Path) -> None:
    """First its lines are printed, then its tables, which need most of the report. The embedded model does
    neither this nor draw answers with transformers, whose import takes longer than a small file."""
    item = {"question": "Who?", "answers": ["Ann", "Bob"], "summary": "Ann or Bob."}
    file = tmp_path / "items.json"
    file.write_text(json.dumps([item]))
    command = ["selfreflect", "score", "--items", str(file), "--no-controls"]
    code = f"""
import sys
from contextlib import suppress
from selfreflect.cli import main
for options in (["--json"], []):
    sys.argv = {command} + options
    with suppress(SystemExit):
        main()
    print("LOADED", *(name for name in sys.modules if name.startswith("selfreflect")))
from selfreflect.models.base import Message, Request, Sampling
from selfreflect.models.local.generator import HFGenerator
request = Request(messages=(Message(role="user", content="Hi"),), sampling=Sampling(max_new_tokens=2))
HFGenerator.load("smollm2", device="cpu").generate([request])
print("HEAVY", *{{"transformers", "torch._dynamo", "scipy", "sympy"}} & sys.modules.keys())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True
    )
    lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("LOADED")]
    for modules, most in zip(lines, (MOST_FOR_LINES, MOST_FOR_TABLES), strict=True):
        assert "selfreflect.metric.scorer" in modules
        packages = {top(name.removeprefix("selfreflect.")) for name in modules}
        assert packages.isdisjoint(UNUSED_IN_SCORING)
        assert len(modules) <= most
    assert done.stdout.splitlines()[-1] == "HEAVY"


def test_every_public_name_is_there() -> None:
    found = {name: getattr(selfreflect, name) for name in selfreflect.__all__}
    assert found["SelfReflect"].__name__ == "SelfReflect"
    assert found["__version__"] == selfreflect.__version__
    assert all(name in dir(selfreflect) for name in found)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = selfreflect.Nothing


BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.parametrize("path", sorted(BENCHMARKS.rglob("*.py")), ids=lambda path: path.name)
def test_what_a_benchmark_imports_is_there(path: Path) -> None:
    """Most of them run for hours, and nobody would see it until then."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("selfreflect"):
            module = import_module(str(node.module))
            for alias in node.names:
                assert hasattr(module, alias.name) or find_spec(f"{node.module}.{alias.name}"), alias.name
