"""Threads: how many cores may be used, read from trees that look like /sys; defaults of libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from selfreflect.models.local.machine import usable_threads


def machine(root: Path, cores: int = 4, threads_per_core: int = 1, quota: str = "max 100000") -> Path:
    """CPU c and c + cores are two threads of core c."""
    for cpu in range(cores * threads_per_core):
        siblings = [str(cpu % cores + cores * i) for i in range(threads_per_core)]
        topology = f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        write(root / topology, ",".join(siblings) + "\n")
    write(root / "sys/fs/cgroup/cpu.max", quota + "\n")
    return root


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def usable(root: Path, cpus: int = 4) -> int:
    return usable_threads(root, allowed=set(range(cpus)))


@pytest.fixture(autouse=True)
def no_explicit_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


# --- what is allowed


def test_hyperthreads_share_a_core(tmp_path):
    root = machine(tmp_path, cores=4, threads_per_core=2)
    assert usable(root, cpus=8) == 4
    assert usable_threads(root, allowed={1, 5}) == 1
    assert usable_threads(root, allowed={0, 5}) == 2


@pytest.mark.parametrize(
    ("quota", "threads"),
    [
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("10000 100000", 1),
        ("max 100000", 4),
        ("800000 100000", 4),
        ("", 4),
    ],
)
def test_a_quota_limits(tmp_path, quota, threads):
    assert usable(machine(tmp_path, quota=quota)) == threads


@pytest.mark.parametrize(("value", "threads"), [("3", 3), ("", 1), ("0", 1), ("-2", 1), ("many", 1)])
def test_an_explicit_number_wins(tmp_path, monkeypatch, value, threads):
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert usable(machine(tmp_path, quota="100000 100000")) == threads


# --- what torch gets


def in_a_fresh_process(code: str, **environment: str) -> str:
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    return done.stdout.strip()


LIMIT = """
import os, torch
from selfreflect.models.local.machine import limit_threads
for said, before in ((None, 64), ("3", 64), ("3", 2)):
    os.environ.update({"OMP_NUM_THREADS": said} if said else {})
    torch.set_num_threads(before)
    print(limit_threads(), torch.get_num_threads())
"""


def test_torch_gets_the_threads_that_are_usable_or_said_and_a_lower_number_of_the_program_stays():
    usable, said, lower = in_a_fresh_process(LIMIT).splitlines()
    assert usable == f"{usable_threads()} {usable_threads()}"
    assert (said, lower) == ("3 3", "2 2")


# --- defaults of the libraries


NAMES = ("OMP_WAIT_POLICY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
DEFAULTS = f"""
import os
from selfreflect.models.local.machine import set_library_defaults
set_library_defaults()
print(*map(os.environ.get, {NAMES}))
"""


@pytest.fixture
def no_library_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_what_a_user_has_set_stays(no_library_settings):
    assert in_a_fresh_process(DEFAULTS) == "PASSIVE 64 64"
    said = in_a_fresh_process(DEFAULTS, OMP_WAIT_POLICY="ACTIVE", LRU_CACHE_CAPACITY="8")
    assert said == "ACTIVE 64 8"
