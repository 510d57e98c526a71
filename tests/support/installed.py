"""The package of somebody else in ``tests/support/plugin``, installed for processes that tests start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PLUGIN = Path(__file__).parent / "plugin"


def install_plugin(folder: Path) -> dict[str, str]:
    """Install it below ``folder``, as pip does without a network, and return the environment that has it."""
    source, target = folder / "source", folder / "installed"
    shutil.copytree(PLUGIN, source)  # the build leaves files beside what it builds
    options = "--quiet --no-deps --no-build-isolation --no-index --disable-pip-version-check --target"
    subprocess.run([sys.executable, "-m", "pip", "install", *options.split(), target, source], check=True)
    paths = [str(target), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
