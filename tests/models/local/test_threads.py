"""Threads: how many cores may be used, read from trees that look like /proc and /sys; defaults of
libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.models.local.threads import Threads, usable_threads


def machine(
    root: Path, cores: int = 4, threads_per_core: int = 1, *, groups: str = "0::/", **quotas: str
) -> Path:
    """CPU c and c + cores are two threads of core c. ``quotas`` are files below /sys/fs/cgroup, with __ for /
    and no suffix."""
    for cpu in range(cores * threads_per_core):
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        siblings = [str(cpu % cores + cores * i) for i in range(threads_per_core)]
        (topology / "thread_siblings_list").write_text(",".join(siblings) + "\n")
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups + "\n")
    for name, content in quotas.items():
        write(root / "sys/fs/cgroup" / name.replace("__", "/").replace("cpu_max", "cpu.max"), content)
    return root


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def usable(root: Path, cpus: int = 4) -> Threads:
    return usable_threads(root, allowed=set(range(cpus)))


@pytest.fixture(autouse=True)
def no_explicit_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


# --- what is allowed


def test_one_thread_for_each_core(tmp_path):
    chosen = usable(machine(tmp_path))
    assert (chosen.count, str(chosen)) == (4, "4 threads (4 cores allowed)")


def test_hyperthreads_share_a_core(tmp_path):
    root = machine(tmp_path, cores=4, threads_per_core=2)
    assert usable(root, cpus=8).count == 4
    assert usable_threads(root, allowed={1, 5}).count == 1
    assert usable_threads(root, allowed={0, 5}).count == 2


def test_affinity_limits(tmp_path):
    assert str(usable(machine(tmp_path), cpus=1)) == "1 thread (1 core allowed)"


def test_the_affinity_of_this_process_is_the_default(tmp_path):
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert usable_threads(tmp_path).count == allowed


@pytest.mark.parametrize(
    ("quota", "threads"),
    [
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("10000 100000", 1),
        ("max 100000", 4),
        ("800000 100000", 4),
    ],
)
def test_a_quota_limits(tmp_path, quota, threads):
    assert usable(machine(tmp_path, cpu_max=quota)).count == threads


def test_the_quota_is_said(tmp_path):
    assert (
        str(usable(machine(tmp_path, cpu_max="150000 100000")))
        == "2 threads (4 cores allowed, a quota of 1.5)"
    )


def test_the_tightest_group_above_the_process_counts(tmp_path):
    root = machine(
        tmp_path,
        groups="0::/outer/mine",
        outer__cpu_max="100000 100000",
        outer__mine__cpu_max="300000 100000",
        other__cpu_max="1000 100000",
    )
    assert usable(root).count == 1


def test_a_container_that_sees_the_path_of_its_host(tmp_path):
    assert usable(machine(tmp_path, groups="0::/../../docker/abc", cpu_max="300000 100000")).count == 3


@pytest.mark.parametrize("controllers", ["cpu", "cpu,cpuacct"])
@pytest.mark.parametrize(("quota", "threads"), [("200000", 2), ("-1", 4)])
def test_quotas_of_the_first_version(tmp_path, controllers, quota, threads):
    root = machine(tmp_path, groups=f"9:name=systemd:/\n3:cpuset:/x\n4:{controllers}:/pod/box\n0::/")
    write(root / "sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", quota)
    write(root / "sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", "100000")
    assert usable(root).count == threads


@pytest.mark.parametrize(
    ("value", "threads"), [("3", 3), ("3,2", 3), ("", 1), ("0", 1), ("-2", 1), ("many", 1)]
)
def test_an_explicit_number_wins(tmp_path, monkeypatch, value, threads):
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    found = usable(machine(tmp_path, cpu_max="100000 100000"))
    assert found.count == threads
    assert (found.reason == "OMP_NUM_THREADS") == (threads == 3)


@given(
    groups=st.text(alphabet="0:/.,cpu\n", max_size=40),
    quota=st.text(alphabet="max019 -\n", max_size=12),
)
def test_whatever_the_system_says_there_is_an_answer(tmp_path_factory, groups, quota):
    root = tmp_path_factory.mktemp("odd")
    write(root / "proc/self/cgroup", groups)
    write(root / "sys/fs/cgroup/cpu.max", quota)
    assert 1 <= usable(root).count <= 4


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
        timeout=120,
        check=True,
    )
    return done.stdout.strip()


LIMIT = """
import torch
from selfreflect.models.local.threads import limit_threads
torch.set_num_threads({before})
threads = limit_threads()
print(threads.count == torch.get_num_threads(), threads)
"""


def test_torch_gets_the_threads_that_are_said():
    assert in_a_fresh_process(LIMIT.format(before=64)) == f"True {usable_threads()}"
    said = in_a_fresh_process(LIMIT.format(before=64), OMP_NUM_THREADS="3")
    assert said == "True 3 threads (OMP_NUM_THREADS)"


def test_a_lower_number_that_the_program_has_set_stays():
    said = in_a_fresh_process(LIMIT.format(before=2), OMP_NUM_THREADS="3")
    assert said == "True 2 threads (as set for torch)"


# --- defaults of the libraries


NAMES = ("OMP_WAIT_POLICY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
DEFAULTS = f"""
import os
from selfreflect.models.local.threads import set_library_defaults
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


def test_openmp_is_left_alone_once_it_has_read_its_settings(no_library_settings):
    assert in_a_fresh_process("import torch" + DEFAULTS) == "None 64 64"
