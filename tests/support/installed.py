"""Packages of somebody else, such as the one in ``tests/support/plugin``, for this process and others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from selfreflect.metric import measure
from selfreflect.models import backend
from selfreflect.sources import layouts

PLUGIN = Path(__file__).parent / "plugin"
_FOUND = (measure._entry_points, measure._load, backend._entry_points, backend._load, layouts._entry_points)


@cache
def plugin_folder() -> Path:
    """Install the package of ``plugin/`` once for this process, as pip does without a network."""
    folder = Path(mkdtemp(prefix="selfreflect-plugin-"))
    source, target = folder / "source", folder / "installed"
    shutil.copytree(PLUGIN, source)  # the build leaves files beside what it builds
    options = "--quiet --no-deps --no-build-isolation --no-index --disable-pip-version-check --target"
    subprocess.run([sys.executable, "-m", "pip", "install", *options.split(), target, source], check=True)
    return target


@contextmanager
def installed(folder: Path) -> Iterator[None]:
    """Let this process, and those that it starts, see the packages in a folder."""
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    modules = {*sys.modules}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        patch.syspath_prepend(folder)
        for found in _FOUND:
            found.cache_clear()
        yield
    for found in _FOUND:
        found.cache_clear()
    for name in {*sys.modules} - modules:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
