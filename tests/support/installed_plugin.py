"""The package in ``plugin/`` as an installed one, for commands as processes of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent / "plugin"


def install_plugin(folder: Path) -> Path:
    """Install the package with pip into a folder for PYTHONPATH, and return that."""
    source, target = folder / "source", folder / "installed"
    shutil.copytree(SOURCE, source)  # a build leaves files
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(target), str(source)]
    subprocess.run([*pip, *options], check=True, timeout=200, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    return target
