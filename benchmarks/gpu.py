"""Checks and times the package on a CUDA GPU, in one command of at most nine minutes, into one JSON file.

    make gpu-kit                                  where there is a package index: wheels and a tokenizer
    python benchmarks/gpu.py --out gpu.json       on the machine with the GPU
    python benchmarks/gpu.py --smoke              the same on a CPU with tiny shapes, in less than a minute

Needs torch and transformers, nothing else: selfreflect is read from src, and what it needs besides comes from
the kit in build/gpu-kit, if the machine lacks it. Weights are random, so none are downloaded.

Each part is a process of its own with a limit in seconds. It writes a line for every result, and the file is
written anew after every line: a part that crashes or takes too long costs only what it had not measured.

  card         the rates that everything else is compared with: matrix products, copies, attention kernels
  paths        every path against float64 on a CPU: attention, decoders, engines, caches, generation
  engine       Qwen2.5-7B: seconds per question, share of the card's peak, memory, where the host waits
  information  usable information of the same question
  generation   100 samples of one prompt, against transformers' generate
  engine-llama the engine part at the shape of Llama-3.1-8B
  scaling      more answers, more summaries
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
KIT = REPOSITORY / "build" / "gpu-kit"
SECONDS = 540.0
STDERR_KEPT = 2000
"""Letters of what a failed part wrote last."""

Row = dict[str, Any]


class Part(NamedTuple):
    """A function of gpu_parts, its arguments, and the seconds that it may take."""

    module: str
    function: str
    seconds: float
    arguments: tuple[str, ...] = ()


PARTS = {
    "card": Part("card", "measure_card", 60),
    "paths": Part("paths", "check_paths", 150),
    "engine": Part("speed", "time_engine", 120, ("qwen2.5-7b",)),
    "information": Part("speed", "time_information", 80, ("qwen2.5-7b",)),
    "generation": Part("speed", "time_generation", 110, ("qwen2.5-7b",)),
    "engine-llama": Part("speed", "time_engine", 110, ("llama-3.1-8b",)),
    "scaling": Part("speed", "time_scaling", 120, ("qwen2.5-7b",)),
}


class StoppedError(Exception):
    """Why a part has not written all its results."""


def run_part(command: Sequence[str], seconds: float) -> Iterator[Row]:
    """Run a command that writes a JSON object per line, and yield these as they come.

    Raises:
        StoppedError: it took longer than ``seconds`` and was killed, or it failed.
    """
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            errors="replace",
        )
        killer = threading.Timer(seconds, process.kill)
        killer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
            status = process.wait()
        finally:
            killer.cancel()
            process.kill()
            process.wait()
        if time.monotonic() >= deadline:
            raise StoppedError(f"took longer than {seconds:.0f} s")
        if status:
            errors.seek(0)
            raise StoppedError(f"exit status {status}: {errors.read()[-STDERR_KEPT:].strip()}")


def run_parts(names: Sequence[str], report: Row, out: Path, arguments: argparse.Namespace) -> None:
    """Run parts one after the other into ``report``, and write it to ``out`` after every result."""
    end = time.monotonic() + arguments.seconds
    for name in names:
        started = time.monotonic()
        outcome: Row = {"part": name, "stopped": None}
        report["parts"].append(outcome)
        limit = min(PARTS[name].seconds, end - started)
        command = [sys.executable, str(Path(__file__).resolve()), "--part", name]
        if arguments.smoke:
            command.append("--smoke")
            os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads take longer to meet than such shapes take
        print(f"{name} (at most {max(0, limit):.0f} s)", file=sys.stderr, flush=True)
        try:
            if limit <= 0:
                raise StoppedError(f"not started: the {arguments.seconds:.0f} s of --seconds were over")
            for row in run_part(command, limit):
                report["results"].append({"part": name, **row})
                write(report, out)
        except StoppedError as reason:
            outcome["stopped"] = str(reason)
            print(f"{name}: {reason}", file=sys.stderr, flush=True)
        outcome["seconds"] = round(time.monotonic() - started, 1)
        write(report, out)


def write(report: Row, out: Path) -> None:
    """Replace the file at once, so that it is whole whenever it is read."""
    partial = out.with_name(f"{out.name}.partial")
    partial.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    partial.replace(out)


def table(report: Row) -> str:
    """One line per result: part, what, value, unit, target and whether it is met."""
    lines = [("part", "what", "value", "unit", "target", "")]
    for row in report["results"]:
        verdict = {True: "ok", False: "MISSED", None: ""}[row["ok"]]
        target = "" if row["target"] is None else f"{row['relation']} {row['target']:g}"
        value = row["value"]
        number = f"{value:.4g}" if isinstance(value, float) else str(value)
        lines.append((row["part"], row["name"], number, row["unit"], target, verdict))
    for part in report["parts"]:
        if part["stopped"]:
            lines.append((part["part"], part["stopped"].splitlines()[-1][:80], "", "", "", "STOPPED"))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
    ]
    return "\n".join(line.rstrip() for line in padded)


def provide_packages(scratch: Path) -> None:
    """Make selfreflect importable from src, and what is missing of its dependencies from the kit's wheels."""
    sys.path.insert(0, str(REPOSITORY / "src"))
    missing = [name for name in ("msgspec", "psutil", "jinja2", "markupsafe") if find_spec(name) is None]
    if not missing:
        return
    for wheel in sorted((KIT / "wheels").glob("*.whl")):
        if wheel.name.split("-")[0].lower() in missing:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(scratch)
    sys.path.append(str(scratch))  # last, so that the machine's own packages are preferred
    still = [name for name in missing if find_spec(name) is None]
    if still:
        sys.exit(
            f"{', '.join(still)} cannot be imported, and {KIT} has no such wheel. Run make gpu-kit where "
            "there is a package index, and bring that folder along."
        )


def call_part(name: str, *, smoke: bool) -> None:
    """Run a part in this process; its results go to stdout, one JSON object per line."""
    part = PARTS[name]
    with tempfile.TemporaryDirectory() as scratch:
        provide_packages(Path(scratch))
        from importlib import import_module

        from gpu_parts.setting import Setting

        tokenizer = KIT / "tokenizer"
        setting = Setting(smoke=smoke, tokenizer=tokenizer if tokenizer.is_dir() else None)
        getattr(import_module(f"gpu_parts.{part.module}"), part.function)(setting, *part.arguments)


def describe_run(*, smoke: bool) -> Row:
    """The device, versions and date. Exits where there is no GPU and none was renounced."""
    import torch

    has_gpu = torch.cuda.is_available()
    if not smoke and not has_gpu:
        sys.exit(
            f"torch {torch.__version__} sees no CUDA GPU, so there is nothing to measure. Run this on a "
            "machine with one, or try everything on this CPU with tiny shapes: "
            "python benchmarks/gpu.py --smoke"
        )
    device = "cpu" if smoke else "cuda"
    facts: Row = {"device": platform.processor() or platform.machine()}
    if not smoke:
        properties = torch.cuda.get_device_properties(0)
        facts = {
            "device": properties.name,
            "memory_bytes": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
            "capability": f"{properties.major}.{properties.minor}",
            "cuda": torch.version.cuda,
        }
    import transformers

    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "smoke": smoke,
        "kind": device,
        **facts,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
        "cores": os.cpu_count(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=REPOSITORY / "build" / "gpu.json", help="where the JSON goes"
    )
    parser.add_argument("--smoke", action="store_true", help="tiny shapes on the CPU; the times mean nothing")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="for all parts together (%(default).0f)"
    )
    parser.add_argument("--only", metavar="PARTS", help="some parts, separated by commas")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        call_part(arguments.part, smoke=arguments.smoke)
        return
    names = arguments.only.split(",") if arguments.only else list(PARTS)
    if arguments.smoke and not arguments.only:
        names.remove("engine-llama")  # there is one tiny shape
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"--only: no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    report = {"run": describe_run(smoke=arguments.smoke), "parts": [], "results": []}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    run_parts(names, report, arguments.out, arguments)
    print(table(report))
    print(arguments.out)
    missed = any(row["ok"] is False and row["exact"] for row in report["results"])
    sys.exit(1 if missed or any(part["stopped"] for part in report["parts"]) else 0)


if __name__ == "__main__":
    main()
