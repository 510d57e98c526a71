"""What the witness in ``data/witness`` was made with and is held against: the commands, how they are called,
and what counts as equal.

Shared by ``data/witness/make.py`` and ``test_witness.py``. Nothing of the package is imported: everything
goes through the command line, so that no move or rename inside it can break the witness itself.
"""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WITNESS = Path(__file__).parents[1] / "data" / "witness"

NAMES = (
    "demo ask run questions answers summarize score report compare validate bench app import export".split()
)

RENAMED: dict[tuple[str, str], str] = {
    **{(command, "--part"): "--shard" for command in ("run", "questions", "answers")},
    **{(command, "--shard"): "--device-map" for command in ("run", "answers", "summarize", "score")},
    **{(command, "--engine"): "--executor" for command in ("run", "answers", "summarize", "score")},
}
"""``("score", "--se"): "--standard-error"``: flags that were given another name on purpose, by command and
old name. A flag may stand here only where its old spelling still works or is answered with an error that
names the new one."""

REMOVED: dict[tuple[str, str], str] = {
    **{(command, flag): "--budget" for command in ("run", "score") for flag in ("--se", "--race")},
    **{("bench", flag): "--items" for flag in ("--scaling", "--no-scaling")},
    ("bench", "--random-model"): "--judge",
    ("import", "--leave-out"): "whole",
    ("report", "--leave-out"): "guesses",
    ("validate", "--pad"): "ranked",
    ("validate", "--writer"): "template",
}
"""Flags that went on purpose, each with a word of the advice that it is answered with."""

RUN = (
    "run --questions bundled --limit 3 --model smollm2 --judge smollm2 --num-answers 2 --max-new-tokens 12 "
    "--summary-tokens 24 "
    "--num-samples 2 --strategies greedy,basic --guesses 2 --device cpu --out run --json"
)
VALIDATE = (
    "validate ranked.json --judge smollm2 --metrics selfreflect,length,rouge_l --device cpu --out validation "
    "--json"
)
SCORE_ITEMS = "score --items items.json --judge smollm2 --device cpu --json"
SMALL = "--num-answers 1 --max-new-tokens 4 --device cpu --json"

SCORES_ALONE = "--measures selfreflect --no-controls"
"""What was measured at the time. Today's defaults add more, for every summary of a run."""

# Where the fixture itself comes from, in this order. RECORDS is what both make in their folder.
MAKE = {"run": RUN, "validate": VALIDATE}
RECORDS = ("run", "validation")

# Their output is kept in full. Those of CHEAP load no model.
ONLY_SCORES = f"--dry-run {SCORES_ALONE}"
CHEAP = {
    "questions": "questions --questions bundled --limit 4 --json",
    # groups by meaning came later
    "report": "report run --groups spelling --output report.md --output report.csv --output page.html --json",
    "compare": "compare run --baseline greedy --json",
    "answers": "answers --questions bundled --limit 3 --out run --device cpu --json",
    "summarize": "summarize --strategies greedy,basic --out run --device cpu --json",
    "score": f"score --out run --device cpu --json {SCORES_ALONE}",
    "run": f"{RUN} {SCORES_ALONE}",
    "run, dry": f"{RUN} {ONLY_SCORES}",
    "metrics": "validate --list-metrics --json",
    "import": "import --items items.json --out imported",
    "export": "export run --output published",
}
JUDGED = {"score items": f"{SCORE_ITEMS} --words", "validate": VALIDATE}
ESTIMATED = {"score items, estimated": f"{SCORE_ITEMS} --budget 400"}  # which is less than the whole takes
# Costly, or full of times: of their output the keys and types are kept.
COSTLY = {
    "ask": 'ask "Name a planet." --strategies greedy --measures selfreflect --summary-tokens 8 ' + SMALL,
    "bench": "bench --judge tiny --limit 1 --num-answers 1 --json",
    "demo": "demo --out demo --json",
    "run, all to do": f"{RUN.replace('--out run', '--out other')} {ONLY_SCORES}",
    "answers, all to do": "answers --questions bundled --limit 1 --model smollm2 --out new --dry-run "
    + SMALL,
    "score items, dry": f"{SCORE_ITEMS} {ONLY_SCORES}",
    "summarize, all to do": "summarize --strategies cot --out run --device cpu --dry-run --json",
}


class Done:
    """What a command did; ``lines`` are the JSON lines of its stdout."""

    def __init__(self, code: int, stdout: str, stderr: str) -> None:
        self.code, self.stdout, self.stderr = code, stdout, stderr

    @property
    def lines(self) -> list[Any]:
        assert self.code == 0, self.stderr
        return [json.loads(line) for line in self.stdout.splitlines()]


PROCESS = """
import json, os, runpy, sys

outputs = sys.argv[1]
for number, (folder, words) in enumerate(json.load(sys.stdin)):
    for stream, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(f"{outputs}/{number}.{name}", os.O_WRONLY | os.O_CREAT)
        os.dup2(file, stream)
        os.close(file)
    os.chdir(folder)
    sys.argv = ["selfreflect", *words]
    code = 0
    try:
        runpy.run_module("selfreflect", run_name="__main__")
    except SystemExit as end:
        code = int(end.code or 0)
    sys.stdout.flush()
    sys.stderr.flush()
    with open(f"{outputs}/{number}.code", "w") as file:
        file.write(str(code))
"""
"""Runs command lines one after the other as ``python -m selfreflect`` does, so that libraries and models are
loaded once."""


def call(command: str, folder: Path, *, translate: bool = True) -> Done:
    """Run a command line in a folder, see :func:`calls`."""
    return calls({"": (command, folder)}, translate=translate)[""]


def calls(commands: dict[Any, tuple[str, Path]], *, translate: bool = True) -> dict[Any, Done]:
    """Run command lines in one process, each in its folder, with flags as they are named today unless
    ``translate`` is off."""
    requests = []
    for command, folder in commands.values():
        words = shlex.split(command)
        if translate:
            words = [RENAMED.get((words[0], word), word) for word in words]
        requests.append([str(folder), words])
    plain = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "200", "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryDirectory() as outputs:
        subprocess.run(
            [sys.executable, "-c", PROCESS, outputs],
            input=json.dumps(requests),
            env={**os.environ, **plain},
            text=True,
            timeout=280,
            check=True,
        )
        results = {}
        for number, name in enumerate(commands):
            code, stdout, stderr = (
                Path(outputs, f"{number}.{part}").read_text(encoding="utf-8")
                for part in ("code", "stdout", "stderr")
            )
            results[name] = Done(int(code), stdout, stderr)
        return results


def workplace(folder: Path) -> Path:
    """A folder with copies of the kept inputs and records."""
    folder.mkdir(parents=True)
    for name in ("items.json", "ranked.json"):
        shutil.copy(WITNESS / name, folder)
    for name in RECORDS:
        if (WITNESS / name).exists():
            shutil.copytree(WITNESS / name, folder / name)
    return folder


def flags(text: str) -> list[str]:
    """The options that a ``--help`` lists."""
    entries = re.findall(r"^ {2,6}(-.*?)(?: {2,}|$)", text, re.MULTILINE)
    return sorted({flag for entry in entries for flag in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", entry)})


def page_data(page: str) -> dict[str, Any]:
    """What a report page holds for its scripts: JSON, gzipped, in base64."""
    found = re.findall(r'<script type="text/plain" id="([^"]+)">([^<]*)</script>', page)
    return {name: json.loads(gzip.decompress(base64.b64decode(text))) for name, text in found}


def shape(value: Any) -> dict[str, list[str]]:
    """Every key in a value, as a path, with the types of what is there."""
    found: dict[str, set[str]] = {}

    def visit(one: Any, path: str) -> None:
        found.setdefault(path, set()).add(_kind(one))
        if isinstance(one, dict):
            for key, inner in one.items():
                visit(inner, f"{path}.{key}")
        elif isinstance(one, list):
            for inner in one:
                visit(inner, f"{path}[]")

    visit(value, "")
    return {path: sorted(kinds) for path, kinds in sorted(found.items())}


def _kind(value: Any) -> str:
    return (
        "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
    )


def lost(kept: dict[str, list[str]], now: dict[str, list[str]]) -> list[str]:
    """What of a kept shape is gone or has another type now. More keys are no loss."""
    found = [f"lost: {path}" for path in kept if path not in now]
    return found + [
        f"retyped: {path}, {kept[path]} -> {now[path]}"
        for path in kept
        if path in now and not {*now[path]} <= {*kept[path]}
    ]


# Differ between machines and moments, or tell which code it was.
_PASSING = frozenset("seconds wall_time packages selfreflect version path".split())
# Written for people and may be said better; what numbers they state may not change.
_WORDING = frozenset("says sentence title table notes note message about".split())


def differences(kept: Any, now: Any, path: str = "", tolerance: float = 1e-6) -> list[str]:
    """Where two values differ: numbers by more than the tolerance, wording in its numbers, all else at all.
    New keys are allowed."""
    if isinstance(kept, dict) and isinstance(now, dict):
        found = [f"{path}.{key}: lost" for key in kept if key not in now]
        for key in (key for key in kept if key in now and key not in _PASSING):
            old, new = (numbers(str(one[key])) if key in _WORDING else one[key] for one in (kept, now))
            found += differences(old, new, f"{path}.{key}", tolerance)
        return found
    if isinstance(kept, list) and isinstance(now, list):
        if len(kept) != len(now):
            return [f"{path}: {len(kept)} -> {len(now)} entries"]
        return [
            one
            for place, pair in enumerate(zip(kept, now, strict=True))
            for one in differences(*pair, f"{path}[{place}]", tolerance)
        ]
    if _kind(kept) == _kind(now) == "number":
        # Guesses are stored to four digits, so a change of 1e-9 before rounding can move the last one.
        last_digit = 10.0 ** (math.floor(math.log10(abs(kept))) - 3) if ".guesses[" in path and kept else 0.0
        close = math.isclose(kept, now, rel_tol=tolerance, abs_tol=max(tolerance, 1.01 * last_digit))
        return [] if close else [f"{path}: {kept} -> {now}"]
    return [] if kept == now else [f"{path}: {kept!r} -> {now!r}"]


def numbers(text: str) -> list[float]:
    """The numbers in a text, in order, without signs, which are set in several ways."""
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", text)]


def records(folder: Path) -> dict[str, Any]:
    """Every record file, table and finding of a directory, by its path in it."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".jsonl":
            found[name] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        elif path.suffix == ".json":
            found[name] = json.loads(path.read_text(encoding="utf-8"))
        elif path.suffix == ".csv":
            found[name] = table(path.read_text(encoding="utf-8"))
        elif path.suffix == ".md":
            found[name] = numbers(path.read_text(encoding="utf-8").split("### Made with")[0])
    return found


def table(text: str) -> list[dict[str, Any]]:
    """The rows of a CSV by their columns, with numbers as numbers."""
    return [{key: _number(cell) for key, cell in row.items()} for row in csv.DictReader(io.StringIO(text))]


def _number(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return cell
