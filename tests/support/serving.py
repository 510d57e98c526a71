"""Real servers that tests start: processes of their own, with a log that is shown when something fails, and
nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from fault_server import unused_port

from selfreflect.models.smollm2 import model_directory

T = TypeVar("T")


class Server:
    """A command that serves until :meth:`stop`, which ends its children too."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                command, stdout=file, stderr=file, env=environment, start_new_session=True
            )

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait(self, ready: Callable[[], T | None], seconds: float) -> T:
        """What ``ready`` gives, which is called until it gives something."""
        deadline = time.monotonic() + seconds
        with self.explaining():
            while (found := ready()) is None:
                assert self._process.poll() is None, "the server has ended"
                assert time.monotonic() < deadline, f"the server is not ready after {seconds} s"
                time.sleep(0.1)
        return found

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """An error that happens meanwhile is shown with the end of the log."""
        try:
            yield
        except BaseException as error:
            error.add_note(f"The server said:\n{self.said()[-5000:]}")
            raise

    def stop(self) -> None:
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


@contextmanager
def vllm_server(environment: Mapping[str, str], log: Path, *options: str) -> Iterator[str]:
    """The address of ``vllm serve`` with the embedded model in float32, ended with all its processes. Needs
    the Python in $VLLM_PYTHON."""
    port = unused_port()
    start = [os.environ["VLLM_PYTHON"], "-m", "vllm.entrypoints.cli.main", "serve"]
    place = ["--host", "127.0.0.1", "--port", str(port)]
    command = [*start, str(model_directory(print)), *place, "--dtype", "float32", "--enforce-eager", *options]
    server = Server(command, environment, log)
    try:
        server.wait(lambda: _is_healthy(f"http://127.0.0.1:{port}/health"), 900)
        with server.explaining():
            yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.stop()


def _is_healthy(url: str) -> bool | None:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return None
