"""Threads: how many cores are free, read from trees that look like /proc and /sys."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfreflect.models.local.threads import Threads, Usage, choose_threads, read_usage


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


def count(
    root: Path,
    seconds: float,
    busy: dict[int, float],
    *,
    niced: float = 0,
    own: float = 0,
    own_nice: int = 0,
    cores: int = 4,
) -> Usage:
    """Counters after ``seconds``, with ``busy`` seconds of each core (all processes), ``niced`` of them on
    each core from niced jobs."""
    lines = ["cpu  1 2 3 4"]
    for cpu in range(cores):
        user, low = round(100 * (busy.get(cpu, 0) - niced)), round(100 * niced)
        lines.append(f"cpu{cpu} {user} {low} 0 {round(100 * seconds) - user - low} 0 0 0 0 0 0")
    write(root / "proc/stat", "\n".join([*lines, "intr 5", "ctxt 7"]) + "\n")
    before_times = "S " + " ".join(["0"] * 10)
    write(root / "proc/self/stat", f"7 (a) b) {before_times} {round(100 * own)} 0 0 0 20 {own_nice} 1")
    found = read_usage(root)
    assert found is not None
    return found


def choose(root: Path, since: Usage | None = None, cpus: int = 4, **environment: str) -> Threads:
    return choose_threads(since, root=root, environment=environment, allowed=set(range(cpus)))


# --- what is allowed


def test_one_thread_for_each_core(tmp_path):
    chosen = choose(machine(tmp_path))
    assert (chosen.count, str(chosen)) == (4, "4 threads (4 cores allowed)")


def test_hyperthreads_share_a_core(tmp_path):
    root = machine(tmp_path, cores=4, threads_per_core=2)
    assert choose(root, cpus=8).count == 4
    assert choose_threads(root=root, environment={}, allowed={1, 5}).count == 1
    assert choose_threads(root=root, environment={}, allowed={0, 5}).count == 2


def test_affinity_limits(tmp_path):
    assert str(choose(machine(tmp_path), cpus=1)) == "1 thread (1 core allowed)"


def test_the_affinity_of_this_process_is_the_default(tmp_path):
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert choose_threads(root=tmp_path, environment={}).count == usable


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
    assert choose(machine(tmp_path, cpu_max=quota)).count == threads


def test_the_quota_is_said(tmp_path):
    assert (
        str(choose(machine(tmp_path, cpu_max="150000 100000")))
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
    assert choose(root).count == 1


def test_a_container_that_sees_the_path_of_its_host(tmp_path):
    assert choose(machine(tmp_path, groups="0::/../../docker/abc", cpu_max="300000 100000")).count == 3


@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
@pytest.mark.parametrize(("quota", "threads"), [("200000", 2), ("-1", 4)])
def test_quotas_of_the_first_version(tmp_path, mount, quota, threads):
    root = machine(tmp_path, groups=f"9:name=systemd:/\n3:cpuset:/x\n4:{mount}:/pod/box\n0::/")
    write(root / "sys/fs/cgroup" / mount / "pod/cpu.cfs_quota_us", quota)
    write(root / "sys/fs/cgroup" / mount / "pod/cpu.cfs_period_us", "100000")
    assert choose(root).count == threads


def test_an_explicit_number_wins(tmp_path):
    root = machine(tmp_path, cpu_max="100000 100000")
    assert str(choose(root, OMP_NUM_THREADS="3")) == "3 threads (OMP_NUM_THREADS)"
    assert choose(root, OMP_NUM_THREADS="3,2").count == 3
    for nothing in ("", "0", "-2", "many"):
        assert choose(root, OMP_NUM_THREADS=nothing).count == 1


# --- what is free


@pytest.mark.parametrize(
    ("busy", "threads"),
    [
        ({}, 4),
        ({0: 0.4}, 4),  # a browser
        ({0: 2.0}, 3),
        ({0: 1.0, 2: 1.0}, 3),  # the same job on two cores in turn
        ({0: 2.0, 1: 2.0}, 2),
        (dict.fromkeys(range(4), 2.0), 1),
    ],
)
def test_busy_cores_are_left_to_others(tmp_path, busy, threads):
    root = machine(tmp_path)
    before = count(root, 0, {})
    count(root, 2, busy)
    assert choose(root, before).count == threads


def test_what_is_busy_is_said(tmp_path):
    root = machine(tmp_path)
    before = count(root, 0, {})
    count(root, 2, {1: 1.8})
    assert str(choose(root, before)) == "3 threads (4 cores allowed, 0.9 busy)"


def test_own_work_is_not_another_process(tmp_path):
    root = machine(tmp_path)
    before = count(root, 0, {})
    count(root, 2, {0: 2.0, 1: 1.5}, own=3.5)
    assert choose(root, before).count == 4


def test_niced_jobs_give_way_unless_this_one_is_niced_too(tmp_path):
    root = machine(tmp_path)
    for own_nice, threads in ((0, 4), (19, 1)):
        before = count(root, 0, {}, own_nice=own_nice)
        count(root, 2, dict.fromkeys(range(4), 2.0), niced=2.0, own_nice=own_nice)
        assert choose(root, before).count == threads


def test_jobs_on_cores_of_others_do_not_matter(tmp_path):
    root = machine(tmp_path)
    before = count(root, 0, {})
    count(root, 2, {2: 2.0, 3: 2.0})
    assert choose(root, before, cpus=2).count == 2


def test_a_moment_is_too_short_to_tell(tmp_path):
    root = machine(tmp_path)
    before = count(root, 0, {})
    count(root, 0.05, dict.fromkeys(range(4), 0.05))
    assert str(choose(root, before)) == "4 threads (4 cores allowed)"


@given(
    stat=st.text(alphabet="cpu0123 \n-x", max_size=80),
    own=st.text(alphabet="S() 019", max_size=80),
    groups=st.text(alphabet="0:/.,cpu\n", max_size=40),
    quota=st.text(alphabet="max019 -\n", max_size=12),
)
def test_whatever_the_system_says_there_is_an_answer(tmp_path_factory, stat, own, groups, quota):
    root = tmp_path_factory.mktemp("odd")
    write(root / "proc/stat", stat)
    write(root / "proc/self/stat", own)
    write(root / "proc/self/cgroup", groups)
    write(root / "sys/fs/cgroup/cpu.max", quota)
    assert 1 <= choose(root, read_usage(root)).count <= 4


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


def test_torch_gets_the_threads_that_are_said():
    code = "from selfreflect.models.local.threads import *; import torch; t = apply_threads(); print(t.count == torch.get_num_threads(), t)"
    cores = choose_threads(environment={})
    assert in_a_fresh_process(code) == f"True {cores}"
    assert in_a_fresh_process(code, OMP_NUM_THREADS="1") == "True 1 thread (OMP_NUM_THREADS)"


def test_a_number_that_the_program_has_set_stays():
    code = """
import torch
from selfreflect.models.local.threads import apply_threads
more = torch.get_num_threads() + 1
torch.set_num_threads(more)
print(apply_threads().count == more == torch.get_num_threads())
"""
    assert in_a_fresh_process(code) == "True"
