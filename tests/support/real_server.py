"""``transformers serve`` with the embedded model on loopback: a real OpenAI-compatible server. Its start
takes half a minute."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from command import environment
from serving import Server

STARTED = re.compile(r"running on (http://127\.0\.0\.1:[1-9]\d*)")


def sampling_model(folder: Path) -> Path:
    """The embedded model, told to sample: this server takes that from the model alone, whatever temperature
    it is sent."""
    from selfreflect.models.smollm2 import model_directory

    for file in model_directory().iterdir():
        (folder / file.name).symlink_to(file)
    settings = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    (folder / "generation_config.json").unlink()
    (folder / "generation_config.json").write_text(
        json.dumps({**settings, "do_sample": True}), encoding="utf-8"
    )
    return folder


@contextmanager
def transformers_serve(model: Path, log: Path) -> Iterator[Server]:
    """The server of a model directory, which may still be starting."""
    options = ["--host", "127.0.0.1", "--port", "0", "--device", "cpu", "--dtype", "float32"]
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(model), *options]
    started = Server(command, environment(), log)
    try:
        yield started
    finally:
        started.stop()


def address(server: Server) -> str:
    """Where it listens: the system chose the port when the server bound it, so that nobody else can have
    taken it."""

    def said() -> str | None:
        started = STARTED.search(server.said())
        return started and started[1]

    return f"{server.wait(said, 600)}/v1"
